//! Headers with which those who speak to the daemon prove who they are, and the daemon proves itself
//! ([`crate::seal`]).

/// Purpose of a reader's credential.
pub const READ_PURPOSE: &str = "read";

/// Purpose of the credential of those who ask whether the daemon is well, and want to know that it is it.
pub const HEALTH_PURPOSE: &str = "health";

/// Scheme of `Authorization` before a MUNGE credential.
pub const MUNGE_SCHEME: &str = "Munge";

/// Scheme of `Authorization` before a Slurm JWT.
pub const JWT_SCHEME: &str = "Slurm-JWT";

/// Scheme of `Authorization` before a ticket, and before an agent's secret.
pub const TICKET_SCHEME: &str = "Bearer";

/// The nonce that is bound into the credential.
pub const NONCE: &str = "infill-nonce";

/// In the answer to a proof: what may be sent in its place for ten minutes.
pub const TICKET: &str = "infill-ticket";

/// Which daemon the credential is for, as `HOST:PORT`. Whoever says it wants a sealed answer.
pub const TO: &str = "infill-to";

/// In the answer to a proof: the session, sealed ([`crate::seal::SessionSeal`]).
pub const SEAL: &str = "infill-seal";

/// Name of the session of a request.
pub const SESSION: &str = "infill-session";

/// The request's number in its session; numbers only grow.
pub const COUNTER: &str = "infill-counter";

/// In requests of a session and in answers: what proves that they are whole and whose they are.
pub const MAC: &str = "infill-mac";
