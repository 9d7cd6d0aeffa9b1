//! The command line's side of the daemon's HTTP API.

use std::path::Path;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::proofs::{MissingProof, ProofProvider, RequestProof};
use infill_agent::{
    http_client::{CaError, http_client},
    identity::{IdentityError, SlurmIdentity},
    session::{self, AnswerError, DaemonAnswer, DaemonSession, UnprovedAnswer, describe_doubt},
};
use infill_api::{
    ErrorBody,
    addresses::{DaemonAddresses, host_and_port},
    daemon_urls, routes,
    seal::request_digest,
};
use infill_model::error_causes::{error_chain, innermost_cause};
use infill_present::exit::{CommandFailure, ProgramExit};

/// Time to reach the daemon: it is on the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer, bytes. That of a day of a large cluster has some megabytes.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// What a daemon says of its health that stands by, and why it takes no orders.
const STANDBY_HEALTH: &[u8] = b"standby\n";
const STANDBY_REFUSAL: &[u8] = br#"{"error":"this daemon is on standby: another one leads"}"#;
/// Time for a whole answer; `GET /v1/plan` reads Slurm and solves before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the daemon gave no answer that we can use.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection, or no answer in time.
    #[error(
        "cannot reach the daemon at {url}: {why}\n\
         Is `infill serve` running there? Name its URL by --url, INFILL_URL or agent.url in the configuration."
    )]
    Unreachable {
        /// The daemon's URL.
        url: String,
        /// Why, in words.
        why: String,
    },
    /// 401.
    #[error(
        "the daemon does not believe who asks: {0}\n\
         MUNGE needs munged on both machines, with one key and clocks that agree; a token of Slurm's needs a \
         slurmrestd that the daemon reaches over HTTP. The daemon's log says more. Where neither is to be had, \
         the administrator sets http.read = \"open\"."
    )]
    Unproved(String),
    /// There is nothing to prove it with.
    #[error(transparent)]
    NoProof(#[from] MissingProof),
    /// Neither is there for an order.
    #[error("cannot prove to the daemon who gives the order (is munged running here?): {}", error_chain(.0))]
    NoOrder(#[from] IdentityError),
    /// Somebody answers, and does not prove to be the daemon.
    #[error(
        "what answers at {url} does not prove that it is infill's daemon; nothing that it says is believed\n  \
         {why}\n\
         It may be older than this command (upgrade the daemon first), run as another user than agent.daemon_user \
         says, or lack munged; else somebody else listens at its port, which the administrator should know."
    )]
    Impostor {
        /// The URL.
        url: String,
        /// What is wrong with its proof, and what it says.
        why: String,
    },
    /// An order that cannot be written.
    #[error("the order cannot be written: {0}")]
    Order(String),
    /// Its certificate cannot be checked.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// 403.
    #[error("the daemon refused: {0}")]
    Denied(String),
    /// 404.
    #[error("{0}")]
    NotFound(String),
    /// Any other status.
    #[error("the daemon answered {status} to {path}: {what}")]
    Status {
        /// HTTP status.
        status: u16,
        /// What was asked for.
        path: String,
        /// What it said.
        what: String,
    },
    /// An answer that is no such document.
    #[error("what {url}{path} answered is not infill's: {what}")]
    Garbled {
        /// The daemon's URL.
        url: String,
        /// What was asked for.
        path: String,
        /// Where it fails.
        what: String,
    },
    /// The URL itself.
    #[error("{url:?} is not a URL of a daemon: {what}")]
    Url {
        /// As given.
        url: String,
        /// Why.
        what: String,
    },
}

impl ClientError {
    /// The exit code that it ends in.
    pub fn exit_code(&self) -> ProgramExit {
        match self {
            ClientError::Unreachable { .. } => ProgramExit::Unreachable,
            ClientError::Denied(_)
            | ClientError::Unproved(_)
            | ClientError::NoProof(_)
            | ClientError::NoOrder(_)
            | ClientError::Impostor { .. } => ProgramExit::Denied,
            ClientError::NotFound(_) => ProgramExit::NotFound,
            ClientError::Status { .. } | ClientError::Garbled { .. } | ClientError::Order(_) => {
                ProgramExit::Failed
            }
            ClientError::Url { .. } => ProgramExit::Usage,
            ClientError::Ca(_) => ProgramExit::Config,
        }
    }
}

impl From<ClientError> for CommandFailure {
    fn from(error: ClientError) -> Self {
        error.exit_code().caused_by(error)
    }
}

/// A daemon, or several of which one leads.
pub struct DaemonClient {
    daemons: DaemonAddresses,
    http: reqwest::Client,
    passes: Mutex<ProofProvider>,
}

