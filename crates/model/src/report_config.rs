//! The costs of node-time.

use serde::{Deserialize, Serialize};

/// `[report]`: the costs of node-time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReportConfig {
    /// The cost of a node for an hour; 0 if reports are not to show costs.
    pub node_hour_cost: f64,
    /// The currency of that cost.
    pub currency: String,
    /// The power of a computing node in watts, if Slurm does not measure it; 0 if unknown.
    pub node_watts: f64,
}

impl Default for ReportConfig {
    fn default() -> Self {
        ReportConfig { node_hour_cost: 0.0, currency: "EUR".to_owned(), node_watts: 0.0 }
    }
}
