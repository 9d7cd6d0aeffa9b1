//! What has happened to gaps since they were found: who holds them now, and who is about to be gone from
//! them.

use std::collections::{BTreeMap, BTreeSet};

use infill_gaps::NodeHolders;
use infill_model::{GapRefusal, JobFacts, JobId, NodeName};

/// Nodes that jobs are about to be gone from.
pub(super) struct NodeDepartures {
    /// Slurm takes them back.
    taken: BTreeSet<NodeName>,
    /// A job has left them, though a part of it is still there, and no other holds them.
    left: BTreeMap<NodeName, JobId>,
}

impl NodeDepartures {
    pub(super) fn from_jobs(jobs: &[JobFacts], holders: &NodeHolders) -> Self {
        let parts = |j: &JobFacts| {
            let job = j.job;
            j.place.left.iter().flat_map(NodeName::single_places).map(move |n| (n, job)).collect::<Vec<_>>()
        };
        NodeDepartures {
            taken: jobs.iter().flat_map(|j| &j.place.taken).flat_map(NodeName::single_places).collect(),
            left: jobs.iter().flat_map(parts).filter(|(n, _)| !holders.contains_key(n)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.left.is_empty()
    }

    /// Why this node cannot be planned with, if so.
    pub(super) fn refusal_for(&self, node: &NodeName) -> Option<GapRefusal> {
        if self.taken.contains(node) {
            return Some("Slurm is taking it back".to_owned().into());
        }
        self.left.get(node).map(|job| format!("job {job} is just leaving it").into())
    }
}

/// The nodes that the jobs hold, or the places where nodes are blocks of such.
pub(super) fn node_holders(jobs: &[JobFacts]) -> NodeHolders {
    jobs.iter()
        .flat_map(|j: &JobFacts| {
            let job = j.job;
            j.place
                .held
                .iter()
                .flat_map(|h| h.node.single_places())
                .map(move |n| (n, job))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The jobs of which a part is still on nodes that they have left: they are just saving there.
pub(super) fn saving_jobs(jobs: &[JobFacts]) -> Vec<JobId> {
    jobs.iter().filter(|j| !j.ending && !j.place.left.is_empty()).map(|j| j.job).collect()
}
