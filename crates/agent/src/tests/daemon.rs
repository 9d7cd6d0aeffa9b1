//! A fake daemon that sends the directives that a test chooses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use infill_api::{
    AgentAssignment, AgentHello, AgentPoll, AgentReport, AgentWelcome, Capability, CapabilitySet, PROTOCOL,
    headers, routes,
    seal::{SessionKey, SessionSeal, seal_payload},
};
use infill_model::{AgentEvent, AgentEventKind, CommandExit, Directive, Secret, WingOrder};

use super::{sealed, until};

/// Long polls of the fake are short, so that tests end soon.
const LONG_POLL: Duration = Duration::from_millis(300);

/// Time to leave that the fake sends to its workers, seconds.
pub const LEAVE_SECS: f64 = 0.6;

#[derive(Default)]
struct Book {
    hellos: Vec<AgentHello>,
    events: Vec<AgentEvent>,
    polls: Vec<u64>,
    /// Number of the session.
    session: u8,
    away: bool,
    blind: bool,
    refuses: bool,
    impostor: bool,
    /// Something on the way answers that sessions are not known, and lets hellos pass.
    lets_hellos_pass: bool,
    /// How many polls an impostor has answered.
    deceived: usize,
    /// A directive of a newer version, which replaces the assignment's.
    newer: Option<Value>,
    /// The kind of event that this older daemon does not know. It refuses whole reports with such an event.
    lacks: Option<AgentEventKind>,
}

#[derive(Clone)]
struct Shared {
    book: Arc<Mutex<Book>>,
    assignment: Arc<watch::Sender<AgentAssignment>>,
}

/// The fake daemon, which runs until the test ends.
pub struct FakeDaemon {
    port: u16,
    shared: Shared,
}

impl FakeDaemon {
    pub async fn start(directive: Directive) -> FakeDaemon {
        let first = AgentAssignment { version: 1, directive, wings: Vec::new(), notice: None };
        let shared = Shared { book: Arc::default(), assignment: Arc::new(watch::Sender::new(first)) };
        let router = Router::new()
            .route(routes::AGENT_HELLO, post(hello))
            .route(routes::AGENT_POLL, post(poll))
            .route(routes::AGENT_REPORT, post(report))
            .route(routes::HEALTHZ, get(healthz))
            .with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, router).await });
        FakeDaemon { port, shared }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub fn say(&self, directive: Directive) {
        self.shared.assignment.send_modify(|a| {
            a.version += 1;
            a.directive = directive;
            self.shared.book.lock().unwrap().newer = None;
        });
    }

    pub fn order(&self, wings: Vec<WingOrder>) {
        self.shared.assignment.send_modify(|a| {
            a.version += 1;
            a.wings = wings;
        });
    }

    /// Sends agents this directive, which may be of a newer version.
    pub fn say_newer(&self, directive: Value) {
        self.shared.book.lock().unwrap().newer = Some(directive);
        self.shared.assignment.send_modify(|a| a.version += 1);
    }

    /// Makes the daemon one of a version that does not know events of this kind.
    pub fn lack(&self, kind: AgentEventKind) {
        self.shared.book.lock().unwrap().lacks = Some(kind);
    }

    /// How many polls have reported that they have seen this version of the assignment.
    pub fn polls_since(&self, version: u64) -> usize {
        self.shared.book.lock().unwrap().polls.iter().filter(|seen| **seen >= version).count()
    }

    /// The assignment's version.
    pub fn version(&self) -> u64 {
        self.shared.assignment.borrow().version
    }

    pub fn set_away(&self, away: bool) {
        self.shared.book.lock().unwrap().away = away;
    }

    /// Makes the daemon one that cannot look at Slurm, and so accepts no agent.
    pub fn set_blind(&self) {
        self.shared.book.lock().unwrap().blind = true;
    }

    /// Makes the daemon healthy, but refuse this job.
    pub fn set_refusing(&self) {
        self.shared.book.lock().unwrap().refuses = true;
    }

    /// From now on an impostor answers. It says that all is done, and cannot prove anything.
    pub fn set_impostor(&self, impostor: bool) {
        self.shared.book.lock().unwrap().impostor = impostor;
    }

    /// From now on something on the way answers polls and reports with 401, and lets hellos pass.
    pub fn set_hellos_only(&self) {
        self.shared.book.lock().unwrap().lets_hellos_pass = true;
    }

    /// How many polls an impostor has answered.
    pub fn deceived(&self) -> usize {
        self.shared.book.lock().unwrap().deceived
    }

    /// Forgets all agents, as a restart does; versions of assignments start again.
    pub fn restart(&self) {
        self.shared.book.lock().unwrap().session += 1;
        self.shared.assignment.send_modify(|a| a.version = 1);
    }

    pub fn hellos(&self) -> Vec<AgentHello> {
        self.shared.book.lock().unwrap().hellos.clone()
    }

    pub fn events(&self) -> Vec<AgentEvent> {
        self.shared.book.lock().unwrap().events.clone()
    }

    /// Waits until the command of this generation is reported as gone.
    pub async fn stopped(&self, generation: u64) -> (CommandExit, f64) {
        until("Stopped", || self.end_of(generation).is_some()).await;
        self.end_of(generation).unwrap()
    }

    fn end_of(&self, wanted: u64) -> Option<(CommandExit, f64)> {
        self.events().into_iter().find_map(|event| match event {
            AgentEvent::Stopped { generation, exit, stop_secs, .. } if generation == wanted => {
                Some((exit, stop_secs))
            }
            _ => None,
        })
    }

    pub async fn started(&self, generation: u64) {
        until("Started", || {
            self.events()
                .iter()
                .any(|e| matches!(e, AgentEvent::Started { generation: g, .. } if *g == generation))
        })
        .await;
    }
}

