//! Changes since the gaps were found: who holds them now, and which jobs are about to leave them.

use std::collections::{BTreeMap, BTreeSet};

use infill_gaps::NodeHolders;
use infill_model::{GapRefusal, JobFacts, JobId, NodeName};

/// Nodes that jobs are about to leave.
pub(super) struct NodeDepartures {
    /// Nodes that Slurm takes back.
    taken: BTreeSet<NodeName>,
    /// Nodes that a job has left although a part of it is still there, and that no other job holds.
    left: BTreeMap<NodeName, JobId>,
}

impl NodeDepartures {
    pub(super) fn from_jobs(jobs: &[JobFacts], holders: &NodeHolders) -> Self {
        let mut left = BTreeMap::new();
        for facts in jobs {
            let places = facts.location.leaving_nodes.iter().flat_map(NodeName::single_places);
            left.extend(places.filter(|node| !holders.contains_key(node)).map(|node| (node, facts.job)));
        }
        NodeDepartures {
            taken: jobs
                .iter()
                .flat_map(|j| &j.location.reclaimed_nodes)
                .flat_map(NodeName::single_places)
                .collect(),
            left,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.left.is_empty()
    }

    /// Why this node cannot be planned with; `None` if it can.
    pub(super) fn refusal_for(&self, node: &NodeName) -> Option<GapRefusal> {
        if self.taken.contains(node) {
            return Some("Slurm is taking it back".to_owned().into());
        }
        self.left.get(node).map(|job| format!("job {job} is just leaving it").into())
    }
}

/// The holder of each node, by place where nodes are blocks of places.
pub(super) fn node_holders(jobs: &[JobFacts]) -> NodeHolders {
    let mut holders = NodeHolders::default();
    for facts in jobs {
        let places = facts.location.held.iter().flat_map(|held| held.node.single_places());
        holders.extend(places.map(|node| (node, facts.job)));
    }
    holders
}

/// Jobs with a part on nodes that they have left: they are saving there.
pub(super) fn saving_jobs(jobs: &[JobFacts]) -> Vec<JobId> {
    jobs.iter().filter(|j| !j.ending && !j.location.leaving_nodes.is_empty()).map(|j| j.job).collect()
}
