//! Turns: which malleable jobs hold nodes if there are not enough for all.

use serde::{Deserialize, Serialize};

use super::UnixTime;

/// The position of a job in the order of jobs that want nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// It holds nodes, and keeps its smallest size while they last.
    Keeps {
        /// The turn lasts at least until then. It may last longer if no other job is to have its nodes.
        until: UnixTime,
    },
    /// It waits, and shall get nodes now.
    Next,
    /// It holds nodes that another job shall get.
    Over,
    /// It waits, and others come before it.
    Waits(QueuePosition),
}

/// The position of a waiting job in the queue for turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuePosition {
    /// The position, 1 for the first.
    pub position: u32,
    /// The number of jobs in the queue.
    #[serde(rename = "of")]
    pub queue_length: u32,
    /// Expected seconds until its turn.
    pub secs: f64,
}

impl TurnState {
    /// Its position in the queue, if it waits there.
    pub fn queue_position(self) -> Option<QueuePosition> {
        match self {
            TurnState::Waits(position) => Some(position),
            TurnState::Keeps { .. } | TurnState::Next | TurnState::Over => None,
        }
    }
}
