//! The order of a wing, for the lead's agent.

use serde::{Deserialize, Serialize};

use super::NodeName;

/// A wing that the lead's agent shall submit with `sbatch`. The agent must not submit the same order twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WingOrder {
    /// The number of the wing, unique over the life of the store.
    #[serde(rename = "order")]
    pub number: u64,
    /// The nodes to which the wing is pinned. It takes all of them, exclusively.
    pub nodes: Vec<NodeName>,
    /// The time limit in minutes.
    pub time_limit_mins: u32,
    /// The partition.
    pub partition: String,
    /// The QOS, if the site names one.
    pub qos: Option<String>,
    /// The lead's account, so that usage is charged to the same account.
    pub account: Option<String>,
    /// Generic resources per node, as for `--gres`.
    pub gres: Option<String>,
    /// CPUs per node, as for `--cpus-per-task`. Set if CPUs are lent rather than whole nodes or GPUs, or if
    /// the execution plan declares how many it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory per node in MiB, as for `--mem`. Set if parts of nodes are lent and the execution plan declares
    /// how much it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Features that its nodes must have, as for `--constraint`.
    #[serde(default)]
    pub constraint: Option<String>,
    /// Nodes that it must not get, as for `--exclude`.
    #[serde(default)]
    pub exclude: Option<String>,
}
