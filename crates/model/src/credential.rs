//! Proof of who speaks to the daemon.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::JobId;

/// A secret that never shows in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// Proof of who speaks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// A MUNGE credential whose payload is [`hello_payload`].
    Munge(Secret),
    /// A Slurm JWT of the user (`scontrol token`), checked by asking slurmrestd in their name.
    Jwt(Secret),
}

/// What a MUNGE credential must carry: it is worth something for this purpose, job and nonce only.
pub fn hello_payload(purpose: &str, job: Option<JobId>, nonce: &str) -> String {
    format!("infill1 {purpose} {} {nonce}", job.map_or(0, |j| j.0))
}
