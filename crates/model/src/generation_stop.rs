//! How a command ended after it was asked to save and exit.

use serde::{Deserialize, Serialize};

use super::JobId;
use crate::words;

words! {
    /// How a command ended after it was asked to save and exit, from best to worst.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum StopOutcome {
        /// It reported success.
        Saved = "saved",
        /// It was killed before the end of its own grace time, because Slurm wanted the node.
        Cut = "cut",
        /// It ended with an error.
        Failed = "failed",
        /// It was killed at the end of its grace time.
        Killed = "killed",
    }
}

impl StopOutcome {
    /// Whether the checkpoint of this stop was lost through the program's own fault.
    pub fn lost_checkpoint(self) -> bool {
        matches!(self, StopOutcome::Failed | StopOutcome::Killed)
    }

    /// Whether the stop might have taken longer if the command had not been killed.
    pub fn is_lower_bound(self) -> bool {
        matches!(self, StopOutcome::Cut | StopOutcome::Killed)
    }
}

/// One stop of one generation of a job: the time of its slowest worker, and the worst end of any worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GenerationStop {
    /// The lead's job id.
    pub job: JobId,
    /// The generation that was stopped.
    pub generation: u64,
    /// Seconds from the signal to the exit of the slowest worker.
    pub secs: f64,
    /// The worst end of any worker.
    pub end: StopOutcome,
}
