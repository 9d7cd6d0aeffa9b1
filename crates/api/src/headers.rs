//! Headers with which clients and the daemon prove their identity to each other ([`crate::seal`]).

/// Purpose of a reader's credential.
pub const READ_PURPOSE: &str = "read";

/// Purpose of the credential of a client that asks for the daemon's health and wants proof that the daemon
/// answers.
pub const HEALTH_PURPOSE: &str = "health";

/// Scheme of `Authorization` with a MUNGE credential.
pub const MUNGE_SCHEME: &str = "Munge";

/// Scheme of `Authorization` with a Slurm JWT.
pub const JWT_SCHEME: &str = "Slurm-JWT";

/// Scheme of `Authorization` with a ticket or an agent's secret.
pub const TICKET_SCHEME: &str = "Bearer";

/// The nonce that is bound into the credential.
pub const NONCE: &str = "infill-nonce";

/// In the answer to a proof: a ticket that replaces the proof for ten minutes.
pub const TICKET: &str = "infill-ticket";

/// The daemon that the credential is for, as `HOST:PORT`. A client that sends it wants a sealed answer.
pub const TO: &str = "infill-to";

/// In the answer to a proof: the session, sealed ([`crate::seal::SessionSeal`]).
pub const SEAL: &str = "infill-seal";

/// Name of the session that a request belongs to.
pub const SESSION: &str = "infill-session";

/// The request's number in its session. Numbers only grow.
pub const COUNTER: &str = "infill-counter";

/// In requests of a session and in answers: the code that proves their origin and that no one changed them.
pub const MAC: &str = "infill-mac";
