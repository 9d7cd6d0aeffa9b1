//! Sends requests to the daemon, keeps the session that they belong to, and notes whether the daemon can be
//! reached.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

use super::http_client;
use super::node_network::{self, free_port};
use super::outbox::EventBatch;
use infill_api::{
    AgentHello, AgentPoll, AgentRole, AgentWelcome, BodyProof, Capability, CapabilitySet, ErrorBody,
    MAX_POLL_SECS, PROTOCOL, RawAssignment, ReportReceipt,
    addresses::{self, DaemonAddresses},
    daemon_urls, headers, routes,
    seal::request_digest,
};
use infill_model::{Credential, GpuUse, JobId, NodeName, RunSpec, error_causes};

use super::identity::{IdentityError, IdentityProvider, ProofPurpose};
use super::signed_session::{self, DaemonAnswer, DaemonSession};

/// How long connecting may take. A daemon on the same network answers in milliseconds, and we should soon
/// notice one that is gone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long an answer may take, beyond the time that the daemon was asked to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest answer, bytes. An assignment names all nodes of a job once or twice.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// First and longest pause between attempts. The daemon gives an agent up after a longer silence.
const BACKOFF_RANGE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Time to leave, until the daemon has sent the site's.
const DEFAULT_LEAVE: Duration = Duration::from_secs(2);

/// The running generation if nothing runs. Generations begin at 1.
const NO_GENERATION: u64 = 0;

/// The agent and the daemon that a link connects.
pub(crate) struct LinkConfig {
    /// The daemon's URL, or several, as [`daemon_urls`] reads them.
    pub url: String,
    /// PEM file with the authorities of the daemon's certificate, if not the system's.
    pub ca: Option<PathBuf>,
    /// Id of our Slurm job.
    pub job: JobId,
    /// Slurm's name of our node.
    pub node: NodeName,
    /// Whether we belong to a lead or a wing.
    pub role: AgentRole,
    /// The declaration of a lead; `None` for a wing.
    pub spec: Option<RunSpec>,
    /// Proves who we are.
    pub identity: Box<dyn IdentityProvider>,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// No proof of our identity could be made.
    #[error("cannot prove who we are")]
    Identity(#[from] IdentityError),
    /// There was no answer, or it could not be read, or does not prove to be the daemon's. The request is
    /// worth repeating.
    #[error("no answer from {url}: {what}")]
    Unreachable {
        /// The daemon's URL.
        url: String,
        /// The whole chain of reasons.
        what: String,
    },
    /// The daemon does not know us, or not any more.
    #[error("the daemon does not accept us: {0}")]
    Unauthorized(String),
    /// The daemon refuses this request, and would refuse it again.
    #[error("the daemon refuses the request ({status}): {what}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The daemon's reason.
        what: String,
    },
    /// The client cannot be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Setup(String),
}

/// Our connection to the daemon. The loops that poll and report share it.
pub(crate) struct DaemonLink {
    config: LinkConfig,
    daemons: DaemonAddresses,
    http: Client,
    session_state: tokio::sync::Mutex<SessionState>,
    /// The running generation, or [`NO_GENERATION`].
    running: AtomicU64,
    state: Mutex<LinkState>,
    /// Each request holds a read lock. A write lock blocks all requests.
    request_gate: Arc<RwLock<()>>,
}

/// The present session with the daemon.
#[derive(Default)]
struct SessionState {
    session: Option<Arc<DaemonSession>>,
    /// The place that the daemon has given us; `None` if we have the whole node.
    place: Option<NodeName>,
    /// Counts hellos. The versions of assignments start again with each.
    epoch: u64,
}

/// The facts that a request after the hello needs.
struct RequestContext {
    session: Arc<DaemonSession>,
    /// The daemon's name of our node or place.
    node: NodeName,
    /// The number of the hello.
    epoch: u64,
}

/// The state of the daemon as we see it.
struct LinkState {
    /// Whether a daemon has ever accepted us.
    accepted: bool,
    /// Whether the last hello was refused because this job is not valid.
    refused: bool,
    /// Since when the daemon has been away.
    away_since: Option<Instant>,
    /// How long a preempted worker may take to save.
    leave: Duration,
    /// How many of the GPUs that the job holds here the command uses.
    gpus: Option<GpuUse>,
    /// The network interface at which other nodes reach us, if it could be found.
    interface: Option<String>,
}

