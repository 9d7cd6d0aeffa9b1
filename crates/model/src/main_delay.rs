//! How long a main job waited for nodes that malleable jobs were on.

use serde::{Deserialize, Serialize};

use super::{JobId, UnixTime};

/// The delay of a main job that started on a node of malleable jobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MainDelay {
    /// The main job.
    pub job: JobId,
    /// When the main job started.
    pub at: UnixTime,
    /// Seconds from when malleable jobs were to leave until the start, in Slurm's whole seconds.
    pub secs: f64,
    /// Whether Slurm had planned that moment. `false` for a preemption.
    pub planned: bool,
}
