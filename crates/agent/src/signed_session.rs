//! Our side of a session with a daemon that proves itself (`infill_api::seal`), for agents and the command
//! line.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use reqwest::{RequestBuilder, Response, StatusCode};

use infill_api::{
    headers,
    seal::{OpenSession, SessionKey, SessionSeal, parse_seal_payload},
};
use infill_model::{Credential, JobId, error_causes};

use super::identity::{IdentityError, IdentityProof, IdentityProvider};

/// Why an answer is not accepted as the daemon's.
#[derive(Debug, thiserror::Error)]
pub enum UnprovedAnswer {
    /// The answer has no session, although we sent a proof.
    #[error("it does not prove that it is infill's daemon: it is older than this program, or something else")]
    NoSeal,
    /// The session was not made by the daemon, or not for us.
    #[error("it does not prove that it is infill's daemon")]
    Seal(#[from] IdentityError),
    /// The session answers another proof.
    #[error("it does not prove that it is infill's daemon: its answer is to another proof")]
    Other,
    /// Someone else made the answer, or altered it on its way.
    #[error("it does not prove that it is infill's daemon: the answer was altered, or someone else sent it")]
    Mac,
}

/// A complete answer, proved to be the daemon's or not.
#[derive(Clone, Debug)]
pub struct DaemonAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// Complete body.
    pub body: Vec<u8>,
    /// The header [`headers::SEAL`].
    seal: Option<String>,
    /// The header [`headers::MAC`].
    mac: Option<String>,
}

impl DaemonAnswer {
    /// Sends a request and reads the answer, of at most `most` bytes.
    ///
    /// # Errors
    /// When no answer comes, or it is too long.
    pub async fn fetch_answer(request: RequestBuilder, most: usize) -> Result<DaemonAnswer, AnswerError> {
        let mut response = request.send().await?;
        let status = response.status();
        let seal = header_text(&response, headers::SEAL);
        let mac = header_text(&response, headers::MAC);
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

fn header_text(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    value.to_str().ok().map(str::to_owned)
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// No connection, or no answer in time.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// The answer is longer than any of infill's.
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
    /// Opens the session that the answer to a proof brings, and checks that the session proves the answer.
    /// `route` is the route of the request that was answered.
    ///
    /// # Errors
    /// When someone other than the daemon answers.
    pub async fn from_answer(
        identity: &dyn IdentityProvider,
        proof: &IdentityProof,
        job: Option<JobId>,
        route: &str,
        answer: &DaemonAnswer,
    ) -> Result<DaemonSession, UnprovedAnswer> {
        let seal = answer.seal.as_deref().and_then(SessionSeal::from_header).ok_or(UnprovedAnswer::NoSeal)?;
        let payload = match (seal, &proof.credential) {
            (SessionSeal::Munge(sealed), _) => identity.open_sealed(&sealed).await?,
            (SessionSeal::Open(payload), Credential::Jwt(_)) => payload,
            // The daemon answers a proof by MUNGE with MUNGE.
            (SessionSeal::Open(_), Credential::Munge(_)) => return Err(UnprovedAnswer::NoSeal),
        };
        let opened = parse_seal_payload(&payload, job, &proof.nonce).ok_or(UnprovedAnswer::Other)?;
        let OpenSession { session: name, key } = opened;
        let session =
            DaemonSession { name, key, last: AtomicU64::new(0), has_answered: AtomicBool::new(false) };
        session.verify_answer(answer, route, 0)?;
        Ok(session)
    }

    /// Signs a request with this body. Returns also the request's number.
    pub fn sign_request(&self, request: RequestBuilder, route: &str, body: &[u8]) -> (RequestBuilder, u64) {
        let counter = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mac = self.key.sign_request(route, counter, body);
        let request = request.header(headers::SESSION, &self.name).header(headers::COUNTER, counter);
        (request.header(headers::MAC, mac), counter)
    }

    /// Checks that this is the daemon's answer to the request with the number `counter`.
    ///
    /// # Errors
    /// [`UnprovedAnswer::Mac`] if it is not.
    pub fn verify_answer(
        &self,
        answer: &DaemonAnswer,
        route: &str,
        counter: u64,
    ) -> Result<(), UnprovedAnswer> {
        let DaemonAnswer { status, body, mac, .. } = answer;
        let mac = mac.as_deref().unwrap_or_default();
        if !self.key.verify_answer(mac, route, counter, status.as_u16(), body) {
            return Err(UnprovedAnswer::Mac);
        }
        if counter > 0 {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the daemon has answered any request of this session, after the proof that opened it.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }
}

/// Puts a proof for the daemon `to` (`HOST:PORT`) into the headers of a request.
pub fn attach_proof(request: RequestBuilder, proof: &IdentityProof, to: &str) -> RequestBuilder {
    use reqwest::header::{AUTHORIZATION, HeaderValue};
    let (scheme, secret) = match &proof.credential {
        Credential::Munge(secret) => (headers::MUNGE_SCHEME, secret),
        Credential::Jwt(secret) => (headers::JWT_SCHEME, secret),
    };
    // A credential that cannot be a header's value is not valid. Without it, the daemon asks for one.
    let Ok(mut value) = HeaderValue::from_str(&format!("{scheme} {}", secret.0)) else { return request };
    value.set_sensitive(true);
    request.header(AUTHORIZATION, value).header(headers::NONCE, &proof.nonce).header(headers::TO, to)
}

/// Longest text from elsewhere that is printed, characters.
const MAX_PRINTED: usize = 500;

/// Makes a text from elsewhere safe for a terminal: no control characters, and at most 500 characters.
pub fn printable_text(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n').take(MAX_PRINTED).collect()
}

/// The whole chain of reasons why an answer is not accepted, and the error that it reports.
pub fn describe_unproved_answer(why: &UnprovedAnswer, answer: &DaemonAnswer) -> String {
    let error = serde_json::from_slice::<infill_api::ErrorBody>(&answer.body).map(|body| body.error);
    let error = printable_text(&error.unwrap_or_default());
    let status = answer.status.as_u16();
    let chain = error_causes::error_chain(why);
    if error.is_empty() {
        format!("{chain} (it answers {status})")
    } else {
        format!("{chain} (it answers {status}: {error})")
    }
}
