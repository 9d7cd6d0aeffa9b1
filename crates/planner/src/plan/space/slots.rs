//! The nodes that may be used, as the planner counts them.

use super::problem::PlanningProblem;
use super::steps::TimeSteps;
use infill_model::{Gap, JobId, MalleableJob, NodeName, NodeType};

/// A node as the planner counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSlot<'a> {
    /// The gap.
    pub gap: &'a Gap,
    /// Index of its type.
    pub node_type: usize,
    /// Number of steps it lasts through, at least 1.
    pub lasts: usize,
    /// Whether jobs that do not hold it may take it.
    pub startable: bool,
}

/// How many nodes of a type last through each step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TypeSupply {
    /// All of them.
    pub nodes: Vec<u32>,
    /// Those on which a job may start.
    pub startable: Vec<u32>,
}

/// All nodes that last through the first step, except those of busy jobs, sorted by name; and for each gap
/// its place among them.
pub(crate) fn find_slots<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    types: &[NodeType],
) -> (Vec<NodeSlot<'a>>, Vec<Option<usize>>) {
    let planned = problem.jobs.iter().filter(|j| !problem.is_busy(j)).map(|j| j.id);
    let planned: std::collections::BTreeSet<JobId> = planned.collect();
    let slot = |gap: &'a Gap| {
        let lasts = steps.steps_through(gap.usable_until);
        let node_type = types.binary_search(&gap.node_type).ok()?;
        let long = gap.usable_until.secs_since(problem.now) >= problem.min_window_secs;
        // A node whose holder we do not plan is somebody else's.
        let foreign = gap.holder.is_some_and(|h| !planned.contains(&h));
        (lasts > 0 && !foreign).then_some(NodeSlot { gap, node_type, lasts, startable: long })
    };
    let mut slots = Vec::with_capacity(problem.gaps.gaps.len());
    let places = problem
        .gaps
        .gaps
        .iter()
        .map(|gap: &'a Gap| {
            slots.push(slot(gap)?);
            Some(slots.len() - 1)
        })
        .collect();
    (slots, places)
}

/// The supply of each of so many types in each of so many steps.
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

/// Orders gaps by how long they will stay: known or counted-on end, then expectation, then place in Slurm's
/// order.
///
/// Slurm fills nodes of equal weight in the order of its configuration, lowest first, so the highest stays
/// free longest.
pub(crate) fn compare_stability(a: &Gap, b: &Gap) -> std::cmp::Ordering {
    let by_end = a.usable_until.cmp(&b.usable_until);
    by_end.then(a.expected_secs.total_cmp(&b.expected_secs)).then_with(|| a.node.cmp_natural(&b.node))
}

/// Whether the job must avoid the node.
pub(crate) fn job_excludes(job: &MalleableJob, node: &NodeName) -> bool {
    job.excluded.contains(node)
}
