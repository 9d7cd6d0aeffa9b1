//! The stored record of a malleable job.

use serde::{Deserialize, Serialize};

use super::{JobId, UnixTime, UserId};

/// The stored record of a malleable job. The daemon writes it before it acts on the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeadRecord {
    /// The lead's job id.
    pub job: JobId,
    /// Slurm's submission time. Together with the id it identifies a job for good, because ids wrap around.
    pub submitted_at: UnixTime,
    /// The owner; `None` in records of earlier versions.
    pub user_id: Option<UserId>,
    /// The time of the last change.
    pub updated_at: UnixTime,
    /// Whether the job has ended.
    pub ended: bool,
    /// The state of its lifecycle, as JSON.
    pub state: serde_json::Value,
}
