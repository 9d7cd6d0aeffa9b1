//! How long a main job waited for nodes that malleable ones were on.

use serde::{Deserialize, Serialize};

use super::{JobId, UnixTime};

/// A main job has started on a node that ours were on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MainDelay {
    /// The main job.
    pub job: JobId,
    /// When it started.
    pub at: UnixTime,
    /// Seconds from when ours were to leave until then; Slurm tells whole ones.
    pub secs: f64,
    /// Whether the moment was one that Slurm had planned, and not a preemption.
    pub planned: bool,
}
