//! A daemon that says what the test tells it to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::Value;
use tokio::sync::watch;

use infill_api::{AgentReport, Assignment, Capabilities, Hello, PROTOCOL, Poll, Welcome, routes};
use infill_model::{AgentEvent, Directive, EventKind, Exit, Secret, WingOrder};

use super::until;

/// Long polls of the fake are short, so that tests end soon.
const LONG_POLL: Duration = Duration::from_millis(300);

/// Leave time that the fake tells its workers, seconds.
pub const LEAVE_SECS: f64 = 0.6;

#[derive(Default)]
struct Book {
    hellos: Vec<Hello>,
    events: Vec<AgentEvent>,
    polls: Vec<u64>,
    secret: u32,
    away: bool,
    blind: bool,
    /// A directive of a newer version, in place of the assignment's.
    newer: Option<Value>,
    /// Of an older version: refuses reports with an event of this kind, as a whole.
    lacks: Option<EventKind>,
}

#[derive(Clone)]
struct Shared {
    book: Arc<Mutex<Book>>,
    assignment: Arc<watch::Sender<Assignment>>,
}

/// The fake.
pub struct FakeDaemon {
    port: u16,
    shared: Shared,
}

impl FakeDaemon {
    pub async fn start(directive: Directive) -> FakeDaemon {
        let first = Assignment { version: 1, directive, wings: Vec::new(), notice: None };
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

    /// Says this to agents, whatever it is.
    pub fn say_anew(&self, directive: Value) {
        self.shared.book.lock().unwrap().newer = Some(directive);
        self.shared.assignment.send_modify(|a| a.version += 1);
    }

    /// Is of a version that does not know events of this kind.
    pub fn lack(&self, kind: EventKind) {
        self.shared.book.lock().unwrap().lacks = Some(kind);
    }

    /// How many polls have told that this version of the assignment has come.
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

    /// A daemon that cannot look at Slurm takes nobody in.
    pub fn set_blind(&self) {
        self.shared.book.lock().unwrap().blind = true;
    }

    /// Forgets all agents, as a restart does; versions of assignments begin anew.
    pub fn restart(&self) {
        self.shared.book.lock().unwrap().secret += 1;
        self.shared.assignment.send_modify(|a| a.version = 1);
    }

    pub fn hellos(&self) -> Vec<Hello> {
        self.shared.book.lock().unwrap().hellos.clone()
    }

    pub fn events(&self) -> Vec<AgentEvent> {
        self.shared.book.lock().unwrap().events.clone()
    }

    /// Waits until the command of this generation is reported as gone.
    pub async fn stopped(&self, generation: u64) -> (Exit, f64) {
        until("Stopped", || self.end_of(generation).is_some()).await;
        self.end_of(generation).unwrap()
    }

    fn end_of(&self, wanted: u64) -> Option<(Exit, f64)> {
        self.events().into_iter().find_map(|event| match event {
            AgentEvent::Stopped { generation, exit, stop_secs, .. } if generation == wanted => {
                Some((exit, stop_secs))
            }
            _ => None,
        })
    }

    pub async fn started(&self, generation: u64) {
        until("Started", || self.events().contains(&AgentEvent::Started { generation })).await;
    }
}

impl Shared {
    fn check(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let book = self.book.lock().unwrap();
        let bearer = format!("Bearer s{}", book.secret);
        match headers.get("authorization").and_then(|h| h.to_str().ok()) {
            _ if book.away => Err(StatusCode::SERVICE_UNAVAILABLE),
            Some(text) if text == bearer => Ok(()),
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }
}

async fn hello(State(shared): State<Shared>, Json(hello): Json<Hello>) -> Result<Json<Welcome>, StatusCode> {
    let mut book = shared.book.lock().unwrap();
    if book.away || book.blind {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    book.hellos.push(hello);
    let secret = Secret(format!("s{}", book.secret));
    Ok(Json(Welcome {
        secret,
        preempt_leave_secs: LEAVE_SECS,
        place: None,
        protocol: PROTOCOL,
        capabilities: Capabilities::default(),
    }))
}

async fn poll(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(poll): Json<Poll>,
) -> Result<Json<Value>, StatusCode> {
    shared.check(&headers)?;
    shared.book.lock().unwrap().polls.push(poll.seen);
    let mut watch = shared.assignment.subscribe();
    let news = watch.wait_for(|a| a.version > poll.seen);
    let _ = tokio::time::timeout(LONG_POLL, news).await;
    shared.check(&headers)?;
    let mut assignment = serde_json::to_value(shared.assignment.borrow().clone()).unwrap();
    if let Some(newer) = shared.book.lock().unwrap().newer.clone() {
        assignment["directive"] = newer;
    }
    Ok(Json(assignment))
}

async fn healthz(State(shared): State<Shared>) -> Result<&'static str, StatusCode> {
    let away = shared.book.lock().unwrap().away;
    if away { Err(StatusCode::SERVICE_UNAVAILABLE) } else { Ok("ok\n") }
}

async fn report(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(report): Json<AgentReport>,
) -> Result<(), StatusCode> {
    shared.check(&headers)?;
    let mut book = shared.book.lock().unwrap();
    if report.events.iter().any(|event| Some(event.kind()) == book.lacks) {
        return Err(StatusCode::UNPROCESSABLE_ENTITY);
    }
    book.events.extend(report.events);
    Ok(())
}
