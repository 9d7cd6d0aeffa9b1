//! Whether a plan keeps the administrator's limits. Jobs in the middle of a change keep what they have, so
//! they count first, and the other jobs may have only the rest.

use std::collections::BTreeMap;

use super::checked_job::CheckedJob;
use super::rules::Violation;
use crate::plan::space::{problem::PlanningProblem, site_limits::SiteLimits};
use infill_model::{NodeName, UserId};

/// What jobs get beside own nodes of main jobs.
#[derive(Clone, Copy, Debug, Default)]
struct GivenNodes {
    /// Nodes or places of jobs in the middle of a change, and the number of these jobs.
    busy_nodes: usize,
    busy_jobs: usize,
    /// Nodes or places of other jobs, and the number of these jobs.
    nodes: usize,
    jobs: usize,
}

impl GivenNodes {
    fn add_job(&mut self, nodes: usize, is_busy: bool) {
        let jobs = usize::from(nodes > 0);
        if is_busy {
            self.busy_nodes += nodes;
            self.busy_jobs += jobs;
        } else {
            self.nodes += nodes;
            self.jobs += jobs;
        }
    }

    fn breaks_nodes(&self, max: Option<u32>) -> Option<u32> {
        max.filter(|max| self.nodes > (*max as usize).saturating_sub(self.busy_nodes))
    }

    fn breaks_jobs(&self, max: Option<u32>) -> Option<u32> {
        max.filter(|max| self.jobs > (*max as usize).saturating_sub(self.busy_jobs))
    }
}

/// Adds each limit that the plan breaks.
pub(super) fn check_site_limits(
    problem: &PlanningProblem<'_>,
    facts: &[CheckedJob<'_>],
    found: &mut Vec<Violation>,
) {
    let Some(limits) = problem.limits else { return };
    let mut all = GivenNodes::default();
    let mut by_user: BTreeMap<UserId, GivenNodes> = BTreeMap::new();
    for job in facts {
        let lent = lent_places(limits, job);
        all.add_job(lent.len(), job.is_busy);
        by_user.entry(job.job.user).or_default().add_job(lent.len(), job.is_busy);
        if !job.is_busy {
            check_nodes(problem, limits, job, found);
        }
    }
    let above = |key, user, max: u32, count| Violation::AboveSiteLimit { key, user, max, count };
    if let Some(max) = all.breaks_nodes(limits.max_nodes) {
        found.push(above("max_nodes", None, max, all.nodes + all.busy_nodes));
    }
    if let Some(max) = all.breaks_jobs(limits.max_jobs) {
        found.push(above("max_jobs", None, max, all.jobs + all.busy_jobs));
    }
    for (user, given) in by_user {
        if let Some(max) = given.breaks_nodes(limits.max_nodes_a_user) {
            found.push(above("max_nodes_a_user", Some(user), max, given.nodes + given.busy_nodes));
        }
        if let Some(max) = given.breaks_jobs(limits.max_jobs_a_user) {
            found.push(above("max_jobs_a_user", Some(user), max, given.jobs + given.busy_jobs));
        }
    }
}

/// The nodes or places that the plan gives to a job, without own nodes.
fn lent_places(limits: &SiteLimits, job: &CheckedJob<'_>) -> Vec<NodeName> {
    let places = job.planned.nodes.iter().flat_map(|placement| placement.node.single_places());
    places.filter(|place| !limits.own.contains(place)).collect()
}

/// Checks that each node is allowed, and is left before the next blackout.
fn check_nodes(
    problem: &PlanningProblem<'_>,
    limits: &SiteLimits,
    facts: &CheckedJob<'_>,
    found: &mut Vec<Violation>,
) {
    let job = facts.job.id;
    for placement in &facts.planned.nodes {
        let node = &placement.node;
        if node.single_places().iter().all(|place| limits.own.contains(place)) {
            continue;
        }
        if limits.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&node.host())) {
            found.push(Violation::ForbiddenNode { job, node: node.clone() });
        }
        let begins = limits.blackout.map(|span| span.from);
        if begins.is_some_and(|begins| begins <= problem.now || placement.lease_until > begins) {
            found.push(Violation::InBlackout { job, node: node.clone() });
        }
    }
}
