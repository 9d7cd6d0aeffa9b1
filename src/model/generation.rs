//! A generation as history keeps it.

use serde::{Deserialize, Serialize};

use super::{JobId, NodeName, UnixTime};

/// One generation, for history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationRecord {
    /// The lead's job id.
    pub job: JobId,
    /// Number of the generation.
    pub generation: u64,
    /// When its command was started on all workers.
    pub started_at: UnixTime,
    /// Nodes by rank.
    pub nodes: Vec<NodeName>,
    /// Why it was made, in words.
    pub why: String,
}
