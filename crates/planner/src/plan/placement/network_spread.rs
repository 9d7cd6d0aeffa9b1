//! How far jobs are spread over the network. Plans of equal value are compared by this.

use rustc_hash::FxHashSet;

use super::near_slot_pool::host_of;
use crate::plan::space::problem::PlanningProblem;
use infill_model::{JobPlan, NodeName};

/// How far jobs are spread: the number of links in their rings of nodes that lead from leaf to leaf, and the
/// number of hosts. A host with several jobs counts once for each of them.
pub(crate) type NetworkSpread = (usize, usize);

/// How far the jobs of a plan are spread.
pub(crate) fn plan_spread(problem: &PlanningProblem<'_>, jobs: &[JobPlan]) -> NetworkSpread {
    jobs.iter()
        .map(|job| nodes_spread(problem, job.nodes.iter().map(|placement| &placement.node)))
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

/// As [`plan_spread`], for the nodes of one job.
pub(super) fn nodes_spread<'n>(
    problem: &PlanningProblem<'_>,
    nodes: impl Iterator<Item = &'n NodeName> + Clone,
) -> NetworkSpread {
    let crossings = match problem.topology.map_or(1, |topology| topology.count_leaves(nodes.clone())) {
        1 => 0,
        leaves => leaves,
    };
    let hosts: FxHashSet<&str> = nodes.map(|node| host_of(node).unwrap_or(node.as_str())).collect();
    (crossings, hosts.len())
}
