//! Whose turn it is to hold nodes, where not all malleable jobs can.

use serde::{Deserialize, Serialize};

use super::UnixTime;

/// Where a job stands among those that want nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// It holds nodes, and keeps its smallest size while they last.
    Keeps {
        /// Until then at the least; it may be over, while nobody else is to have its nodes.
        until: UnixTime,
    },
    /// It waits, and is to get nodes now.
    Next,
    /// It holds nodes that another job is to have.
    Over,
    /// It waits, and others come before it.
    Waits(QueuePosition),
}

/// A job's place in the line of those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuePosition {
    /// 1 for the first.
    pub position: u32,
    /// How many stand in line.
    pub of: u32,
    /// Until its turn comes if turns end as expected, seconds.
    pub secs: f64,
}

impl TurnState {
    /// Its place in the line, if it waits there.
    pub fn queue_position(self) -> Option<QueuePosition> {
        match self {
            TurnState::Waits(place) => Some(place),
            TurnState::Keeps { .. } | TurnState::Next | TurnState::Over => None,
        }
    }
}
