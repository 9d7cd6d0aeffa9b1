//! Why a credential was not accepted.

/// Why a credential was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The credential is bad: sending it again is useless.
    #[error("not proved: {0}")]
    Refused(String),
    /// A MUNGE credential was used twice.
    #[error("not proved: the credential was used before")]
    Replayed,
    /// The credential carries another payload than expected.
    #[error("not proved: the credential is for another purpose, job or nonce")]
    WrongPayload,
    /// This kind of credential cannot be checked here.
    #[error("not proved: {0}")]
    Unsupported(&'static str),
    /// The service that checks it does not answer: try again.
    #[error("cannot check who speaks: {0}")]
    Unavailable(String),
}
