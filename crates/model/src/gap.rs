//! Gaps: nodes that the main queue does not use now, and until when it leaves them.

use serde::{Deserialize, Serialize};

use super::{GapRefusal, JobId, NodeName, NodeType, PlaceShare, UnixTime, WindowEnd};

/// One node that the main queue does not use now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The node.
    pub node: NodeName,
    /// The node's type.
    pub node_type: NodeType,
    /// Since when the main queue has not used it, as far as snapshots showed.
    pub since: UnixTime,
    /// When the main queue wants it back.
    pub end: WindowEnd,
    /// The latest moment to have left: the known end less the time to leave. `None` if nothing is planned.
    pub vacate_by: Option<UnixTime>,
    /// Until when the planner counts on the node. With a known end, this is `vacate_by`. With an unknown end,
    /// it is when the survival model's chance that the node is still free falls below the configured
    /// confidence.
    pub usable_until: UnixTime,
    /// The expected seconds from now for which the node stays free. With a known end, the seconds to
    /// `vacate_by`.
    pub expected_secs: f64,
    /// The malleable job that holds the node now.
    pub holder: Option<JobId>,
    /// If the node is a place: its share of the host's CPUs and memory. `None` if these are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<PlaceShare>,
}

/// All gaps of one snapshot, and the nodes that are not gaps, with reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GapSet {
    /// The usable nodes, sorted by name.
    pub gaps: Vec<Gap>,
    /// The nodes of the malleable partition that are not usable, with the reason, sorted by name.
    pub refused: Vec<(NodeName, GapRefusal)>,
}

impl GapSet {
    /// The gap on this node, if it has one.
    pub fn get(&self, node: &NodeName) -> Option<&Gap> {
        let index = self.gaps.binary_search_by(|gap| gap.node.cmp(node)).ok()?;
        Some(&self.gaps[index])
    }

    /// Moves each gap for which `why_not` gives a reason to the refused nodes.
    pub fn refuse_gaps(&mut self, why_not: impl Fn(&Gap) -> Option<GapRefusal>) {
        let refused_before = self.refused.len();
        let refused = &mut self.refused;
        self.gaps.retain(|gap| match why_not(gap) {
            Some(refusal) => {
                refused.push((gap.node.clone(), refusal));
                false
            }
            None => true,
        });
        if self.refused.len() > refused_before {
            self.refused.sort_by(|a, b| a.0.cmp(&b.0));
        }
    }

    /// Why this node is not a gap.
    pub fn refusal_for(&self, node: &NodeName) -> Option<&GapRefusal> {
        let index = self.refused.binary_search_by(|(name, _)| name.cmp(node)).ok()?;
        Some(&self.refused[index].1)
    }
}

/// A gap that has ended. The survival model learns from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedGap {
    /// The node.
    pub node: NodeName,
    /// The node's type.
    pub node_type: NodeType,
    /// The first moment without a main job.
    pub start: UnixTime,
    /// When the gap ended, or when the daemon stopped watching it.
    pub end: UnixTime,
    /// Whether a main job ended it. `false` if the daemon stopped watching (node drained, daemon stopped).
    pub taken: bool,
    /// The size of the gap's block: the number of nodes whose gaps began in the same round, this one
    /// included.
    pub block: u32,
    /// The end that Slurm had planned when the gap was last seen.
    pub planned: WindowEnd,
}
