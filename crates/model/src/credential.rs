//! Credentials: proof of who sends a request to the daemon.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::JobId;

/// A secret that logs never show.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// Proof of who sends a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// A MUNGE credential. Its payload is [`bound_payload`], or [`hello_payload`] from older senders.
    Munge(Secret),
    /// A Slurm JWT of the user (`scontrol token`), checked by asking slurmrestd in their name.
    Jwt(Secret),
}

/// The payload of a MUNGE credential that is valid only for this purpose, job and nonce.
pub fn hello_payload(purpose: &str, job: Option<JobId>, nonce: &str) -> String {
    format!("infill1 {purpose} {} {nonce}", job.map_or(0, |j| j.0))
}

/// The payload of a MUNGE credential that is also valid only for one daemon and for one order. The daemon is
/// `to`, as `HOST:PORT`, and the order is given by its digest. Such a credential cannot be passed on to
/// another daemon or with another order.
pub fn bound_payload(
    purpose: &str,
    job: Option<JobId>,
    nonce: &str,
    to: &str,
    order: Option<&str>,
) -> String {
    format!("infill2 {purpose} {} {nonce} {to} {}", job.map_or(0, |j| j.0), order.unwrap_or("-"))
}
