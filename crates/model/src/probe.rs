//! A size that a job is brought to so that its rate is measured. The advisor passes it on to users who ask
//! why a job changes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ExecPlan, NodeType};

/// A size that a job is brought to so that its rate is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probe {
    /// Number of nodes.
    pub nodes: u32,
    /// The execution plan and the node type, if the job has declared its plans. `None` for the plan that it
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<(ExecPlan, NodeType)>,
}

/// Describes a change for this probe, as the end of a sentence.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.nodes == 1 { "" } else { "s" };
        write!(f, "a probe, to measure how fast it is on {} node{plural}", self.nodes)?;
        match &self.with {
            Some((plan, node_type)) => write!(f, " of {node_type} with plan {}", plan.0),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_describes_its_measurement() {
        let with = Some((ExecPlan("tp2".to_owned()), NodeType::new("a100")));
        let texts = [Probe { nodes: 1, with: None }, Probe { nodes: 4, with }].map(|probe| probe.to_string());
        assert_eq!(
            texts,
            [
                "a probe, to measure how fast it is on 1 node",
                "a probe, to measure how fast it is on 4 nodes of a100 with plan tp2"
            ]
        );
    }
}
