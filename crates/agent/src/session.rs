//! Our side of a session with a daemon that proves itself (`infill_api::seal`), for agents and the command
//! line.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reqwest::{RequestBuilder, StatusCode};

use infill_api::{
    headers,
    seal::{OpenSession, Seal, SessionKey, read_seal},
};
use infill_model::{Credential, JobId, error_causes};

use super::identity::{Identity, IdentityError, Proof};

/// Why an answer is not believed to be the daemon's.
#[derive(Debug, thiserror::Error)]
pub enum Unproved {
    /// It brings no session, though we have shown a proof.
    #[error("it does not prove that it is infill's daemon: it is older than this program, or something else")]
    NoSeal,
    /// What it brings is not the daemon's, or not for us.
    #[error("it does not prove that it is infill's daemon")]
    Seal(#[from] IdentityError),
    /// The session answers another proof.
    #[error("it does not prove that it is infill's daemon: its answer is to another proof")]
    Other,
    /// Somebody has made it, or altered it on its way.
    #[error("it does not prove that it is infill's daemon: the answer is not whole, or another's")]
    Mac,
}

/// A whole answer, believed or not.
#[derive(Clone, Debug)]
pub struct Answered {
    /// HTTP status.
    pub status: StatusCode,
    /// Body.
    pub body: Vec<u8>,
    /// [`headers::SEAL`].
    seal: Option<String>,
    /// [`headers::MAC`].
    mac: Option<String>,
}

impl Answered {
    /// Sends a request and reads the answer, of at most so many bytes.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub async fn to(request: RequestBuilder, most: usize) -> Result<Answered, AnswerError> {
        let mut response = request.send().await?;
        let text = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let (status, seal, mac) = (response.status(), text(headers::SEAL), text(headers::MAC));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > most {
                return Err(AnswerError::Long(most));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answered { status, body, seal, mac })
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// No connection, or no answer in time.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// Nothing of infill's is that long.
    #[error("the answer has more than {0} bytes")]
    Long(usize),
}

/// A session with a daemon that has proved itself.
#[derive(Debug)]
pub struct Session {
    name: String,
    key: SessionKey,
    /// Number of the last request.
    last: AtomicU64,
    /// Whether a request was answered by the daemon.
    has_answered: AtomicBool,
}

impl Session {
    /// The session that an answer to this proof brings, which proves the answer as well.
    ///
    /// # Errors
    /// When it is not the daemon who answers.
    pub async fn opened(
        identity: &dyn Identity,
        proof: &Proof,
        job: Option<JobId>,
        (route, answer): (&str, &Answered),
    ) -> Result<Session, Unproved> {
        let seal = answer.seal.as_deref().and_then(Seal::from_header).ok_or(Unproved::NoSeal)?;
        let payload = match (seal, &proof.credential) {
            (Seal::Munge(sealed), _) => identity.open(&sealed).await?,
            (Seal::Open(payload), Credential::Jwt(_)) => payload,
            // Whoever asks with MUNGE is answered with MUNGE.
            (Seal::Open(_), Credential::Munge(_)) => return Err(Unproved::NoSeal),
        };
        let opened = read_seal(&payload, job, &proof.nonce).ok_or(Unproved::Other)?;
        let OpenSession { session: name, key } = opened;
        let session = Session { name, key, last: AtomicU64::new(0), has_answered: AtomicBool::new(false) };
        session.check(answer, route, 0)?;
        Ok(session)
    }

    /// Puts on a request with this body what proves it. Returns its number, too.
    pub fn prove(&self, request: RequestBuilder, route: &str, body: &[u8]) -> (RequestBuilder, u64) {
        let counter = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mac = self.key.of_request(route, counter, body);
        let request = request.header(headers::SESSION, &self.name).header(headers::COUNTER, counter);
        (request.header(headers::MAC, mac), counter)
    }

    /// Whether this is the daemon's answer to the request of this number.
    ///
    /// # Errors
    /// [`Unproved::Mac`].
    pub fn check(&self, answer: &Answered, route: &str, counter: u64) -> Result<(), Unproved> {
        let Answered { status, body, mac, .. } = answer;
        let mac = mac.as_deref().unwrap_or_default();
        let whole = self.key.is_answer(mac, route, counter, status.as_u16(), body);
        if whole && counter > 0 {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        whole.then_some(()).ok_or(Unproved::Mac)
    }

    /// Whether the daemon has answered any request of this session, after the proof that opened it.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }
}

/// Puts a proof on a request in headers: of those who have no other place for it, for the daemon `to`.
pub fn show(request: RequestBuilder, proof: &Proof, to: &str) -> RequestBuilder {
    use reqwest::header::{AUTHORIZATION, HeaderValue};
    let (scheme, secret) = match &proof.credential {
        Credential::Munge(secret) => (headers::MUNGE_SCHEME, secret),
        Credential::Jwt(secret) => (headers::JWT_SCHEME, secret),
    };
    // What is no header's value is no credential either: the daemon asks for one then.
    let Ok(mut value) = HeaderValue::from_str(&format!("{scheme} {}", secret.0)) else { return request };
    value.set_sensitive(true);
    request.header(AUTHORIZATION, value).header(headers::NONCE, &proof.nonce).header(headers::TO, to)
}

/// Longest text of another's that is printed, characters.
const MAX_PRINTED: usize = 500;

/// What somebody says, fit for a terminal.
pub fn printable(said: &str) -> String {
    said.chars().filter(|c| !c.is_control() || *c == '\n').take(MAX_PRINTED).collect()
}

/// The whole chain of reasons why an answer is not believed, and what it says.
pub fn doubt(why: &Unproved, answer: &Answered) -> String {
    let said = serde_json::from_slice::<infill_api::ErrorBody>(&answer.body).map(|e| e.error);
    let said = printable(&said.unwrap_or_default());
    let status = answer.status.as_u16();
    let chain = error_causes::error_chain(why);
    if said.is_empty() {
        format!("{chain} (it answers {status})")
    } else {
        format!("{chain} (it answers {status}: {said})")
    }
}
