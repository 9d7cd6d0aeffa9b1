//! What is stored of a malleable job.

use serde::{Deserialize, Serialize};

use super::{JobId, UnixTime, UserId};

/// A malleable job's record: written before anything is done about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeadRecord {
    /// The lead's job id.
    pub job: JobId,
    /// Slurm's submission time: with the id it names a job for good, for ids wrap around.
    pub submitted_at: UnixTime,
    /// Owner; `None` in records of earlier versions.
    pub user_id: Option<UserId>,
    /// Last change.
    pub updated_at: UnixTime,
    /// Whether the job has ended.
    pub ended: bool,
    /// The state of its generations, as JSON (see `generation::Machine`).
    pub state: serde_json::Value,
}
