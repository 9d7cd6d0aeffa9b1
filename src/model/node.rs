//! A compute node as the snapshot shows it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{NodeName, NodeType};

/// State flags that make a node unusable for new work, whatever its base state.
///
/// PLANNED is deliberately absent: it carries no time and may mean tomorrow.
pub const UNUSABLE_FLAGS: &[&str] = &[
    "BLOCKED",
    "COMPLETING",
    "DRAIN",
    "DYNAMIC_FUTURE",
    "FAIL",
    "FUTURE",
    "INVALID_REG",
    "INVALID",
    "MAINTENANCE",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "POWER_DOWN",
    "POWER_DRAIN",
    "POWER_UP",
    "REBOOT_CANCELED",
    "REBOOT_ISSUED",
    "REBOOT_REQUESTED",
    "RESERVED",
    "UNKNOWN",
];

/// A node's state: Slurm's base state and flags, as upper-case words. Words that we do not know are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// All words that Slurm gave, for example `IDLE` and `PLANNED`.
    pub words: BTreeSet<String>,
}

impl NodeState {
    /// Builds a state from Slurm's words.
    pub fn from_words<I: IntoIterator<Item = S>, S: Into<String>>(words: I) -> Self {
        NodeState { words: words.into_iter().map(|w| w.into().to_ascii_uppercase()).collect() }
    }

    /// Whether Slurm gave this word.
    pub fn has(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Whether nothing runs here and nothing forbids new work.
    pub fn is_idle(&self) -> bool {
        self.has("IDLE") && self.is_sound()
    }

    /// Whether no flag forbids new work; says nothing about what runs on the node.
    pub fn is_sound(&self) -> bool {
        !self.has("DOWN")
            && !self.has("ERROR")
            && !UNUSABLE_FLAGS.iter().any(|flag| self.words.contains(*flag))
    }
}

/// A compute node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Slurm's name.
    pub name: NodeName,
    /// Where other nodes reach it: Slurm's NodeAddr.
    pub address: String,
    /// Base state and flags.
    pub state: NodeState,
    /// Partitions that contain the node.
    pub partitions: Vec<String>,
    /// The class of interchangeable nodes that it belongs to.
    pub node_type: NodeType,
    /// Why the node is drained or down, if somebody said so.
    pub reason: Option<String>,
}
