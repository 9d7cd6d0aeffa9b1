//! Requests to the daemon, the secret that they need, and whether the daemon can be reached.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

use super::http_client;
use infill_api::{
    AgentReport, Capabilities, ErrorBody, HeardAssignment, Hello, MAX_POLL_SECS, PROTOCOL, Poll, Receipt,
    Role, Welcome, addresses::Addresses, daemon_urls, routes,
};
use infill_model::{AgentEvent, JobId, NodeName, RunSpec, Secret, causes};

use super::identity::{Identity, IdentityError};

/// A daemon on the same network answers in milliseconds; one that is gone should be noticed soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for an answer, beyond what the daemon was asked to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// First and longest pause between attempts. The daemon gives up agents that it has not heard for longer.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Leave time until the daemon has told us the site's.
const DEFAULT_LEAVE: Duration = Duration::from_secs(2);

/// The port that PyTorch takes by default, for a node that has no free port to tell.
const FALLBACK_PORT: u16 = 29500;

/// Stands for "nothing runs" in the number of the running generation; generations begin at 1.
const NOTHING: u64 = 0;

/// Who speaks to which daemon.
pub(crate) struct LinkConfig {
    /// The daemon's URL, or several, as [`daemon_urls`] reads them.
    pub url: String,
    /// PEM file with the authorities of its certificate, if not the system's.
    pub ca: Option<PathBuf>,
    /// Our Slurm job.
    pub job: JobId,
    /// Our node.
    pub node: NodeName,
    /// Lead or wing.
    pub role: Role,
    /// From a lead.
    pub spec: Option<RunSpec>,
    /// Proves who we are.
    pub identity: Box<dyn Identity>,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// No proof of who we are.
    #[error("cannot prove who we are")]
    Identity(#[from] IdentityError),
    /// No answer, or none that can be read. Worth repeating.
    #[error("no answer from {url}: {what}")]
    Unreachable {
        /// The daemon.
        url: String,
        /// The whole chain of reasons.
        what: String,
    },
    /// The daemon does not know us (any more).
    #[error("the daemon does not accept us: {0}")]
    Unauthorized(String),
    /// The daemon refuses this request; it would refuse it again.
    #[error("the daemon refuses the request ({status}): {what}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it says.
        what: String,
    },
    /// The client cannot be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Setup(String),
}

/// Our side of the conversation. Shared by the loops that poll and report.
pub(crate) struct Link {
    config: LinkConfig,
    daemons: Addresses,
    http: Client,
    session: tokio::sync::Mutex<Session>,
    running: AtomicU64,
    state: Mutex<State>,
    /// Shut while the daemon must not hear from us.
    door: Arc<RwLock<()>>,
}

#[derive(Default)]
struct Session {
    secret: Option<Secret>,
    /// Where the daemon has us; `None`: on our node, which we have for ourselves.
    place: Option<NodeName>,
    /// Counts hellos: versions of assignments start anew with each.
    epoch: u64,
}

/// What a request after the hello needs.
struct Pass {
    secret: Secret,
    /// Under which name the daemon knows our place.
    node: NodeName,
    /// The number of the hello.
    epoch: u64,
}

struct State {
    /// Whether it has ever taken us in.
    welcomed: bool,
    away_since: Option<Instant>,
    leave: Duration,
}

