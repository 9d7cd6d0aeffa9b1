//! The client of the daemon's HTTP API.

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
    signed_session::{
        self, AnswerError, DaemonAnswer, DaemonSession, UnprovedAnswer, describe_unproved_answer,
    },
};
use infill_api::{
    ErrorBody,
    addresses::{DaemonAddresses, host_and_port},
    daemon_urls, routes,
    seal::request_digest,
};
use infill_model::error_causes::{error_chain, innermost_cause};
use infill_present::exit::{CommandFailure, ProgramExit};

/// The time limit for a connection: the daemon is on the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer, in bytes. An answer for a day of a large cluster has some megabytes.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// The health of a daemon on standby.
const STANDBY_HEALTH: &[u8] = b"standby\n";
/// The body with which this client replaces that health, because such a daemon takes no orders.
const STANDBY_REFUSAL: &[u8] = br#"{"error":"this daemon is on standby: another one leads"}"#;
/// The time limit for a whole answer. `GET /v1/plan` reads Slurm and solves before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no usable answer from the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection, or no answer in time.
    #[error(
        "cannot reach the daemon at {url}: {why}\n\
         Is `infill serve` running there? Set its URL with --url, INFILL_URL or agent.url in the configuration."
    )]
    Unreachable {
        /// The daemon's URL.
        url: String,
        /// The cause, as a sentence.
        why: String,
    },
    /// Status 401: the daemon does not accept the proof of identity.
    #[error(
        "the daemon cannot verify who you are: {0}\n\
         MUNGE needs munged on both machines, with the same key and clocks that agree. A Slurm token needs a \
         slurmrestd that the daemon reaches over HTTP. The daemon's log says more. If neither is available, \
         the administrator can set http.read = \"open\"."
    )]
    Unproved(String),
    /// The caller has no means to prove its identity to read.
    #[error(transparent)]
    NoProof(#[from] MissingProof),
    /// The caller has no means to prove its identity for an order.
    #[error("{}", describe_missing_proof(.0))]
    NoOrder(IdentityError),
    /// Something answers that does not prove to be the daemon.
    #[error(
        "the answer from {url} does not prove that it comes from infill's daemon, so it is ignored\n  \
         {why}\n\
         The daemon may be older than this command (upgrade the daemon first), run as another user than \
         agent.daemon_user, or lack munged. Otherwise another program listens at its port: tell the administrator."
    )]
    Impostor {
        /// The URL that answered.
        url: String,
        /// What is wrong with the proof, and the text of the answer.
        why: String,
    },
    /// An order that cannot be written as JSON.
    #[error("the order cannot be written: {0}")]
    Order(String),
    /// The certificates of `agent.ca` cannot be used.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// Status 403.
    #[error("the daemon refused: {0}")]
    Denied(String),
    /// Status 404.
    #[error("{0}")]
    NotFound(String),
    /// Any other status.
    #[error("the daemon answered {status} to {path}: {what}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The path of the request.
        path: String,
        /// The daemon's message, or the status in words.
        what: String,
    },
    /// An answer that is not the expected document.
    #[error("the answer from {url}{path} is not the expected document: {what}")]
    Garbled {
        /// The daemon's URL.
        url: String,
        /// The path of the request.
        path: String,
        /// The parser's message.
        what: String,
    },
    /// A URL that cannot be used.
    #[error("{url:?} is not a URL of a daemon: {what}")]
    Url {
        /// The URL as the user gave it.
        url: String,
        /// What is wrong with it.
        what: String,
    },
}

