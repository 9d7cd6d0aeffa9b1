//! How a program has come to its end when it was asked to save and exit.

use serde::{Deserialize, Serialize};

use super::JobId;
use crate::words;

words! {
    /// How a command has ended that was asked to save and exit; the worse, the later.
    pub enum StopOutcome {
        /// It said that all is well.
        Saved = "saved",
        /// It was killed before the end of its own grace time, for Slurm wanted the node.
        Cut = "cut",
        /// It ended with an error.
        Failed = "failed",
        /// It was killed at the end of its grace time.
        Killed = "killed",
    }
}

impl StopOutcome {
    /// Whether the checkpoint of this stop counts as lost through the program's own doing.
    pub fn lost_checkpoint(self) -> bool {
        matches!(self, StopOutcome::Failed | StopOutcome::Killed)
    }

    /// Whether it might have taken longer.
    pub fn is_lower_bound(self) -> bool {
        matches!(self, StopOutcome::Cut | StopOutcome::Killed)
    }
}

/// One stop of one generation of a job; of its workers the slowest, with the worst end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationStop {
    /// The lead's job id.
    pub job: JobId,
    /// The generation.
    pub generation: u64,
    /// Seconds from the signal to the end.
    pub secs: f64,
    /// How it ended.
    pub end: StopOutcome,
}
