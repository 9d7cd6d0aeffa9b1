//! Secrets of agents: made, read from the header, compared.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use crate::api::Secret;

use super::Refusal;

/// Bytes of a secret: 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// Longest token that is looked at.
const MAX_TOKEN: usize = 256;

/// A fresh secret.
pub fn new_secret() -> Result<Secret, Refusal> {
    let mut bytes = [0_u8; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| {
        tracing::error!("no random numbers to be had: {e}");
        Refusal::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "no random numbers")
    })?;
    Ok(Secret(bytes.iter().map(|b| format!("{b:02x}")).collect()))
}

/// The bearer token of a request.
pub fn bearer(headers: &HeaderMap) -> Result<Secret, Refusal> {
    let value = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
    let token = value.and_then(|v| v.strip_prefix("Bearer ")).filter(|t| t.len() <= MAX_TOKEN);
    token.map(|t| Secret(t.to_owned())).ok_or_else(Refusal::unproved)
}
