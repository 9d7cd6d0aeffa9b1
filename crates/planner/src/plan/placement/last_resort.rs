//! The last resort, where there is no time to plan or no plan that can be trusted: each job keeps what it
//! has, less what it must leave. Nothing starts, grows or moves. It takes time in proportion to jobs and
//! nodes.

use std::cmp::Reverse;

use super::evaluate::{PlanValue, PresentNodes, TypeCounts, count_by_type, evaluate_job};
use super::extract::{busy_plan, leaf_order_key, planned_node};
use crate::plan::space::{
    cost,
    problem::PlanningProblem,
    steps::TimeSteps,
    worker_places::{WorkerPlaces, granted_share, plan_needs},
};
use infill_model::{ExecPlan, Gap, JobPlan, MalleableJob, NodeName, NodeType, Plan, SolveStatus, UnixTime};

/// The plan in which everything stays as it is, less what must go: nodes whose windows end, and whatever no
/// rule lets a job keep. The status says `why` nothing is planned.
pub fn last_resort(problem: &PlanningProblem<'_>, why: &str) -> Plan {
    let steps = TimeSteps::from_problem(problem);
    let counts = count_by_type(problem, &steps);
    let mut value = PlanValue::default();
    let mut jobs = Vec::with_capacity(problem.jobs.len());
    for job in problem.jobs {
        let (planned, gaps) = match problem.is_busy(job) {
            true => busy_plan(problem, &steps, job),
            false => kept_plan(problem, &steps, job),
        };
        value.add_value(value_of(problem, &steps, &counts, job, &planned, &gaps));
        jobs.push(planned);
    }
    jobs.sort_by_key(|j| j.job);
    let at = problem.now;
    let objective = value.net_samples();
    let status = SolveStatus::LastResort(why.to_owned());
    Plan { at, jobs, status, proof: None, objective, steps: steps.ends().to_vec() }
}

fn value_of(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    counts: &TypeCounts<'_>,
    job: &MalleableJob,
    planned: &JobPlan,
    gaps: &[&Gap],
) -> PlanValue {
    // Reluctance is for comparing plans, and there is no other one.
    let present = PresentNodes {
        can_stay: false,
        reluctance: 0.0,
        lasts: gaps.iter().map(|gap| steps.steps_through(gap.usable_until)).collect(),
        node_type: gaps.first().map(|gap| &gap.node_type),
    };
    evaluate_job(problem, steps, counts, job, planned, present)
}

/// A node that a job may keep, with the gap of its place that ends first.
type KeptNode<'a, 'j> = (&'j NodeName, &'a Gap);

/// What a job keeps that is in no change, and the gaps of its nodes in the plan's order. Without its lead's
/// node it keeps nothing: to move the lead is to start anew.
fn kept_plan<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    job: &MalleableJob,
) -> (JobPlan, Vec<&'a Gap>) {
    let barred = problem.drain || problem.is_barred(job);
    let (nodes, run) = match lasting_nodes(problem, steps, job).filter(|_| !barred) {
        Some(nodes) => fitting_nodes(problem, job, nodes),
        None => (Vec::new(), None),
    };
    let (exec_plan, rate) = run.unwrap_or_else(|| (job.exec_plan.clone(), 0.0));
    let (names, gaps): (Vec<&NodeName>, Vec<&Gap>) = nodes.into_iter().unzip();
    let forecast = later_counts(steps, job, &gaps);
    let nodes = names.into_iter().map(|name| planned_node(problem, name.clone())).collect();
    (JobPlan { job: job.id, nodes, exec_plan, rate, probe: None, forecast }, gaps)
}

