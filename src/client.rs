//! The command line's side of the daemon's HTTP API.

use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::pass::{self, NoProof, Pass, Passes};
use infill_agent::{
    http_client::{CaError, http_client},
    identity::{IdentityError, Proof},
};
use infill_api::{ErrorBody, addresses::Addresses, daemon_urls, headers};
use infill_model::{Secret, causes::innermost};
use infill_present::exit::{Exit, Failure};

/// Time to reach the daemon: it is on the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
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
    NoProof(#[from] NoProof),
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
    pub fn exit(&self) -> Exit {
        match self {
            ClientError::Unreachable { .. } => Exit::Unreachable,
            ClientError::Denied(_) | ClientError::Unproved(_) | ClientError::NoProof(_) => Exit::Denied,
            ClientError::NotFound(_) => Exit::NotFound,
            ClientError::Status { .. } | ClientError::Garbled { .. } => Exit::Failed,
            ClientError::Url { .. } => Exit::Usage,
            ClientError::Ca(_) => Exit::Config,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        error.exit().because(error)
    }
}

/// A daemon, or several of which one leads.
pub struct Client {
    daemons: Addresses,
    http: reqwest::Client,
    passes: Mutex<Passes>,
}

impl Client {
    /// Speaks to the daemon at `url`; of several, separated by commas, to the first that answers for all.
    /// `ca` is `agent.ca`.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Client, ClientError> {
        let bad = |what: String| ClientError::Url { url: url.to_owned(), what };
        let urls = daemon_urls(url);
        for url in &urls {
            let parsed = reqwest::Url::parse(url).map_err(|e| bad(e.to_string()))?;
            if !matches!(parsed.scheme(), "http" | "https") {
                return Err(bad("expected http:// or https://".to_owned()));
            }
        }
        let daemons = Addresses::new(urls).ok_or_else(|| bad("it is empty".to_owned()))?;
        let http = http_client(CONNECT_TIMEOUT, ca)?
            .timeout(ANSWER_TIMEOUT)
            .user_agent(concat!("infill/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| bad(innermost(&e)))?;
        Ok(Client { daemons, http, passes: Mutex::default() })
    }

    /// The URL of the daemon that answered last.
    pub fn answering(&self) -> &str {
        self.daemons.url()
    }

    /// The daemons' URLs.
    pub fn url(&self) -> String {
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
        let mut passes = self.passes.lock().await;
        let mut pass = passes.first().await;
        let read =
            async |pass: &Pass| self.answer(path, |url| pass.on(self.http.get(url).query(query))).await;
        let mut answer = read(&pass).await;
        // A ticket that has lapsed is replaced, and then who asks is believed or not.
        while let Err(ClientError::Unproved(_)) = &answer {
            let Some(next) = passes.after(&pass, self.daemons.urls()).await? else { break };
            answer = read(&next).await;
            pass = next;
        }
        let Answer { body, ticket } = answer?;
        passes.keep(ticket);
        self.document(path, &body)
    }

    /// Proof of who gives an order.
    ///
    /// # Errors
    /// When there is neither MUNGE nor a token.
    pub async fn prove(&self, purpose: &str) -> Result<Proof, IdentityError> {
        pass::prove(purpose, self.daemons.urls()).await
    }

    /// Posts an order; the answer's body is of no interest.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
        self.answer(path, |url| self.http.post(url).json(body)).await.map(drop)
    }

    /// Posts a request; returns the answer.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let answer = self.answer(path, |url| self.http.post(url).json(body)).await?;
        self.document(path, &answer.body)
    }

    fn document<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|e| ClientError::Garbled {
            url: self.url(),
            path: path.to_owned(),
            what: e.to_string(),
        })
    }

    /// Asks one daemon after the other until one neither is away nor stands by. If all do, what the first
    /// says counts that says anything.
    async fn answer(
        &self,
        path: &str,
        request: impl Fn(String) -> reqwest::RequestBuilder,
    ) -> Result<Answer, ClientError> {
        let mut failure: Option<ClientError> = None;
        for (number, url) in self.daemons.in_turn() {
            match answer_of(url, path, request(format!("{url}{path}"))).await {
                Err(e @ (ClientError::Unreachable { .. } | ClientError::Status { status: 503, .. })) => {
                    let silent = matches!(failure, None | Some(ClientError::Unreachable { .. }));
                    failure = if silent { Some(e) } else { failure };
                }
                answer => {
                    self.daemons.answered(number);
                    return answer;
                }
            }
        }
        let none = || ClientError::Url { url: self.url(), what: "it names no daemon".to_owned() };
        Err(failure.unwrap_or_else(none))
    }
}

