//! The credential of a request, read from its headers. The module `auth` verifies it.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use infill_api::headers;
use infill_model::{Credential, JobId, Secret, bound_payload, hello_payload};

use super::RequestDenial;

/// Longest nonce that is accepted.
const MAX_NONCE_BYTES: usize = 128;

/// The value of a header, if it is there and is text.
pub(crate) fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A credential and what it must be bound to.
#[derive(Clone, Debug)]
pub(crate) struct PresentedCredential {
    /// The proof of the client's identity.
    pub credential: Credential,
    /// The nonce in the credential.
    pub nonce: String,
    /// The job in the credential, if an agent sends it.
    pub job: Option<JobId>,
    /// The daemon for which the credential was made, as `HOST:PORT`; `None` from older clients.
    pub to: Option<String>,
    /// The digest of the request, if the credential is bound to it.
    pub order: Option<String>,
}

impl PresentedCredential {
    /// Reads a credential from the headers of a request.
    pub(crate) fn from_headers(sent: &HeaderMap) -> Result<PresentedCredential, RequestDenial> {
        let value = header_text(sent, AUTHORIZATION.as_str()).and_then(|value| value.split_once(' '));
        let (scheme, secret) = value.ok_or_else(RequestDenial::not_authenticated)?;
        let secret = Secret(secret.to_owned());
        let credential = match scheme {
            headers::MUNGE_SCHEME => Credential::Munge(secret),
            headers::JWT_SCHEME => Credential::Jwt(secret),
            _ => return Err(RequestDenial::not_authenticated()),
        };
        let nonce = header_text(sent, headers::NONCE).filter(|nonce| nonce.len() <= MAX_NONCE_BYTES);
        let nonce = nonce.unwrap_or_default().to_owned();
        let to = header_text(sent, headers::TO).map(str::to_owned);
        Ok(PresentedCredential { credential, nonce, job: None, to, order: None })
    }

    /// Refuses a credential that names no daemon.
    pub(crate) fn require_target(self) -> Result<PresentedCredential, RequestDenial> {
        if self.to.is_some() { Ok(self) } else { Err(RequestDenial::not_authenticated()) }
    }

    /// The payload that the credential must carry. Each of its parts must be one word.
    pub(crate) fn expected_payload(&self, purpose: &str) -> Result<String, RequestDenial> {
        let Some(to) = &self.to else { return Ok(hello_payload(purpose, self.job, &self.nonce)) };
        if !is_word(to) || !is_word(&self.nonce) {
            return Err(RequestDenial::not_authenticated());
        }
        Ok(bound_payload(purpose, self.job, &self.nonce, to, self.order.as_deref()))
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}
