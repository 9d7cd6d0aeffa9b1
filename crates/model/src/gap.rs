//! Gaps: nodes that the main queue does not use now, and until when.

use serde::{Deserialize, Serialize};

use super::{GapRefusal, JobId, NodeName, NodeType, PlaceShare, UnixTime, WindowEnd};

/// One node that the main queue does not use now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The node.
    pub node: NodeName,
    /// Its type.
    pub node_type: NodeType,
    /// Since when the main queue has not used it, as far as we saw.
    pub since: UnixTime,
    /// When the main queue wants it back.
    pub end: WindowEnd,
    /// Latest moment to be gone: the known end less the time to leave. `None` when nothing is planned.
    pub vacate_by: Option<UnixTime>,
    /// Until when the planner counts on the node: `vacate_by`, or for an unknown end the moment at which the
    /// survival model's chance that it is still free falls below the configured confidence.
    pub usable_until: UnixTime,
    /// Expected seconds for which the node stays free, from now (for a known end: the seconds to
    /// `vacate_by`).
    pub expected_secs: f64,
    /// The malleable job that holds it now.
    pub holder: Option<JobId>,
    /// What it has of its host's CPUs and memory, where it is a place; `None` where these are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<PlaceShare>,
}

/// All gaps of one snapshot, sorted by node name, and the nodes that are no gap with the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GapSet {
    /// Usable nodes.
    pub gaps: Vec<Gap>,
    /// Nodes of the malleable partition that are not usable, with the reason, sorted by node name.
    pub refused: Vec<(NodeName, GapRefusal)>,
}

impl GapSet {
    /// The gap on this node.
    pub fn get(&self, node: &NodeName) -> Option<&Gap> {
        self.gaps.binary_search_by(|g| g.node.cmp(node)).ok().map(|i| &self.gaps[i])
    }

    /// Takes out the gaps against which something speaks.
    pub fn refuse_gaps(&mut self, why_not: impl Fn(&Gap) -> Option<GapRefusal>) {
        let before = self.refused.len();
        let refused = &mut self.refused;
        self.gaps.retain(|gap| {
            let why = why_not(gap);
            let stays = why.is_none();
            refused.extend(why.map(|why| (gap.node.clone(), why)));
            stays
        });
        if self.refused.len() > before {
            self.refused.sort_by(|a, b| a.0.cmp(&b.0));
        }
    }

    /// Why this node is no gap.
    pub fn refusal_for(&self, node: &NodeName) -> Option<&GapRefusal> {
        self.refused.binary_search_by(|(n, _)| n.cmp(node)).ok().map(|i| &self.refused[i].1)
    }
}

/// One gap that has ended: what the survival model learns from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedGap {
    /// The node.
    pub node: NodeName,
    /// Its type.
    pub node_type: NodeType,
    /// First moment without a main job.
    pub start: UnixTime,
    /// End of the gap, or of our watching it.
    pub end: UnixTime,
    /// Whether a main job ended it; `false` when we stopped watching (drained, daemon stopped).
    pub taken: bool,
    /// Nodes that became free with it in the same round.
    pub block: u32,
    /// What Slurm had planned when the gap was last seen.
    pub planned: WindowEnd,
}