impl ClientError {
    /// The exit code of the program for this error.
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

/// Why an order cannot be given, and what helps.
fn describe_missing_proof(why: &IdentityError) -> String {
    let why_text = error_chain(why);
    if matches!(why, IdentityError::PlainTextToken { .. }) {
        return why_text;
    }
    // A token is tried only where there is no MUNGE, or Slurm does without it.
    let without_munge = match why {
        IdentityError::Start { program, .. } | IdentityError::Failed { program, .. } => {
            program.contains("scontrol")
        }
        _ => false,
    };
    let tried = if without_munge { "there is no MUNGE, and no Slurm token: " } else { "" };
    format!(
        "the daemon takes this only from those who prove who they are, and no proof is available here:\n  \
         {tried}{why_text}\n\
         Start munged on this machine. Where Slurm does without MUNGE, users must be able to run `scontrol token`."
    )
}

impl From<IdentityError> for ClientError {
    fn from(why: IdentityError) -> Self {
        ClientError::NoOrder(why)
    }
}

impl From<ClientError> for CommandFailure {
    fn from(error: ClientError) -> Self {
        error.exit_code().caused_by(error)
    }
}

/// A client of one daemon, or of several daemons, one of them the leader.
pub struct DaemonClient {
    daemons: DaemonAddresses,
    http: reqwest::Client,
    proofs: Mutex<ProofProvider>,
}

/// What a daemon's URL looks like.
const EXPECTED_URL: &str = "expected http://HOST:PORT or https://HOST:PORT";

/// An error about a text that is no URL.
fn unreadable_url(url: &str, why: &impl std::fmt::Display) -> ClientError {
    let has_scheme = url.contains("://");
    url_error(url, if has_scheme { format!("{why}; {EXPECTED_URL}") } else { EXPECTED_URL.to_owned() })
}

/// An error about the URL that the user gave.
fn url_error(url: &str, what: impl Into<String>) -> ClientError {
    ClientError::Url { url: url.to_owned(), what: what.into() }
}

impl DaemonClient {
    /// A client of the daemon at `url`. If `url` names several, separated by commas, the first one that leads
    /// answers. `identity` proves who the caller is and verifies the daemon; `ca` is `agent.ca`.
    ///
    /// # Errors
    /// When a URL cannot be used or the certificates cannot be read.
    pub fn new(url: &str, identity: SlurmIdentity, ca: Option<&Path>) -> Result<DaemonClient, ClientError> {
        let urls = daemon_urls(url);
        for daemon_url in &urls {
            let parsed = reqwest::Url::parse(daemon_url).map_err(|e| unreadable_url(url, &e))?;
            if !matches!(parsed.scheme(), "http" | "https") {
                return Err(url_error(url, EXPECTED_URL));
            }
        }
        let daemons = DaemonAddresses::new(urls).ok_or_else(|| url_error(url, "it is empty"))?;
        let http = http_client(CONNECT_TIMEOUT, ca)?
            .timeout(ANSWER_TIMEOUT)
            .user_agent(concat!("infill/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| url_error(url, innermost_cause(&e)))?;
        Ok(DaemonClient { daemons, http, proofs: Mutex::new(ProofProvider::new(identity)) })
    }

    /// The URL of the daemon that answered last.
    pub fn answering_url(&self) -> &str {
        self.daemons.preferred_url()
    }

    /// The daemons' URLs, separated by commas.
    pub fn joined_urls(&self) -> String {
        self.daemons.urls().join(",")
    }

    /// Gets the document at a path.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.get_with(path, &()).await
    }

    /// Gets the document at a path. The fields of `query` choose its contents; absent ones are not sent.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get_with<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        let proofs = &mut *self.proofs.lock().await;
        let body = self.ask_any_daemon(async |url| self.read_from(proofs, url, path, query).await).await?;
        self.parse_document(path, &body)
    }

    /// The body of one daemon's answer to a reader. The answer must be proved, except without MUNGE where
    /// everyone may read.
    async fn read_from(
        &self,
        proofs: &mut ProofProvider,
        url: &str,
        path: &str,
        query: &impl Serialize,
    ) -> Result<Vec<u8>, ClientError> {
        let mut proof_kind = proofs.first_proof(url).await;
        loop {
            let request = self.http.get(format!("{url}{path}")).query(query);
            let route = request_route(url, &request)?;
            let answer = match &proof_kind {
                RequestProof::Nothing => answer_body(path, self.fetch_answer(url, request).await?),
                RequestProof::Session(session) => {
                    let (request, counter) = session.sign_request(request, &route, b"");
                    let answer = self.fetch_answer(url, request).await?;
                    proved_answer(url, path, answer, |answer| session.verify_answer(answer, &route, counter))
                }
                RequestProof::Proof(proof) => {
                    let to = host_and_port(url).unwrap_or_default();
                    let answer =
                        self.fetch_answer(url, signed_session::attach_proof(request, proof, &to)).await?;
                    let opened =
                        DaemonSession::from_answer(proofs.slurm_identity(), proof, None, &route, &answer)
                            .await;
                    let opened = opened.map(|session| proofs.keep_session(url, session));
                    proved_answer(url, path, answer, |_| opened)
                }
            };
            // The session may have lapsed. The next proof replaces it, and decides.
            let Err(ClientError::Unproved(_)) = &answer else { return answer };
            let Some(next) = proofs.next_proof(&proof_kind, url).await? else { return answer };
            proof_kind = next;
        }
    }

    /// Gives an order and drops the answer's body.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send_order(
        &self,
        purpose: &str,
        path: &str,
        order: &impl Serialize,
    ) -> Result<(), ClientError> {
        self.answer_to_order(purpose, path, order).await.map(drop)
    }

