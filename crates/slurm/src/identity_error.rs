//! Why somebody is not believed to be who they say.

/// Why somebody is not believed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The proof is bad: sending it again is useless.
    #[error("not proved: {0}")]
    Refused(String),
    /// A MUNGE credential was used twice.
    #[error("not proved: the credential was used before")]
    Replayed,
    /// A credential for something else.
    #[error("not proved: the credential is for another purpose, job or nonce")]
    WrongPayload,
    /// This kind of proof cannot be checked here.
    #[error("not proved: {0}")]
    Unsupported(&'static str),
    /// Whoever could check it does not answer: try again.
    #[error("cannot check who speaks: {0}")]
    Unavailable(String),
}
