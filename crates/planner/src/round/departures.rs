//! What has happened to gaps since they were found: who holds them now, and who is about to be gone from
//! them.

use std::collections::{BTreeMap, BTreeSet};

use infill_gaps::Holders;
use infill_model::{Gap, Gaps, JobFacts, JobId, NodeName, Refusal};

/// Nodes that jobs are about to be gone from.
pub(super) struct Departures {
    /// Slurm takes them back.
    taken: BTreeSet<NodeName>,
    /// A job has left them, though a part of it is still there, and no other holds them.
    left: BTreeMap<NodeName, JobId>,
}

impl Departures {
    pub(super) fn of(jobs: &[JobFacts], holders: &Holders) -> Self {
        let parts = |j: &JobFacts| {
            let job = j.job;
            j.place.left.iter().flat_map(NodeName::parts).map(move |n| (n, job)).collect::<Vec<_>>()
        };
        Departures {
            taken: jobs.iter().flat_map(|j| &j.place.taken).flat_map(NodeName::parts).collect(),
            left: jobs.iter().flat_map(parts).filter(|(n, _)| !holders.contains_key(n)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.left.is_empty()
    }

    /// Why this node cannot be planned with, if so.
    pub(super) fn from(&self, node: &NodeName) -> Option<Refusal> {
        if self.taken.contains(node) {
            return Some("Slurm is taking it back".to_owned().into());
        }
        self.left.get(node).map(|job| format!("job {job} is just leaving it").into())
    }
}

/// The nodes that the jobs hold, or the places where nodes are blocks of such.
pub(super) fn holders(jobs: &[JobFacts]) -> Holders {
    let parts = |j: &JobFacts| {
        let job = j.job;
        j.place.held.iter().flat_map(|h| h.node.parts()).map(move |n| (n, job)).collect::<Vec<_>>()
    };
    jobs.iter().flat_map(parts).collect()
}

/// Refuses the gaps against which something speaks.
pub(super) fn refuse(gaps: &mut Gaps, why_not: impl Fn(&Gap) -> Option<Refusal>) {
    let before = gaps.refused.len();
    let refused = &mut gaps.refused;
    gaps.gaps.retain(|gap| {
        let why = why_not(gap);
        let stays = why.is_none();
        refused.extend(why.map(|why| (gap.node.clone(), why)));
        stays
    });
    if refused.len() > before {
        refused.sort_by(|a, b| a.0.cmp(&b.0));
    }
}
