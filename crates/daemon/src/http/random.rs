//! Random secrets.

use axum::http::StatusCode;

use infill_api::seal::encode_hex;
use infill_model::Secret;

use super::RequestDenial;

/// Bytes of a secret. 256 bits cannot be guessed.
const SECRET_BYTES: usize = 32;

/// `count` random bytes as hexadecimal digits.
pub(crate) fn random_hex(count: usize) -> Result<String, RequestDenial> {
    let mut bytes = vec![0_u8; count];
    getrandom::fill(&mut bytes).map_err(|e| {
        tracing::error!("the system gives no random numbers: {e}");
        RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, "the system gives no random numbers")
    })?;
    Ok(encode_hex(&bytes))
}

/// A fresh secret.
pub(crate) fn new_secret() -> Result<Secret, RequestDenial> {
    random_hex(SECRET_BYTES).map(Secret)
}
