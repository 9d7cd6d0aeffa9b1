//! Policies that do not use throughput.

use std::collections::BTreeMap;

use super::{AllocationPolicy, PolicyName, PolicyView, Target, targets_for_sizes};
use infill_model::JobId;

/// Gives each job the same number of nodes, within its sizes. The first jobs get the remainder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EqualShare;

impl AllocationPolicy for EqualShare {
    fn name(&self) -> String {
        PolicyName::EqualShare.to_string()
    }

    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target> {
        targets_for_sizes(view, &equal_sizes(view))
    }
}

/// Raises all sizes together until no nodes are left or each job has its largest size.
fn equal_sizes(view: &PolicyView<'_>) -> BTreeMap<JobId, u32> {
    let mut left = view.cluster.idle_count() as u32;
    let mut sizes: BTreeMap<JobId, u32> = BTreeMap::new();
    for (id, job) in view.jobs {
        if job.submitted.min_nodes <= left {
            sizes.insert(*id, job.submitted.min_nodes);
            left -= job.submitted.min_nodes;
        }
    }
    loop {
        let before = left;
        let level = sizes.values().copied().min().unwrap_or(0);
        let growing =
            sizes.iter().filter(|(id, n)| view.jobs.get(id).is_some_and(|j| **n < j.submitted.max_nodes));
        let lowest = growing.map(|(_, n)| *n).min().unwrap_or(level);
        for (id, size) in &mut sizes {
            let may_grow = view.jobs.get(id).is_some_and(|j| *size < j.submitted.max_nodes);
            if may_grow && *size == lowest && left > 0 {
                *size += 1;
                left -= 1;
            }
        }
        if left == before {
            return sizes;
        }
    }
}

/// Gives the first job as many nodes as it can use, then the next. Jobs keep the nodes that they have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FcfsMax;

impl AllocationPolicy for FcfsMax {
    fn name(&self) -> String {
        PolicyName::FcfsMax.to_string()
    }

    fn decide_targets(&mut self, view: &PolicyView<'_>) -> Vec<Target> {
        let mut left = view.cluster.free_nodes().len() as u32;
        let mut sizes = BTreeMap::new();
        for (id, job) in view.jobs {
            let size = (job.size() + left).min(job.submitted.max_nodes);
            let size = if size < job.submitted.min_nodes { 0 } else { size };
            left -= size.saturating_sub(job.size()).min(left);
            sizes.insert(*id, size);
        }
        targets_for_sizes(view, &sizes)
    }
}
