//! Headers with which readers prove who they are.

/// Purpose of a reader's credential.
pub const READ_PURPOSE: &str = "read";

/// Scheme of `Authorization` before a MUNGE credential whose payload names [`READ_PURPOSE`] and the nonce.
pub const MUNGE_SCHEME: &str = "Munge";

/// Scheme of `Authorization` before a Slurm JWT.
pub const JWT_SCHEME: &str = "Slurm-JWT";

/// Scheme of `Authorization` before a ticket, and before an agent's secret.
pub const TICKET_SCHEME: &str = "Bearer";

/// The nonce that is bound into the credential.
pub const NONCE: &str = "infill-nonce";

/// In the answer to a proof: what may be sent in its place for ten minutes.
pub const TICKET: &str = "infill-ticket";