impl DaemonLink {
    /// Sets up the client, without a request to the daemon yet.
    ///
    /// # Errors
    /// When no URL is given, or the HTTP client cannot be built.
    pub fn new(config: LinkConfig) -> Result<DaemonLink, LinkError> {
        let http = http_client::build_agent_client(CONNECT_TIMEOUT, config.ca.as_deref())
            .map_err(LinkError::Setup)?;
        let daemons = DaemonAddresses::new(daemon_urls(&config.url))
            .ok_or_else(|| LinkError::Setup("no daemon's URL is given".to_owned()))?;
        Ok(DaemonLink {
            config,
            daemons,
            http,
            session_state: tokio::sync::Mutex::default(),
            running: AtomicU64::new(NO_GENERATION),
            state: Mutex::new(LinkState {
                accepted: false,
                refused: false,
                away_since: None,
                leave: DEFAULT_LEAVE,
                gpus: None,
                interface: None,
            }),
            request_gate: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which generation's command runs, for the next hello.
    pub(crate) fn set_running_generation(&self, generation: Option<u64>) {
        self.running.store(generation.unwrap_or(NO_GENERATION), Ordering::Relaxed);
    }

    /// The generation whose command runs.
    pub(crate) fn running_generation(&self) -> Option<u64> {
        Some(self.running.load(Ordering::Relaxed)).filter(|generation| *generation != NO_GENERATION)
    }

    /// Notes how the command uses the job's GPUs here, for all further reports.
    pub(crate) fn set_gpu_use(&self, gpus: Option<GpuUse>) {
        self.state().gpus = gpus;
    }

    /// The network interface at which other nodes reach us, if it could be found.
    pub(crate) fn interface(&self) -> Option<String> {
        self.state().interface.clone()
    }

    /// How long a preempted worker may take to save.
    pub(crate) fn leave_time(&self) -> Duration {
        self.state().leave
    }

    /// For how long the daemon has been away; zero when the last request succeeded.
    pub fn away_duration(&self) -> Duration {
        self.state().away_since.map_or(Duration::ZERO, |t| t.elapsed())
    }

    /// Waits for the requests that are under way, and blocks all further polls, reports and hellos until the
    /// guard is dropped.
    pub(crate) async fn block_requests(&self) -> OwnedRwLockWriteGuard<()> {
        self.request_gate.clone().write_owned().await
    }

    /// Whether no daemon has accepted us since we started, and the last to answer refused this job as not
    /// valid. It would refuse it again.
    pub(crate) fn is_refused(&self) -> bool {
        let state = self.state();
        state.refused && !state.accepted
    }

    /// Whether a daemon has accepted us since we started.
    pub(crate) fn was_accepted(&self) -> bool {
        self.state().accepted
    }

    /// Whether there is a daemon that leads, makes rounds, and proves to be infill's. The request shows the
    /// daemon only our user.
    pub async fn is_daemon_healthy(&self) -> bool {
        for (_, url) in self.daemons.in_preferred_order() {
            if self.check_health(url).await {
                return true;
            }
        }
        false
    }

    async fn check_health(&self, url: &str) -> bool {
        let request = self.http.get(format!("{url}{}", routes::HEALTHZ)).timeout(ANSWER_TIMEOUT);
        let Some(to) = addresses::host_and_port(url) else { return false };
        let purpose = ProofPurpose { action: headers::HEALTH_PURPOSE, job: None, audience: &to, order: None };
        let Ok(proof) = self.config.identity.make_proof(&purpose).await else { return false };
        let by_munge = matches!(proof.credential, Credential::Munge(_));
        // A token is too valuable to send for this answer.
        let request = if by_munge { signed_session::attach_proof(request, &proof, &to) } else { request };
        let Ok(answer) = DaemonAnswer::fetch_answer(request, MAX_ANSWER).await else { return false };
        let opened =
            DaemonSession::from_answer(self.config.identity.as_ref(), &proof, None, routes::HEALTHZ, &answer);
        let is_proved = !by_munge || opened.await.is_ok();
        is_proved && answer.status.is_success() && answer.body.starts_with(b"ok")
    }

    /// Asks for the assignment, after a hello if needed. Returns the number of the hello, and the assignment.
    /// `seen` returns the last version that was seen after a given hello.
    ///
    /// # Errors
    /// When the hello or the request fails.
    pub async fn poll_assignment(
        &self,
        seen: impl Fn(u64) -> u64,
    ) -> Result<(u64, RawAssignment), LinkError> {
        let _permit = self.request_gate.read().await;
        let RequestContext { session, node, epoch } = self.request_context().await?;
        let body = AgentPoll { job: self.config.job, node, seen: seen(epoch), wait_secs: MAX_POLL_SECS };
        let wait = ANSWER_TIMEOUT + Duration::from_secs(MAX_POLL_SECS);
        let answer = self.send_to_any(routes::AGENT_POLL, &session, &body, wait).await;
        self.forget_if_unknown(&answer, epoch).await;
        Ok((epoch, answer?))
    }

    /// Delivers events, after a hello if needed. Returns the names of those that an older daemon does not
    /// know.
    ///
    /// # Errors
    /// When the hello or the request fails.
    pub async fn send_report(&self, batch: EventBatch) -> Result<Vec<String>, LinkError> {
        let _permit = self.request_gate.read().await;
        let RequestContext { session, node, epoch } = self.request_context().await?;
        let body = batch.into_report(self.config.job, node, self.state().gpus);
        let answer: Result<serde_json::Value, _> =
            self.send_to_any(routes::AGENT_REPORT, &session, &body, ANSWER_TIMEOUT).await;
        self.forget_if_unknown(&answer, epoch).await;
        // Whatever the answer contains, the events have arrived.
        answer.map(|receipt| {
            serde_json::from_value::<ReportReceipt>(receipt).unwrap_or_default().not_understood
        })
    }

    async fn request_context(&self) -> Result<RequestContext, LinkError> {
        let mut state = self.session_state.lock().await;
        let session = match &state.session {
            Some(session) => session.clone(),
            None => {
                let (welcome, session) = self.say_hello().await?;
                let interface = match &welcome.address {
                    Some(address) => node_network::interface_of(address).await,
                    None => None,
                };
                {
                    let mut link = self.state();
                    link.accepted = true;
                    link.interface = interface;
                }
                state.place = welcome.place;
                state.epoch += 1;
                state.session.insert(Arc::new(session)).clone()
            }
        };
        let node = state.place.as_ref().unwrap_or(&self.config.node).clone();
        Ok(RequestContext { session, node, epoch: state.epoch })
    }

    /// Sends a hello to the daemon that answered last; if that does not prove itself, to each of the others.
    async fn say_hello(&self) -> Result<(AgentWelcome, DaemonSession), LinkError> {
        let mut result = Err(LinkError::Setup(String::new()));
        for (number, url) in self.daemons.in_preferred_order() {
            result = self.say_hello_to(url).await;
            if !matches!(result, Err(LinkError::Unreachable { .. })) {
                self.daemons.record_answer(number);
                break;
            }
        }
        let invalid = StatusCode::UNPROCESSABLE_ENTITY.as_u16();
        self.state().refused =
            matches!(&result, Err(LinkError::Refused { status, .. }) if *status == invalid);
        // The daemon counts as back only once it answers a poll or a report: something on the way may let
        // only hellos pass.
        let (welcome, session) = result.inspect_err(|error| self.record_away(error))?;
        // A Duration cannot hold some other numbers.
        if (0.0..=86_400.0).contains(&welcome.preempt_leave_secs) {
            self.state().leave = Duration::from_secs_f64(welcome.preempt_leave_secs);
        }
        tracing::info!(url = self.daemons.preferred_url(), "the daemon has accepted this agent");
        Ok((welcome, session))
    }

    async fn say_hello_to(&self, url: &str) -> Result<(AgentWelcome, DaemonSession), LinkError> {
        let job = Some(self.config.job);
        let to =
            addresses::host_and_port(url).ok_or_else(|| LinkError::Setup(format!("{url} is not a URL")))?;
        let hello = AgentHello {
            proof: BodyProof::default(),
            job: self.config.job,
            role: self.config.role,
            node: self.config.node.clone(),
            port: free_port(),
            running: Some(self.running.load(Ordering::Relaxed)).filter(|g| *g != NO_GENERATION),
            spec: self.config.spec.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            capabilities: CapabilitySet::from_iter([Capability::SealedSession]),
        };
        let route = routes::AGENT_HELLO;
        let body = serde_json::to_vec(&hello).map_err(|e| LinkError::Setup(e.to_string()))?;
        let order = request_digest(route, &body);
        let purpose = ProofPurpose { action: "hello", job, audience: &to, order: Some(&order) };
        let proof = self.config.identity.make_proof(&purpose).await?;
        let proof = proof.require_private_channel(self.daemons.urls())?;
        let request = self.http.post(format!("{url}{route}")).timeout(ANSWER_TIMEOUT);
        let request = signed_session::attach_proof(request, &proof, &to)
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let answer = DaemonAnswer::fetch_answer(request, MAX_ANSWER).await;
        let answer = answer.map_err(|e| unreachable_error(url, error_causes::error_chain(&e)))?;
        // An answer that does not prove to be the daemon's counts as no answer, whatever it says.
        let session =
            DaemonSession::from_answer(self.config.identity.as_ref(), &proof, job, route, &answer).await;
        let session = session
            .map_err(|e| unreachable_error(url, signed_session::describe_unproved_answer(&e, &answer)))?;
        Ok((read_answer(url, &answer)?, session))
    }

    async fn forget_if_unknown<T>(&self, answer: &Result<T, LinkError>, epoch: u64) {
        if matches!(answer, Err(LinkError::Unauthorized(_))) {
            let mut state = self.session_state.lock().await;
            if state.epoch == epoch {
                state.session = None;
            }
        }
    }

    /// Asks the daemon that answered last; if it does not answer, each of the others in turn.
    async fn send_to_any<A: DeserializeOwned>(
        &self,
        route: &str,
        session: &DaemonSession,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<A, LinkError> {
        let body = serde_json::to_vec(body).map_err(|e| LinkError::Setup(e.to_string()))?;
        let mut result = Err(LinkError::Setup(String::new()));
        for (number, url) in self.daemons.in_preferred_order() {
            result = self.send_to_url(url, route, session, &body, wait).await;
            if !matches!(result, Err(LinkError::Unreachable { .. })) {
                self.daemons.record_answer(number);
                break;
            }
        }
        match &result {
            Ok(_) => self.record_back(),
            // A session that the daemon has forgotten is replaced at once. The daemon is not away.
            Err(LinkError::Unauthorized(_)) if session.has_answered() => {}
            Err(error) => self.record_away(error),
        }
        result
    }

    async fn send_to_url<A: DeserializeOwned>(
        &self,
        url: &str,
        route: &str,
        session: &DaemonSession,
        body: &[u8],
        wait: Duration,
    ) -> Result<A, LinkError> {
        let request = self.http.post(format!("{url}{route}")).timeout(wait);
        let (request, counter) = session.sign_request(request, route, body);
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_vec());
        let answer = DaemonAnswer::fetch_answer(request, MAX_ANSWER).await;
        let answer = answer.map_err(|e| unreachable_error(url, error_causes::error_chain(&e)))?;
        match session.verify_answer(&answer, route, counter) {
            Ok(()) => read_answer(url, &answer),
            // A daemon that has restarted does not know the session. Anyone could send this answer, but we
            // only send a hello then.
            Err(_) if answer.status == StatusCode::UNAUTHORIZED => {
                Err(LinkError::Unauthorized("it does not know the session".to_owned()))
            }
            Err(e) => Err(unreachable_error(url, signed_session::describe_unproved_answer(&e, &answer))),
        }
    }

    fn record_away(&self, error: &dyn std::error::Error) {
        let mut state = self.state();
        if state.away_since.is_none() {
            state.away_since = Some(Instant::now());
            tracing::warn!(
                error = error_causes::error_chain(error),
                "the daemon does not answer; going on, and trying again"
            );
        }
    }

    fn record_back(&self) {
        if let Some(since) = self.state().away_since.take() {
            tracing::info!(away_secs = since.elapsed().as_secs(), "the daemon is back");
        }
    }
}

fn read_answer<A: DeserializeOwned>(url: &str, answer: &DaemonAnswer) -> Result<A, LinkError> {
    let status = answer.status;
    let body = answer.body.as_slice();
    if status.is_success() {
        // An answer without content counts as `null`.
        let body = if body.is_empty() { b"null".as_slice() } else { body };
        return serde_json::from_slice(body)
            .map_err(|e| unreachable_error(url, format!("unreadable answer: {e}")));
    }
    let reason = serde_json::from_slice::<ErrorBody>(body).map(|e| e.error).unwrap_or_default();
    match status {
        StatusCode::UNAUTHORIZED => Err(LinkError::Unauthorized(reason)),
        // A request that this daemon does not serve may be for the next.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::MISDIRECTED_REQUEST => {
            Err(unreachable_error(url, format!("{status}: {reason}")))
        }
        _ if status.is_client_error() => Err(LinkError::Refused { status: status.as_u16(), what: reason }),
        _ => Err(unreachable_error(url, format!("{status}: {reason}"))),
    }
}

fn unreachable_error(url: &str, what: String) -> LinkError {
    LinkError::Unreachable { url: url.to_owned(), what }
}

/// Growing pauses between attempts.
pub(crate) struct Backoff(Duration);

impl Backoff {
    /// Starts with the shortest pause.
    pub fn new() -> Backoff {
        Backoff(BACKOFF_RANGE.0)
    }

    /// The next pause. It doubles each time, and is scattered so that a thousand agents don't come back at
    /// once.
    pub fn next_pause(&mut self) -> Duration {
        let mut byte = [0u8];
        // Without random bytes there is just no scatter.
        getrandom::fill(&mut byte).ok();
        let pause = self.0.mul_f64(0.75 + f64::from(byte[0]) / 1024.0);
        self.0 = (self.0 * 2).min(BACKOFF_RANGE.1);
        pause
    }

    /// Starts again with the shortest pause, after a success.
    pub fn reset(&mut self) {
        self.0 = BACKOFF_RANGE.0;
    }
}