impl Link {
    /// Sets up the client; says nothing to the daemon yet.
    pub fn new(config: LinkConfig) -> Result<Link, LinkError> {
        let http = http_client::of_agent(CONNECT_TIMEOUT, config.ca.as_deref()).map_err(LinkError::Setup)?;
        let none = || LinkError::Setup("no daemon's URL is given".to_owned());
        let daemons = Addresses::new(daemon_urls(&config.url)).ok_or_else(none)?;
        Ok(Link {
            config,
            daemons,
            http,
            session: tokio::sync::Mutex::default(),
            running: AtomicU64::new(NOTHING),
            state: Mutex::new(State { welcomed: false, away_since: None, leave: DEFAULT_LEAVE }),
            door: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which generation's command runs, for the next hello.
    pub(crate) fn set_running(&self, generation: Option<u64>) {
        self.running.store(generation.unwrap_or(NOTHING), Ordering::Relaxed);
    }

    /// How long a preempted worker may take to save.
    pub(crate) fn leave_time(&self) -> Duration {
        self.state().leave
    }

    /// For how long the daemon has been away; zero when the last request succeeded.
    pub fn away(&self) -> Duration {
        self.state().away_since.map_or(Duration::ZERO, |t| t.elapsed())
    }

    /// Waits for the end of what is being said, and keeps all further polls, reports and hellos waiting until
    /// the guard is dropped.
    pub(crate) async fn shut(&self) -> OwnedRwLockWriteGuard<()> {
        self.door.clone().write_owned().await
    }

    /// Whether a daemon has taken us in since we began.
    pub(crate) fn was_welcomed(&self) -> bool {
        self.state().welcomed
    }

    /// Whether there is a daemon that leads and makes rounds. Tells it nothing of us.
    pub async fn is_well(&self) -> bool {
        for (_, url) in self.daemons.in_turn() {
            let request = self.http.get(format!("{url}{}", routes::HEALTHZ)).timeout(ANSWER_TIMEOUT);
            let answer = async { request.send().await?.error_for_status()?.text().await };
            if answer.await.is_ok_and(|text| text.starts_with("ok")) {
                return true;
            }
        }
        false
    }

    /// Asks for the assignment, after saying hello where needed. Returns the number of the hello with it.
    pub async fn poll(&self, seen: impl Fn(u64) -> u64) -> Result<(u64, HeardAssignment), LinkError> {
        let _open = self.door.read().await;
        let Pass { secret, node, epoch } = self.pass().await?;
        let body = Poll { job: self.config.job, node, seen: seen(epoch), wait_secs: MAX_POLL_SECS };
        let wait = ANSWER_TIMEOUT + Duration::from_secs(MAX_POLL_SECS);
        let answer = self.post(routes::AGENT_POLL, Some(&secret), &body, wait).await;
        self.forget_if_unknown(&answer, epoch).await;
        Ok((epoch, answer?))
    }

    /// Delivers events, after saying hello where needed. Returns the names of those that an older daemon does
    /// not know.
    pub async fn report(&self, events: Vec<AgentEvent>) -> Result<Vec<String>, LinkError> {
        let _open = self.door.read().await;
        let Pass { secret, node, epoch } = self.pass().await?;
        let body = AgentReport { job: self.config.job, node, events };
        let answer: Result<serde_json::Value, _> =
            self.post(routes::AGENT_REPORT, Some(&secret), &body, ANSWER_TIMEOUT).await;
        self.forget_if_unknown(&answer, epoch).await;
        // Whatever the answer holds, the events have arrived.
        answer.map(|receipt| serde_json::from_value::<Receipt>(receipt).unwrap_or_default().not_understood)
    }

    async fn pass(&self) -> Result<Pass, LinkError> {
        let mut session = self.session.lock().await;
        if session.secret.is_none() {
            let welcome = self.hello().await?;
            self.state().welcomed = true;
            (session.secret, session.place) = (Some(welcome.secret), welcome.place);
            session.epoch += 1;
        }
        let secret = session.secret.clone().ok_or(LinkError::Unauthorized(String::new()))?;
        let node = session.place.as_ref().unwrap_or(&self.config.node).clone();
        Ok(Pass { secret, node, epoch: session.epoch })
    }

    async fn hello(&self) -> Result<Welcome, LinkError> {
        let proof = self.config.identity.prove("hello", Some(self.config.job)).await;
        let proof = match proof.and_then(|proof| proof.only_where_unheard(self.daemons.urls())) {
            Ok(proof) => proof,
            Err(e) => {
                self.note_away(&e);
                return Err(e.into());
            }
        };
        let hello = Hello {
            credential: proof.credential,
            nonce: proof.nonce,
            job: self.config.job,
            role: self.config.role,
            node: self.config.node.clone(),
            port: free_port(),
            running: Some(self.running.load(Ordering::Relaxed)).filter(|g| *g != NOTHING),
            spec: self.config.spec.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            capabilities: Capabilities::default(),
        };
        let welcome: Welcome = self.post(routes::AGENT_HELLO, None, &hello, ANSWER_TIMEOUT).await?;
        // Anything else would be a number that no Duration can hold.
        if (0.0..=86_400.0).contains(&welcome.preempt_leave_secs) {
            self.state().leave = Duration::from_secs_f64(welcome.preempt_leave_secs);
        }
        tracing::info!(url = self.daemons.url(), "the daemon knows us");
        Ok(welcome)
    }

    /// After a 401 the secret of that hello is worth nothing.
    async fn forget_if_unknown<T>(&self, answer: &Result<T, LinkError>, epoch: u64) {
        if matches!(answer, Err(LinkError::Unauthorized(_))) {
            let mut session = self.session.lock().await;
            if session.epoch == epoch {
                session.secret = None;
            }
        }
    }

    /// Posts to the daemon that answered last; if it does not, to each of the others in turn.
    async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        secret: Option<&Secret>,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<A, LinkError> {
        let mut result = Err(LinkError::Setup(String::new()));
        for (number, url) in self.daemons.in_turn() {
            result = self.post_to(url, path, secret, body, wait).await;
            if !matches!(result, Err(LinkError::Unreachable { .. })) {
                self.daemons.answered(number);
                break;
            }
        }
        match &result {
            Ok(_) => self.note_back(),
            // A secret that is no longer known is replaced at once and is not the daemon being away.
            Err(LinkError::Unauthorized(_)) if secret.is_some() => {}
            Err(error) => self.note_away(error),
        }
        result
    }

    async fn post_to<A: DeserializeOwned>(
        &self,
        url: &str,
        path: &str,
        secret: Option<&Secret>,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<A, LinkError> {
        let mut request = self.http.post(format!("{url}{path}")).json(body).timeout(wait);
        if let Some(Secret(secret)) = secret {
            request = request.bearer_auth(secret);
        }
        let answer = async {
            let answer = request.send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.bytes().await?))
        };
        match answer.await {
            Ok((status, body)) => read(url, status, &body),
            Err(e) => Err(unreachable(url, causes::chain(&e))),
        }
    }

    fn note_away(&self, error: &dyn std::error::Error) {
        let mut state = self.state();
        if state.away_since.is_none() {
            state.away_since = Some(Instant::now());
            tracing::warn!(
                error = causes::chain(error),
                "no word from the daemon; going on, and trying again"
            );
        }
    }

    fn note_back(&self) {
        if let Some(since) = self.state().away_since.take() {
            tracing::info!(away_secs = since.elapsed().as_secs(), "the daemon is back");
        }
    }
}

fn read<A: DeserializeOwned>(url: &str, status: StatusCode, body: &[u8]) -> Result<A, LinkError> {
    if status.is_success() {
        // An answer without content is as good as `null`.
        let body = if body.is_empty() { b"null" } else { body };
        return serde_json::from_slice(body).map_err(|e| unreachable(url, format!("unreadable answer: {e}")));
    }
    let said = serde_json::from_slice::<ErrorBody>(body).map(|e| e.error).unwrap_or_default();
    match status {
        StatusCode::UNAUTHORIZED => Err(LinkError::Unauthorized(said)),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Err(unreachable(url, format!("{status}: {said}")))
        }
        _ if status.is_client_error() => Err(LinkError::Refused { status: status.as_u16(), what: said }),
        _ => Err(unreachable(url, format!("{status}: {said}"))),
    }
}

fn unreachable(url: &str, what: String) -> LinkError {
    LinkError::Unreachable { url: url.to_owned(), what }
}

/// Pauses between attempts, growing.
pub(crate) struct Backoff(Duration);

impl Backoff {
    /// Starts with the shortest.
    pub fn new() -> Backoff {
        Backoff(BACKOFF.0)
    }

    /// The next pause: doubled each time, and scattered so that a thousand agents don't come back at once.
    pub fn next(&mut self) -> Duration {
        let mut byte = [0u8];
        // Without random bytes there is just no scatter.
        getrandom::fill(&mut byte).ok();
        let pause = self.0.mul_f64(0.75 + f64::from(byte[0]) / 1024.0);
        self.0 = (self.0 * 2).min(BACKOFF.1);
        pause
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.0 = BACKOFF.0;
    }
}

/// Whether somebody listens at this TCP port of this node.
pub(crate) fn is_taken(port: u16) -> bool {
    let bound = std::net::TcpListener::bind(("0.0.0.0", port));
    bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

/// A TCP port that is free on this node now.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind(("0.0.0.0", 0))
        .and_then(|listener| listener.local_addr())
        .map_or(FALLBACK_PORT, |address| address.port())
}
