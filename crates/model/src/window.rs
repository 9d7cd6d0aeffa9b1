//! Windows: until when the main queue leaves a node alone, and what then needs it.

use serde::{Deserialize, Serialize};

use super::{JobId, UnixTime};

/// What ends a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowCause {
    /// Backfill has planned this pending main job on the node.
    PlannedJob(JobId),
    /// This reservation covers the node.
    Reservation(String),
}

/// When the main queue wants the node back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowEnd {
    /// Slurm has planned a moment.
    Known {
        /// The planned moment.
        at: UnixTime,
        /// What needs the node then.
        cause: WindowCause,
    },
    /// Nothing is planned; only statistics give an estimate.
    Unknown,
}

impl WindowEnd {
    /// The planned moment, if there is one.
    pub fn planned_moment(&self) -> Option<UnixTime> {
        match self {
            WindowEnd::Known { at, .. } => Some(*at),
            WindowEnd::Unknown => None,
        }
    }
}
