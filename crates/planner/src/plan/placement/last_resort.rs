//! The last resort, for when no time is left to plan or the plan cannot be trusted. Each job keeps what it
//! has, less what it must leave. No job starts, grows or moves. This takes time in proportion to the number
//! of jobs and nodes.

use std::cmp::Reverse;

use super::evaluate::{PlanValue, PresentNodes, TypeCounts, count_by_type, evaluate_job};
use super::extract::{busy_plan, leaf_order_key, planned_node};
use crate::plan::space::{
    cost,
    problem::PlanningProblem,
    steps::TimeSteps,
    worker_places::{WorkerPlaces, granted_share, plan_needs},
};
use infill_model::{
    ExecPlan, Gap, HeldNode, JobPlan, MalleableJob, NodeName, NodeType, Plan, SolveStatus, UnixTime,
};

/// The plan in which everything stays as it is. Jobs leave only nodes whose windows end, and nodes that some
/// rule does not let them keep. The status says `why` nothing is planned.
pub fn last_resort(problem: &PlanningProblem<'_>, why: &str) -> Plan {
    let steps = TimeSteps::from_problem(problem);
    let counts = count_by_type(problem, &steps);
    let mut value = PlanValue::default();
    let mut jobs = Vec::with_capacity(problem.jobs.len());
    for job in problem.jobs {
        let (planned, gaps) = if problem.is_busy(job) {
            busy_plan(problem, &steps, job)
        } else {
            kept_plan(problem, &steps, job)
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
    // Reluctance serves to compare plans, and there is only this one.
    let present = PresentNodes {
        can_stay: false,
        reluctance: 0.0,
        lasts: gaps.iter().map(|gap| steps.steps_through(gap.usable_until)).collect(),
        node_type: gaps.first().map(|gap| &gap.node_type),
    };
    evaluate_job(problem, steps, counts, job, planned, present)
}

/// A node that a job may keep, with the gap among its places that ends first.
type KeptNode<'a, 'j> = (&'j NodeName, &'a Gap);

/// What a job keeps that is not in a change, and the gaps of its nodes in the plan's order. Without its
/// lead's node it keeps nothing, because moving the lead is a new start.
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

/// The nodes of a job that last through the first step and are of its lead's type: the lead's node first,
/// then those that last longest. `None` where the lead's node is not among them.
fn lasting_nodes<'a, 'j>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    job: &'j MalleableJob,
) -> Option<Vec<KeptNode<'a, 'j>>> {
    let lead = job.lead_node.as_ref()?;
    let node_type = &problem.held_gap(job, lead)?.node_type;
    let mut nodes: Vec<KeptNode<'_, '_>> = Vec::with_capacity(job.held.len());
    for HeldNode { node, .. } in &job.held {
        let Some(gap) = problem.held_gap(job, node) else { continue };
        let is_whole = node.single_places().len() == job.places_per_node.max(1) as usize;
        if is_whole && gap.node_type == *node_type && steps.steps_through(gap.usable_until) > 0 {
            nodes.push((node, gap));
        }
    }
    nodes.dedup_by_key(|(node, _)| *node);
    nodes.sort_by_key(|(node, gap)| (*node != lead, Reverse(steps.steps_through(gap.usable_until))));
    nodes.first().is_some_and(|(node, _)| *node == lead).then_some(nodes)
}

/// As many of these nodes as the job may have, in the order of a plan. Also the execution plan and the rate
/// on them. If these are all nodes that the job holds, it runs as it does now.
fn fitting_nodes<'a, 'j>(
    problem: &PlanningProblem<'_>,
    job: &MalleableJob,
    mut nodes: Vec<KeptNode<'a, 'j>>,
) -> (Vec<KeptNode<'a, 'j>>, Option<(ExecPlan, f64)>) {
    let Some(node_type) = nodes.first().map(|(_, gap)| &gap.node_type) else { return (nodes, None) };
    // A size that keeps the promise takes precedence over a larger one.
    let (size, run) = present_run(job, node_type, nodes.len())
        .or_else(|| largest_promised_run(problem, job, node_type, &nodes))
        .or_else(|| largest_run(problem, job, node_type, &nodes, |_, _| true))
        .unzip();
    nodes.truncate(size.unwrap_or(0) as usize);
    if let Some(((lead, _), others)) = nodes.split_first_mut() {
        others.sort_by_cached_key(|(name, _)| (leaf_order_key(problem, Some(lead), Some(name)), *name));
    }
    (nodes, run)
}

/// A number of nodes with the execution plan and the rate on them.
type SizedRun = (u32, (ExecPlan, f64));

/// The run of a job as it is now; `None` unless it keeps all its nodes at an allowed size.
fn present_run(job: &MalleableJob, node_type: &NodeType, nodes: usize) -> Option<SizedRun> {
    let size = nodes as u32;
    let rate = cost::rate_of(job, node_type, &job.exec_plan, size)?;
    let stays = nodes == job.held.len() && job.sizes.contains(size);
    stays.then(|| (size, (job.exec_plan.clone(), rate)))
}

/// The largest run on some of these nodes that reaches the job's promised rate.
fn largest_promised_run(
    problem: &PlanningProblem<'_>,
    job: &MalleableJob,
    node_type: &NodeType,
    nodes: &[KeptNode<'_, '_>],
) -> Option<SizedRun> {
    let promise = job.active_guarantee()?;
    largest_run(problem, job, node_type, nodes, |plan, size| promise.is_enough(node_type, plan, size))
}

/// The largest run on the first of these nodes whose plan passes the test and needs no more than the job has.
fn largest_run(
    problem: &PlanningProblem<'_>,
    job: &MalleableJob,
    node_type: &NodeType,
    nodes: &[KeptNode<'_, '_>],
    is_wanted: impl Fn(&ExecPlan, u32) -> bool,
) -> Option<SizedRun> {
    job.sizes.up_to(nodes.len() as u32).into_iter().rev().find_map(|size| {
        let run = cost::best_rate_of(job, node_type, size, |plan| {
            is_wanted(plan, size) && needs_no_more(problem, job, node_type, plan, &nodes[..size as usize])
        })?;
        Some((size, run))
    })
}

/// Whether a plan needs no more CPUs and memory of these nodes than the job has there, or may have at any
/// time.
fn needs_no_more(
    problem: &PlanningProblem<'_>,
    job: &MalleableJob,
    node_type: &NodeType,
    plan: &ExecPlan,
    nodes: &[KeptNode<'_, '_>],
) -> bool {
    let needs = plan_needs(job, node_type, plan);
    let mut workers = nodes.iter().filter_map(|(name, _)| WorkerPlaces::held_on(problem, name));
    workers.all(|worker| worker.share_for_kept(needs).is_within(granted_share(job, node_type, &worker)))
}

/// The number of nodes that a job still has in each later step.
fn later_counts(steps: &TimeSteps, job: &MalleableJob, gaps: &[&Gap]) -> Vec<(UnixTime, u32)> {
    let allowed = job.sizes.up_to(gaps.len() as u32);
    let lasts: Vec<usize> = gaps.iter().map(|gap| steps.steps_through(gap.usable_until)).collect();
    let mut counts = Vec::new();
    for (step, end) in steps.ends().iter().enumerate().skip(1) {
        let lead_lasts = lasts.first().is_some_and(|lasts| *lasts > step);
        let last = if lead_lasts { lasts.iter().filter(|lasts| **lasts > step).count() } else { 0 };
        let fitting = allowed.partition_point(|size| *size as usize <= last);
        counts.push((*end, fitting.checked_sub(1).map_or(0, |at| allowed[at])));
    }
    counts
}