impl DaemonClient {
    /// Speaks to the daemon at `url`; of several, separated by commas, to the first that answers for all.
    /// `by` proves who we are, and knows the daemon; `ca` is `agent.ca`.
    pub fn new(url: &str, by: SlurmIdentity, ca: Option<&Path>) -> Result<DaemonClient, ClientError> {
        let bad = |what: String| ClientError::Url { url: url.to_owned(), what };
        let urls = daemon_urls(url);
        for url in &urls {
            let parsed = reqwest::Url::parse(url).map_err(|e| bad(e.to_string()))?;
            if !matches!(parsed.scheme(), "http" | "https") {
                return Err(bad("expected http:// or https://".to_owned()));
            }
        }
        let daemons = DaemonAddresses::new(urls).ok_or_else(|| bad("it is empty".to_owned()))?;
        let http = http_client(CONNECT_TIMEOUT, ca)?
            .timeout(ANSWER_TIMEOUT)
            .user_agent(concat!("infill/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| bad(innermost_cause(&e)))?;
        Ok(DaemonClient { daemons, http, passes: Mutex::new(ProofProvider::new(by)) })
    }

    /// The URL of the daemon that answered last.
    pub fn answering_url(&self) -> &str {
        self.daemons.preferred_url()
    }

    /// The daemons' URLs.
    pub fn joined_urls(&self) -> String {
        self.daemons.urls().join(",")
    }

    /// Gets a document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.get_with(path, &()).await
    }

    /// Gets a document; the fields of `query` that are there choose what it holds.
    pub async fn get_with<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        let passes = &mut *self.passes.lock().await;
        let body = self.ask_any_daemon(async |url| self.read_from(passes, url, path, query).await).await?;
        self.parse_document(path, &body)
    }

    /// What one daemon answers to a reader. What proves itself is believed; without MUNGE that may be
    /// nothing, where reading is open to everybody.
    async fn read_from(
        &self,
        passes: &mut ProofProvider,
        url: &str,
        path: &str,
        query: &impl Serialize,
    ) -> Result<Vec<u8>, ClientError> {
        let mut pass = passes.first_proof(url).await;
        loop {
            let request = self.http.get(format!("{url}{path}")).query(query);
            let route = request_route(url, &request)?;
            let answer = match &pass {
                RequestProof::Nothing => answer_body(path, self.fetch_answer(url, request).await?),
                RequestProof::Session(session) => {
                    let (request, counter) = session.sign_request(request, &route, b"");
                    let answer = self.fetch_answer(url, request).await?;
                    proved_answer(url, path, answer, |answer| session.verify_answer(answer, &route, counter))
                }
                RequestProof::Proof(proof) => {
                    let to = host_and_port(url).unwrap_or_default();
                    let answer = self.fetch_answer(url, session::attach_proof(request, proof, &to)).await?;
                    let opened =
                        DaemonSession::from_answer(passes.slurm_identity(), proof, None, (&route, &answer))
                            .await;
                    let opened = opened.map(|session| passes.keep_session(url, session));
                    proved_answer(url, path, answer, |_| opened)
                }
            };
            // A session that has lapsed is replaced, and then who asks is believed or not.
            let Err(ClientError::Unproved(_)) = &answer else { return answer };
            let Some(next) = passes.next_proof(&pass, url).await? else { return answer };
            pass = next;
        }
    }

    /// Gives an order; the answer's body is of no interest.
    pub async fn send_order(
        &self,
        purpose: &str,
        path: &str,
        order: &impl Serialize,
    ) -> Result<(), ClientError> {
        self.answer_to_order(purpose, path, order).await.map(drop)
    }

    /// Gives an order; returns the answer.
    pub async fn send_order_for_answer<T: DeserializeOwned>(
        &self,
        purpose: &str,
        path: &str,
        order: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = self.answer_to_order(purpose, path, order).await?;
        self.parse_document(path, &body)
    }

    async fn answer_to_order(
        &self,
        purpose: &str,
        path: &str,
        order: &impl Serialize,
    ) -> Result<Vec<u8>, ClientError> {
        let passes = &*self.passes.lock().await;
        let body = serde_json::to_vec(order).map_err(|e| ClientError::Order(e.to_string()))?;
        self.ask_any_daemon(async |url| {
            self.prove_daemon(passes, url).await?;
            let request = self.http.post(format!("{url}{path}"));
            let request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
            let route = request_route(url, &request)?;
            let proof = passes.order_proof(purpose, url, &request_digest(&route, &body)).await?;
            let to = host_and_port(url).unwrap_or_default();
            let answer = self.fetch_answer(url, session::attach_proof(request, &proof, &to)).await?;
            let opened =
                DaemonSession::from_answer(passes.slurm_identity(), &proof, None, (&route, &answer)).await;
            proved_answer(url, path, answer, |_| opened.map(drop))
        })
        .await
    }

