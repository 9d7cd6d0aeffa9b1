//! What administrators bring of jobs that have ended.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::EndedJob;

/// Most jobs that one request may bring; an import of more is sent in parts.
pub const MAX_ENDED: usize = 1000;

/// Takes in jobs that have ended: `POST /v1/history/import`, for administrators. The credential's purpose is
/// `history`. Those that are known already, by number and submission, stay as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportEndedRequest {
    /// Proof of who speaks.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The jobs.
    pub jobs: Vec<EndedJob>,
}

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedImportResult {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// How many are new, and kept.
    pub taken: u64,
    /// How many were known already.
    pub known: u64,
}
