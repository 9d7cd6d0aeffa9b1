//! How malleable jobs spent their node-time, hour by hour.

use serde::{Deserialize, Serialize};

use super::UnixTime;

/// The user, account and node type of some node-time, and its hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeTimeKey {
    /// The beginning of the hour. If several hours are summed, the beginning of the first.
    pub from: UnixTime,
    /// Slurm's account of the jobs.
    pub account: String,
    /// The owner's login name.
    pub user: String,
    /// The type of the nodes.
    pub node_type: String,
}

/// Node-seconds, by how they were spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeTimeUsage {
    /// The job made steps.
    pub useful_secs: f64,
    /// Starts, and changes that the planner wanted.
    pub rescale_secs: f64,
    /// Starts and changes because Slurm had taken nodes, or some were lost.
    pub preempted_secs: f64,
    /// The job made steps at a size that was being measured.
    pub probing_secs: f64,
    /// GPU-seconds of all of these together.
    pub gpu_secs: f64,
}

impl NodeTimeUsage {
    /// The sum of all node-seconds.
    pub fn held_secs(&self) -> f64 {
        self.useful_secs + self.rescale_secs + self.preempted_secs + self.probing_secs
    }

    /// The sum of both.
    pub fn sum_with(&self, other: &NodeTimeUsage) -> NodeTimeUsage {
        NodeTimeUsage {
            useful_secs: self.useful_secs + other.useful_secs,
            rescale_secs: self.rescale_secs + other.rescale_secs,
            preempted_secs: self.preempted_secs + other.preempted_secs,
            probing_secs: self.probing_secs + other.probing_secs,
            gpu_secs: self.gpu_secs + other.gpu_secs,
        }
    }
}

/// A row of the store, with the fields of both parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeTimeRow {
    /// The user, account, node type and hour.
    #[serde(flatten)]
    pub key: NodeTimeKey,
    /// How the node-time was spent.
    #[serde(flatten)]
    pub spent: NodeTimeUsage,
}