    /// Asks a daemon to prove itself, for nobody else shall learn of an order, who could deliver it later.
    /// Without MUNGE none can.
    async fn prove_daemon(&self, passes: &ProofProvider, url: &str) -> Result<(), ClientError> {
        let proof = match passes.health_proof(url).await {
            Ok(proof) => proof,
            Err(e) if passes.slurm_identity().does_without_munge(&e).await => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let to = host_and_port(url).unwrap_or_default();
        let request = self.http.get(format!("{url}{}", routes::HEALTHZ));
        let answer = self.fetch_answer(url, session::attach_proof(request, &proof, &to)).await?;
        // One that stands by has no session to give; it leads nobody astray, for the next one is asked.
        if answer.status.is_success() && answer.body == STANDBY_HEALTH {
            return Err(refusal_error(StatusCode::SERVICE_UNAVAILABLE, routes::HEALTHZ, STANDBY_REFUSAL));
        }
        match DaemonSession::from_answer(passes.slurm_identity(), &proof, None, (routes::HEALTHZ, &answer))
            .await
        {
            // It has proved itself, and would not take the order.
            Ok(_) if matches!(answer.status.as_u16(), 401 | 421) => {
                Err(refusal_error(answer.status, routes::HEALTHZ, &answer.body))
            }
            Ok(_) => Ok(()),
            Err(why) => {
                Err(ClientError::Impostor { url: url.to_owned(), why: describe_doubt(&why, &answer) })
            }
        }
    }

    fn parse_document<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|e| ClientError::Garbled {
            url: self.joined_urls(),
            path: path.to_owned(),
            what: e.to_string(),
        })
    }

    /// Asks one daemon after the other until one neither is away nor stands by. If all do, what the first
    /// says counts that says anything.
    async fn ask_any_daemon(
        &self,
        mut ask: impl AsyncFnMut(&str) -> Result<Vec<u8>, ClientError>,
    ) -> Result<Vec<u8>, ClientError> {
        let mut failure: Option<ClientError> = None;
        for (number, url) in self.daemons.in_preferred_order() {
            match ask(url).await {
                Err(
                    e @ (ClientError::Unreachable { .. } | ClientError::Status { status: 421 | 503, .. }),
                ) => {
                    let silent = matches!(failure, None | Some(ClientError::Unreachable { .. }));
                    failure = if silent { Some(e) } else { failure };
                }
                answer => {
                    self.daemons.record_answer(number);
                    return answer;
                }
            }
        }
        Err(failure.unwrap_or_else(|| ClientError::Url {
            url: self.joined_urls(),
            what: "it names no daemon".to_owned(),
        }))
    }

    async fn fetch_answer(&self, url: &str, request: RequestBuilder) -> Result<DaemonAnswer, ClientError> {
        DaemonAnswer::fetch_answer(request, MAX_ANSWER).await.map_err(|e: AnswerError| {
            ClientError::Unreachable { url: url.to_owned(), why: answer_error_text(&e) }
        })
    }
}

/// Path and query of a request as the daemon sees them: a proxy takes its own path off the front.
fn request_route(url: &str, request: &RequestBuilder) -> Result<String, ClientError> {
    let bad = |what: String| ClientError::Url { url: url.to_owned(), what };
    let request = request.try_clone().ok_or_else(|| bad("it cannot be asked twice".to_owned()))?;
    let request = request.build().map_err(|e| bad(innermost_cause(&e)))?;
    let base = reqwest::Url::parse(url).map_err(|e| bad(e.to_string()))?;
    let path = request.url().path().strip_prefix(base.path().trim_end_matches('/')).unwrap_or_default();
    Ok(match request.url().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    })
}

/// What an answer says.
fn answer_body(path: &str, answer: DaemonAnswer) -> Result<Vec<u8>, ClientError> {
    if answer.status.is_success() {
        Ok(answer.body)
    } else {
        Err(refusal_error(answer.status, path, &answer.body))
    }
}

/// What an answer says that should be proved. Who does not prove itself may still say that we should ask
/// again, or somebody else.
fn proved_answer(
    url: &str,
    path: &str,
    answer: DaemonAnswer,
    check: impl FnOnce(&DaemonAnswer) -> Result<(), UnprovedAnswer>,
) -> Result<Vec<u8>, ClientError> {
    match check(&answer) {
        Ok(()) => answer_body(path, answer),
        Err(_) if matches!(answer.status.as_u16(), 401 | 503) => Err(refusal_error(answer.status, path, b"")),
        Err(why) => Err(ClientError::Impostor { url: url.to_owned(), why: describe_doubt(&why, &answer) }),
    }
}

fn refusal_error(status: StatusCode, path: &str, body: &[u8]) -> ClientError {
    let what = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => session::printable_text(&body.error),
        Err(_) => status.canonical_reason().unwrap_or("no reason given").to_owned(),
    };
    match status {
        StatusCode::UNAUTHORIZED => ClientError::Unproved(what),
        StatusCode::FORBIDDEN => ClientError::Denied(what),
        StatusCode::NOT_FOUND => ClientError::NotFound(what),
        _ => ClientError::Status { status: status.as_u16(), path: path.to_owned(), what },
    }
}

fn answer_error_text(error: &AnswerError) -> String {
    match error {
        AnswerError::Http(error) if error.is_timeout() => "no answer in time".to_owned(),
        error => innermost_cause(error),
    }
}

#[cfg(test)]
mod tests;