    /// Gives an order and returns the answer.
    ///
    /// # Errors
    /// See [`ClientError`].
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
        let proofs = &*self.proofs.lock().await;
        let body = serde_json::to_vec(order).map_err(|e| ClientError::Order(e.to_string()))?;
        self.ask_any_daemon(async |url| {
            self.prove_daemon(proofs, url).await?;
            let request = self.http.post(format!("{url}{path}"));
            let request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
            let route = request_route(url, &request)?;
            let proof = proofs.order_proof(purpose, url, &request_digest(&route, &body)).await?;
            let to = host_and_port(url).unwrap_or_default();
            let answer = self.fetch_answer(url, signed_session::attach_proof(request, &proof, &to)).await?;
            let opened =
                DaemonSession::from_answer(proofs.slurm_identity(), &proof, None, &route, &answer).await;
            proved_answer(url, path, answer, |_| opened.map(drop))
        })
        .await
    }

    /// Asks a daemon to prove itself before it gets an order: an impostor could deliver the order later.
    /// Without MUNGE no daemon can prove itself, and this check is skipped.
    async fn prove_daemon(&self, proofs: &ProofProvider, url: &str) -> Result<(), ClientError> {
        let proof = match proofs.health_proof(url).await {
            Ok(proof) => proof,
            Err(e) if proofs.slurm_identity().does_without_munge(&e).await => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let to = host_and_port(url).unwrap_or_default();
        let request = self.http.get(format!("{url}{}", routes::HEALTHZ));
        let answer = self.fetch_answer(url, signed_session::attach_proof(request, &proof, &to)).await?;
        // A daemon on standby has no session to give. It needs no proof, because the next daemon is asked.
        if answer.status.is_success() && answer.body == STANDBY_HEALTH {
            return Err(refusal_error(StatusCode::SERVICE_UNAVAILABLE, routes::HEALTHZ, STANDBY_REFUSAL));
        }
        match DaemonSession::from_answer(proofs.slurm_identity(), &proof, None, routes::HEALTHZ, &answer)
            .await
        {
            // It has proved itself, but will not take the order.
            Ok(_) if matches!(answer.status.as_u16(), 401 | 421) => {
                Err(refusal_error(answer.status, routes::HEALTHZ, &answer.body))
            }
            Ok(_) => Ok(()),
            Err(why) => Err(ClientError::Impostor {
                url: url.to_owned(),
                why: describe_unproved_answer(&why, &answer),
            }),
        }
    }

    fn parse_document<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|e| ClientError::Garbled {
            url: self.joined_urls(),
            path: path.to_owned(),
            what: e.to_string(),
        })
    }

    /// Asks one daemon after the other until one is reachable and not on standby. If there is none, returns
    /// the first failure that is an answer, else the last one.
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
                    if matches!(failure, None | Some(ClientError::Unreachable { .. })) {
                        failure = Some(e);
                    }
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
        DaemonAnswer::fetch_answer(request, MAX_ANSWER)
            .await
            .map_err(|e| ClientError::Unreachable { url: url.to_owned(), why: answer_error_text(&e) })
    }
}

/// Path and query of a request as the daemon sees them: a proxy removes its own path from the front.
fn request_route(url: &str, request: &RequestBuilder) -> Result<String, ClientError> {
    let request = request.try_clone().ok_or_else(|| url_error(url, "the request cannot be repeated"))?;
    let request = request.build().map_err(|e| url_error(url, innermost_cause(&e)))?;
    let base = reqwest::Url::parse(url).map_err(|e| url_error(url, e.to_string()))?;
    let path = request.url().path().strip_prefix(base.path().trim_end_matches('/')).unwrap_or_default();
    Ok(match request.url().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    })
}

/// The body of an answer whose status is a success.
fn answer_body(path: &str, answer: DaemonAnswer) -> Result<Vec<u8>, ClientError> {
    if answer.status.is_success() {
        Ok(answer.body)
    } else {
        Err(refusal_error(answer.status, path, &answer.body))
    }
}

/// The body of an answer that must be proved. An answer without proof may still say, by its status alone,
/// that the client should ask again or ask another daemon.
fn proved_answer(
    url: &str,
    path: &str,
    answer: DaemonAnswer,
    check: impl FnOnce(&DaemonAnswer) -> Result<(), UnprovedAnswer>,
) -> Result<Vec<u8>, ClientError> {
    match check(&answer) {
        Ok(()) => answer_body(path, answer),
        Err(_) if matches!(answer.status.as_u16(), 401 | 503) => Err(refusal_error(answer.status, path, b"")),
        Err(why) => {
            Err(ClientError::Impostor { url: url.to_owned(), why: describe_unproved_answer(&why, &answer) })
        }
    }
}

fn refusal_error(status: StatusCode, path: &str, body: &[u8]) -> ClientError {
    let what = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => signed_session::printable_text(&body.error),
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
