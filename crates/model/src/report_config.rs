//! What node-time costs.

use serde::{Deserialize, Serialize};

/// `[report]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReportConfig {
    /// What an hour of a node costs; 0 where reports are to say nothing of that.
    pub node_hour_cost: f64,
    /// In what.
    pub currency: String,
    /// What a node takes while it computes, where Slurm does not measure it, watts; 0 where nobody knows.
    pub node_watts: f64,
}

impl Default for ReportConfig {
    fn default() -> Self {
        ReportConfig { node_hour_cost: 0.0, currency: "EUR".to_owned(), node_watts: 0.0 }
    }
}