/// What a daemon answered.
struct Answer {
    body: Vec<u8>,
    ticket: Option<Secret>,
}

async fn answer_of(url: &str, path: &str, request: reqwest::RequestBuilder) -> Result<Answer, ClientError> {
    let unreachable = |e: reqwest::Error| ClientError::Unreachable { url: url.to_owned(), why: why(&e) };
    let answer = request.send().await.map_err(unreachable)?;
    let status = answer.status();
    let ticket = answer.headers().get(headers::TICKET).and_then(|v| v.to_str().ok());
    let ticket = ticket.map(|t| Secret(t.to_owned()));
    let bytes = answer.bytes().await.map_err(unreachable)?;
    let answer = Answer { body: bytes.to_vec(), ticket };
    if status.is_success() { Ok(answer) } else { Err(refusal(status, path, &bytes)) }
}

fn refusal(status: StatusCode, path: &str, body: &[u8]) -> ClientError {
    let what = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => body.error,
        Err(_) => status.canonical_reason().unwrap_or("no reason given").to_owned(),
    };
    match status {
        StatusCode::UNAUTHORIZED => ClientError::Unproved(what),
        StatusCode::FORBIDDEN => ClientError::Denied(what),
        StatusCode::NOT_FOUND => ClientError::NotFound(what),
        _ => ClientError::Status { status: status.as_u16(), path: path.to_owned(), what },
    }
}

fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() { "no answer in time".to_owned() } else { innermost(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_api::routes;

    #[test]
    fn a_status_becomes_an_exit_code() {
        let exit = |status: u16| refusal(StatusCode::from_u16(status).unwrap(), "/v1/x", b"").exit();
        assert_eq!(
            [401, 403, 404, 500].map(exit),
            [Exit::Denied, Exit::Denied, Exit::NotFound, Exit::Failed]
        );
    }

    #[test]
    fn what_the_daemon_said_is_kept() {
        let error = refusal(StatusCode::FORBIDDEN, routes::CONTROL, br#"{"error":"bob is no admin"}"#);
        assert_eq!(error.to_string(), "the daemon refused: bob is no admin");
    }

    #[test]
    fn what_is_no_url_is_wrong_usage() {
        for url in ["", ",", "localhost:6810", "ftp://x", "http://a,ftp://x"] {
            assert_eq!(Client::new(url, None).err().map(|e| e.exit()), Some(Exit::Usage), "{url}");
        }
    }

    /// Answers every request with this status and body.
    async fn daemon(status: u16, body: &'static str) -> String {
        let answer = (StatusCode::from_u16(status).unwrap(), body);
        let app = axum::Router::new().fallback(move || async move { answer });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        url
    }

    #[tokio::test]
    async fn of_several_daemons_the_one_that_leads_answers() {
        let (away, standby) = ("http://127.0.0.1:1", daemon(503, r#"{"error":"on standby"}"#).await);
        let leader = daemon(200, "7").await;
        let ask = async |urls: String| Client::new(&urls, None).unwrap().get::<u32>("/v1/x").await;
        assert_eq!(ask(format!("{away}, {standby}/,{leader}")).await.unwrap(), 7);
        let error = ask(format!("{away},{standby},{away}")).await.unwrap_err();
        assert!(error.to_string().contains("on standby"), "{error}");
        let denied = daemon(403, "").await;
        assert_eq!(ask(format!("{denied},{leader}")).await.unwrap_err().exit(), Exit::Denied);
    }

    #[tokio::test]
    async fn an_absent_daemon_is_named_with_what_to_do() {
        // A port that was bound and is free again: nobody listens there.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = Client::new(&format!("http://127.0.0.1:{port}/"), None).unwrap();
        let error = client.get::<serde_json::Value>(routes::STATUS).await.unwrap_err();
        assert_eq!(error.exit(), Exit::Unreachable);
        let text = error.to_string();
        assert!(
            text.contains(&format!("http://127.0.0.1:{port}: ")) && text.contains("INFILL_URL"),
            "{text}"
        );
    }
}
