//! A size that is tried in order to be measured, as it is told from the advisor to those who ask why a job
//! changes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ExecPlan, NodeType};

/// A size that is tried in order to be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Number of nodes.
    pub nodes: u32,
    /// With which execution plan, on nodes of which type, where the job has declared its plans; `None` for
    /// whatever it runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<(ExecPlan, NodeType)>,
}

/// What a change is that is made for it; the end of a sentence.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.nodes == 1 { "" } else { "s" };
        write!(f, "a probe, to measure how fast it is on {} node{s}", self.nodes)?;
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
    fn it_says_what_is_measured() {
        let with = Some((ExecPlan("tp2".to_owned()), NodeType::new("a100")));
        let said = [Probe { nodes: 1, with: None }, Probe { nodes: 4, with }].map(|p| p.to_string());
        assert_eq!(
            said,
            [
                "a probe, to measure how fast it is on 1 node",
                "a probe, to measure how fast it is on 4 nodes of a100 with plan tp2"
            ]
        );
    }
}