/// An answer before it is signed.
struct UnsignedAnswer {
    status: StatusCode,
    body: Vec<u8>,
}

fn ok_answer(body: &impl Serialize) -> UnsignedAnswer {
    UnsignedAnswer { status: StatusCode::OK, body: serde_json::to_vec(body).unwrap() }
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

impl Shared {
    /// The session that all agents have until the next restart.
    fn session(&self) -> (String, SessionKey) {
        let number = self.book.lock().unwrap().session;
        (format!("s{number}"), SessionKey::new([number; 32]))
    }

    fn impostor(&self) -> bool {
        self.book.lock().unwrap().impostor
    }

    /// The number of a request whose session is known, and whose body is signed.
    fn check(&self, route: &str, headers: &HeaderMap, body: &[u8]) -> Result<u64, StatusCode> {
        let (name, key) = self.session();
        let counter = header_text(headers, headers::COUNTER).parse().unwrap_or_default();
        let mac = header_text(headers, headers::MAC);
        if self.book.lock().unwrap().away {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let is_known = header_text(headers, headers::SESSION) == name;
        if self.book.lock().unwrap().lets_hellos_pass
            || !is_known
            || !key.verify_request(mac, route, counter, body)
        {
            return Err(StatusCode::UNAUTHORIZED);
        }
        Ok(counter)
    }

    /// Signs an answer, if it is the daemon's.
    fn sign(&self, route: &str, counter: u64, answer: UnsignedAnswer) -> Response {
        let UnsignedAnswer { status, body } = answer;
        let mac = self.session().1.sign_answer(route, counter, status.as_u16(), &body);
        let mut answer = (status, body).into_response();
        if !self.impostor() {
            answer.headers_mut().insert(headers::MAC, mac.parse().unwrap());
        }
        answer
    }
}

async fn hello(
    State(shared): State<Shared>,
    sent: HeaderMap,
    Json(hello): Json<AgentHello>,
) -> Result<Response, StatusCode> {
    let (name, key) = shared.session();
    let nonce = sent.get(headers::NONCE).and_then(|nonce| nonce.to_str().ok()).unwrap();
    let seal = SessionSeal::Munge(sealed(&seal_payload(Some(hello.job), nonce, &name, &key)));
    {
        let mut book = shared.book.lock().unwrap();
        if book.away || book.blind {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        book.hellos.push(hello);
    }
    let mut welcome = AgentWelcome {
        address: None,
        secret: None,
        preempt_leave_secs: LEAVE_SECS,
        place: None,
        protocol: PROTOCOL,
        capabilities: CapabilitySet::from_iter([Capability::SealedSession]),
    };
    if shared.impostor() {
        welcome.secret = Some(Secret("s".repeat(64)));
        return Ok(Json(welcome).into_response());
    }
    let answer = if shared.book.lock().unwrap().refuses {
        let body = br#"{"error":"this job is not valid"}"#.to_vec();
        UnsignedAnswer { status: StatusCode::UNPROCESSABLE_ENTITY, body }
    } else {
        ok_answer(&welcome)
    };
    let mut answer = shared.sign(routes::AGENT_HELLO, 0, answer);
    answer.headers_mut().insert(headers::SEAL, seal.to_header().parse().unwrap());
    Ok(answer)
}

async fn poll(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Result<Response, StatusCode> {
    let poll: AgentPoll = serde_json::from_slice(&body).unwrap();
    if shared.impostor() {
        shared.book.lock().unwrap().deceived += 1;
        let finish = Directive::Finish { code: 0 };
        let first = AgentAssignment { version: 9, directive: finish, wings: Vec::new(), notice: None };
        return Ok(shared.sign(routes::AGENT_POLL, 0, ok_answer(&first)));
    }
    shared.check(routes::AGENT_POLL, &headers, &body)?;
    shared.book.lock().unwrap().polls.push(poll.seen);
    let mut watch = shared.assignment.subscribe();
    let newer = watch.wait_for(|a| a.version > poll.seen);
    let _ = tokio::time::timeout(LONG_POLL, newer).await;
    let counter = shared.check(routes::AGENT_POLL, &headers, &body)?;
    let mut assignment = serde_json::to_value(shared.assignment.borrow().clone()).unwrap();
    if let Some(newer) = shared.book.lock().unwrap().newer.clone() {
        assignment["directive"] = newer;
    }
    Ok(shared.sign(routes::AGENT_POLL, counter, ok_answer(&assignment)))
}

async fn healthz(State(shared): State<Shared>, headers: HeaderMap) -> Result<Response, StatusCode> {
    if shared.book.lock().unwrap().away {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let ok = UnsignedAnswer { status: StatusCode::OK, body: b"ok\n".to_vec() };
    let mut answer = shared.sign(routes::HEALTHZ, 0, ok);
    if let Some(nonce) = headers.get(headers::NONCE).filter(|_| !shared.impostor()) {
        let (name, key) = shared.session();
        let seal = SessionSeal::Munge(sealed(&seal_payload(None, nonce.to_str().unwrap(), &name, &key)));
        answer.headers_mut().insert(headers::SEAL, seal.to_header().parse().unwrap());
    }
    Ok(answer)
}

async fn report(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, StatusCode> {
    let report: AgentReport = serde_json::from_slice(&body).unwrap();
    if shared.impostor() {
        // An impostor's answer must not make the agent discard its events.
        return Ok(StatusCode::UNPROCESSABLE_ENTITY.into_response());
    }
    let counter = shared.check(routes::AGENT_REPORT, &headers, &body)?;
    let status = {
        let mut book = shared.book.lock().unwrap();
        if report.events.iter().any(|event| Some(event.kind()) == book.lacks) {
            StatusCode::UNPROCESSABLE_ENTITY
        } else {
            book.events.extend(report.events);
            StatusCode::NO_CONTENT
        }
    };
    let answer = UnsignedAnswer { status, body: Vec::new() };
    Ok(shared.sign(routes::AGENT_REPORT, counter, answer))
}
