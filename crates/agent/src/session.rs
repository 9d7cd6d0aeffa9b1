//! Our side of a session with a daemon that proves itself (`infill_api::seal`), for agents and the command
//! line.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reqwest::{RequestBuilder, StatusCode};

use infill_api::{
    headers,
    seal::{OpenSession, SessionKey, SessionSeal, parse_seal_payload},
};
use infill_model::{Credential, JobId, error_causes};

use super::identity::{IdentityError, IdentityProof, IdentityProvider};

/// Why an answer is not believed to be the daemon's.
#[derive(Debug, thiserror::Error)]
pub enum UnprovedAnswer {
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
pub struct DaemonAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// Body.
    pub body: Vec<u8>,
    /// [`headers::SEAL`].
    seal: Option<String>,
    /// [`headers::MAC`].
    mac: Option<String>,
}

impl DaemonAnswer {
    /// Sends a request and reads the answer, of at most so many bytes.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub async fn fetch_answer(request: RequestBuilder, most: usize) -> Result<DaemonAnswer, AnswerError> {
        let mut response = request.send().await?;
        let text = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let status = response.status();
        let seal = text(headers::SEAL);
        let mac = text(headers::MAC);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > most {
                return Err(AnswerError::Long(most));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(DaemonAnswer { status, body, seal, mac })
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
pub struct DaemonSession {
    name: String,
    key: SessionKey,
    /// Number of the last request.
    last: AtomicU64,
    /// Whether a request was answered by the daemon.
    has_answered: AtomicBool,
}

impl DaemonSession {
    /// The session that an answer to this proof brings, which proves the answer as well.
    ///
    /// # Errors
    /// When it is not the daemon who answers.
    pub async fn from_answer(
        identity: &dyn IdentityProvider,
        proof: &IdentityProof,
        job: Option<JobId>,
        (route, answer): (&str, &DaemonAnswer),
    ) -> Result<DaemonSession, UnprovedAnswer> {
        let seal = answer.seal.as_deref().and_then(SessionSeal::from_header).ok_or(UnprovedAnswer::NoSeal)?;
        let payload = match (seal, &proof.credential) {
            (SessionSeal::Munge(sealed), _) => identity.open_sealed(&sealed).await?,
            (SessionSeal::Open(payload), Credential::Jwt(_)) => payload,
            // Whoever asks with MUNGE is answered with MUNGE.
            (SessionSeal::Open(_), Credential::Munge(_)) => return Err(UnprovedAnswer::NoSeal),
        };
        let opened = parse_seal_payload(&payload, job, &proof.nonce).ok_or(UnprovedAnswer::Other)?;
        let OpenSession { session: name, key } = opened;
        let session =
            DaemonSession { name, key, last: AtomicU64::new(0), has_answered: AtomicBool::new(false) };
        session.verify_answer(answer, route, 0)?;
        Ok(session)
    }

    /// Puts on a request with this body what proves it. Returns its number, too.
    pub fn sign_request(&self, request: RequestBuilder, route: &str, body: &[u8]) -> (RequestBuilder, u64) {
        let counter = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mac = self.key.sign_request(route, counter, body);
        let request = request.header(headers::SESSION, &self.name).header(headers::COUNTER, counter);
        (request.header(headers::MAC, mac), counter)
    }

    /// Whether this is the daemon's answer to the request of this number.
    ///
    /// # Errors
    /// [`UnprovedAnswer::Mac`].
    pub fn verify_answer(
        &self,
        answer: &DaemonAnswer,
        route: &str,
        counter: u64,
    ) -> Result<(), UnprovedAnswer> {
        let DaemonAnswer { status, body, mac, .. } = answer;
        let mac = mac.as_deref().unwrap_or_default();
        let whole = self.key.verify_answer(mac, route, counter, status.as_u16(), body);
        if whole && counter > 0 {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        whole.then_some(()).ok_or(UnprovedAnswer::Mac)
    }

    /// Whether the daemon has answered any request of this session, after the proof that opened it.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }
}

/// Puts a proof on a request in headers: of those who have no other place for it, for the daemon `to`.
pub fn attach_proof(request: RequestBuilder, proof: &IdentityProof, to: &str) -> RequestBuilder {
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
pub fn printable_text(said: &str) -> String {
    said.chars().filter(|c| !c.is_control() || *c == '\n').take(MAX_PRINTED).collect()
}

/// The whole chain of reasons why an answer is not believed, and what it says.
pub fn describe_doubt(why: &UnprovedAnswer, answer: &DaemonAnswer) -> String {
    let said = serde_json::from_slice::<infill_api::ErrorBody>(&answer.body).map(|e| e.error);
    let said = printable_text(&said.unwrap_or_default());
    let status = answer.status.as_u16();
    let chain = error_causes::error_chain(why);
    if said.is_empty() {
        format!("{chain} (it answers {status})")
    } else {
        format!("{chain} (it answers {status}: {said})")
    }
}
