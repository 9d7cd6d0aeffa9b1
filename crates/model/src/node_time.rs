//! What became of the node-time that malleable jobs held, hour by hour.

use serde::{Deserialize, Serialize};

use super::UnixTime;

/// Whose node-time it was, and of what nodes, in an hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeTimeKey {
    /// The hour's begin; of several hours that of the first that was asked for.
    pub from: UnixTime,
    /// Slurm's account.
    pub account: String,
    /// Owner.
    pub user: String,
    /// Type of the nodes.
    pub node_type: String,
}

/// Node-seconds by what they went into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeTimeUsage {
    /// Steps were made.
    pub useful_secs: f64,
    /// Starts, and changes that the planner wanted.
    pub rescale_secs: f64,
    /// The same because Slurm had taken nodes, or some were lost.
    pub preempted_secs: f64,
    /// Steps were made at a size that was being tried.
    pub probing_secs: f64,
    /// GPU-seconds of all these.
    pub gpu_secs: f64,
}

impl NodeTimeUsage {
    /// Node-seconds in all.
    pub fn held_secs(&self) -> f64 {
        self.useful_secs + self.rescale_secs + self.preempted_secs + self.probing_secs
    }

    /// Both together.
    pub fn sum_with(&self, more: &NodeTimeUsage) -> NodeTimeUsage {
        NodeTimeUsage {
            useful_secs: self.useful_secs + more.useful_secs,
            rescale_secs: self.rescale_secs + more.rescale_secs,
            preempted_secs: self.preempted_secs + more.preempted_secs,
            probing_secs: self.probing_secs + more.probing_secs,
            gpu_secs: self.gpu_secs + more.gpu_secs,
        }
    }
}

/// A row of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeTimeRow {
    /// Whose, and of what.
    #[serde(flatten)]
    pub key: NodeTimeKey,
    /// How much.
    #[serde(flatten)]
    pub spent: NodeTimeUsage,
}