/// The nodes of a job that last through the first step, of its lead's type: the lead's first, then those that
/// last longest. `None` where the lead's is none of them.
fn lasting_nodes<'a, 'j>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    job: &'j MalleableJob,
) -> Option<Vec<KeptNode<'a, 'j>>> {
    let lead = job.lead_node.as_ref()?;
    let node_type = &problem.held_gap(job, lead)?.node_type;
    let is_whole = |node: &NodeName| node.single_places().len() == job.block.max(1) as usize;
    let keeps = |name: &'j NodeName| {
        let gap = problem.held_gap(job, name)?;
        let may = is_whole(name) && gap.node_type == *node_type && steps.steps_through(gap.usable_until) > 0;
        may.then_some((name, gap))
    };
    let mut nodes: Vec<KeptNode<'_, '_>> = job.held.iter().filter_map(|held| keeps(&held.node)).collect();
    nodes.dedup_by_key(|(name, _)| *name);
    nodes.sort_by_key(|(name, gap)| (*name != lead, Reverse(steps.steps_through(gap.usable_until))));
    nodes.first().is_some_and(|(name, _)| *name == lead).then_some(nodes)
}

/// As many of these nodes as the job may have, in the order of a plan, and how it runs on them: as it does
/// now if that is all that it holds.
fn fitting_nodes<'a, 'j>(
    problem: &PlanningProblem<'_>,
    job: &MalleableJob,
    mut nodes: Vec<KeptNode<'a, 'j>>,
) -> (Vec<KeptNode<'a, 'j>>, Option<(ExecPlan, f64)>) {
    let Some(node_type) = nodes.first().map(|(_, gap)| &gap.node_type) else { return (nodes, None) };
    let count = nodes.len() as u32;
    let present = || {
        let rate = cost::rate_of(job, node_type, &job.exec_plan, count)?;
        let stays = nodes.len() == job.held.len() && job.sizes.contains(count);
        stays.then(|| (count, (job.exec_plan.clone(), rate)))
    };
    let largest = || {
        let mut sizes = job.sizes.up_to(count).into_iter().rev();
        sizes.find_map(|size| {
            Some((
                size,
                cost::best_rate_of(job, node_type, size, |plan: &ExecPlan| {
                    needs_no_more(problem, job, node_type, (plan, &nodes[..size as usize]))
                })?,
            ))
        })
    };
    // What keeps a promise goes before what is larger.
    let promised = || {
        let promise = job.active_guarantee()?;
        let mut sizes = job.sizes.up_to(count).into_iter().rev();
        sizes.find_map(|size| {
            Some((
                size,
                cost::best_rate_of(job, node_type, size, |plan: &ExecPlan| {
                    promise.is_enough(node_type, plan, size)
                        && needs_no_more(problem, job, node_type, (plan, &nodes[..size as usize]))
                })?,
            ))
        })
    };
    let (size, run) = present().or_else(promised).or_else(largest).unzip();
    nodes.truncate(size.unwrap_or(0) as usize);
    if let Some(((lead, _), others)) = nodes.split_first_mut() {
        others.sort_by_cached_key(|(name, _)| (leaf_order_key(problem, Some(lead), Some(name)), *name));
    }
    (nodes, run)
}

/// Whether a plan needs no more CPUs and memory of these nodes than the job has there, or may have at any
/// time.
fn needs_no_more(
    problem: &PlanningProblem<'_>,
    job: &MalleableJob,
    node_type: &NodeType,
    (plan, nodes): (&ExecPlan, &[KeptNode<'_, '_>]),
) -> bool {
    let needs = plan_needs(job, node_type, plan);
    let mut workers = nodes.iter().filter_map(|(name, _)| WorkerPlaces::held_on(problem, name));
    workers.all(|worker| worker.share_for_kept(needs).is_within(granted_share(job, node_type, &worker)))
}

/// How many of its nodes a job still has in each later step.
fn later_counts(steps: &TimeSteps, job: &MalleableJob, gaps: &[&Gap]) -> Vec<(UnixTime, u32)> {
    let allowed = job.sizes.up_to(gaps.len() as u32);
    let lasts: Vec<usize> = gaps.iter().map(|gap| steps.steps_through(gap.usable_until)).collect();
    let nodes = |step: usize| {
        let lead_lasts = lasts.first().is_some_and(|lasts| *lasts > step);
        let last = if lead_lasts { lasts.iter().filter(|lasts| **lasts > step).count() } else { 0 };
        let at = allowed.partition_point(|size| *size as usize <= last);
        at.checked_sub(1).map_or(0, |at| allowed[at])
    };
    steps.ends().iter().enumerate().skip(1).map(|(step, end)| (*end, nodes(step))).collect()
}
