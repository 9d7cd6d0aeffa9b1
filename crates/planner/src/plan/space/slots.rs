//! The nodes that may be used, as the planner counts them.

use super::problem::PlanningProblem;
use super::steps::TimeSteps;
use infill_model::{Gap, JobId, MalleableJob, NodeName, NodeType};

/// A node as the planner counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSlot<'a> {
    /// The gap of the node.
    pub gap: &'a Gap,
    /// Index of its node type.
    pub node_type: usize,
    /// Number of steps it lasts through, at least 1.
    pub lasts: usize,
    /// Whether jobs that do not hold it may take it.
    pub startable: bool,
}

/// The number of nodes of one type in each step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TypeSupply {
    /// All nodes that last through the step.
    pub nodes: Vec<u32>,
    /// Nodes among them on which a job may start.
    pub startable: Vec<u32>,
}

/// All nodes that last through the first step, except those of busy jobs, sorted by name. And for each gap
/// the index of its slot.
pub(crate) fn find_slots<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    types: &[NodeType],
) -> (Vec<NodeSlot<'a>>, Vec<Option<usize>>) {
    let planned = problem.jobs.iter().filter(|j| !problem.is_busy(j)).map(|j| j.id);
    let planned: std::collections::BTreeSet<JobId> = planned.collect();
    let mut slots = Vec::with_capacity(problem.gaps.gaps.len());
    let mut slot_of = Vec::with_capacity(problem.gaps.gaps.len());
    for gap in &problem.gaps.gaps {
        let lasts = steps.steps_through(gap.usable_until);
        // A node whose holder is not planned here belongs to another job.
        let is_foreign = gap.holder.is_some_and(|h| !planned.contains(&h));
        let node_type = types.binary_search(&gap.node_type).ok();
        let Some(node_type) = node_type.filter(|_| lasts > 0 && !is_foreign) else {
            slot_of.push(None);
            continue;
        };
        let startable = gap.usable_until.secs_since(problem.now) >= problem.min_window_secs;
        slot_of.push(Some(slots.len()));
        slots.push(NodeSlot { gap, node_type, lasts, startable });
    }
    (slots, slot_of)
}

/// The supply of each type. `types` and `steps` are their numbers.
pub(crate) fn count_supply(slots: &[NodeSlot<'_>], types: usize, steps: usize) -> Vec<TypeSupply> {
    let none = TypeSupply { nodes: vec![0; steps], startable: vec![0; steps] };
    let mut supply = vec![none; types];
    for slot in slots {
        let of_type = &mut supply[slot.node_type];
        of_type.nodes.iter_mut().take(slot.lasts).for_each(|n| *n += 1);
        if slot.startable {
            of_type.startable.iter_mut().take(slot.lasts).for_each(|n| *n += 1);
        }
    }
    supply
}

/// Orders gaps by how long they will stay free: by the end of their window, then by the expected time, then
/// by the place in Slurm's order.
///
/// Slurm fills nodes of equal weight in the order of its configuration, lowest first. So the highest node
/// stays free longest.
pub(crate) fn compare_stability(a: &Gap, b: &Gap) -> std::cmp::Ordering {
    let by_end = a.usable_until.cmp(&b.usable_until);
    by_end.then(a.expected_secs.total_cmp(&b.expected_secs)).then_with(|| a.node.cmp_natural(&b.node))
}

/// Whether the job must avoid the node.
pub(crate) fn job_excludes(job: &MalleableJob, node: &NodeName) -> bool {
    job.excluded.contains(node)
}
