//! What nobody can guess.

use axum::http::StatusCode;

use infill_api::seal::hex;
use infill_model::Secret;

use super::Denial;

/// Bytes of a secret: 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// So many random bytes, as hexadecimal digits.
pub(crate) fn digits(count: usize) -> Result<String, Denial> {
    let mut bytes = vec![0_u8; count];
    getrandom::fill(&mut bytes).map_err(|e| {
        tracing::error!("no random numbers to be had: {e}");
        Denial::new(StatusCode::SERVICE_UNAVAILABLE, "no random numbers")
    })?;
    Ok(hex(&bytes))
}

/// A fresh secret.
pub(crate) fn new_secret() -> Result<Secret, Denial> {
    digits(SECRET_BYTES).map(Secret)
}
