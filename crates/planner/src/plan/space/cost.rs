//! What a job makes and what a change costs it. All of the planner uses this one definition. The checker has
//! its own.
//!
//! A step credits the rate of the option that runs in it from its first second. A change of `c` seconds makes
//! no samples for `c` seconds, so it loses `c` × the rate that is credited, the new one:
//!
//! | change | seconds | |
//! |---|---|---|
//! | grow | `up_secs` | more nodes |
//! | shrink | `down_secs` | fewer nodes |
//! | swap | `up_secs` | as many nodes, but other ones, or another execution plan |
//! | replan | `swap_secs` | another execution plan at any size, for a job that has such a cost |
//! | start | `start_secs` | from nothing, or with the lead on another node: all workers start again |
//! | park | 0 | the time to save lies before the window's end, and coming back is charged as a start |
//!
//! A job with a `swap_secs` keeps its execution plan in later steps, as long as the plan runs at their sizes.
//! Only the first step changes it.
//!
//! A lone job on `o` nodes thus grows to `n` for `w` seconds iff T(n)·(w − up) > T(o)·w: exactly when that
//! makes more samples. (BFTrainer charges the old rate, which is less, and in short windows grows at a loss.)

use super::problem::PlanningProblem;
use super::steps::TimeSteps;
use infill_model::{ChangeKind, ExecPlan, Gap, JobPlan, MalleableJob, NodeName, NodeType};

/// The rate of a job with one execution plan, samples a second; `None` where its `rates` has none.
pub(crate) fn rate_of(
    job: &MalleableJob,
    node_type: &NodeType,
    exec_plan: &ExecPlan,
    nodes: u32,
) -> Option<f64> {
    let mut of_plan = job.rates.iter().filter(|r| r.exec_plan == *exec_plan);
    // A curve for this type takes precedence over one for any type.
    let for_type = of_plan.clone().find(|r| r.node_type.as_ref() == Some(node_type));
    let curve = for_type.or_else(|| of_plan.find(|r| r.node_type.is_none()))?;
    Some(curve.rate(nodes)).filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// The best execution plan for a size with its rate. The present plan wins ties, then the first in the job's
/// list.
pub(crate) fn best_rate(job: &MalleableJob, node_type: &NodeType, nodes: u32) -> Option<(ExecPlan, f64)> {
    best_rate_of(job, node_type, nodes, |_| true)
}

/// As [`best_rate`], among the plans that may run.
pub(crate) fn best_rate_of(
    job: &MalleableJob,
    node_type: &NodeType,
    nodes: u32,
    may_run: impl Fn(&ExecPlan) -> bool,
) -> Option<(ExecPlan, f64)> {
    let mut best: Option<(ExecPlan, f64)> = None;
    let present = std::iter::once(&job.exec_plan);
    for plan in present.chain(job.rates.iter().map(|r| &r.exec_plan)) {
        if let Some(rate) = rate_of(job, node_type, plan, nodes)
            && best.as_ref().is_none_or(|(_, b)| rate > *b)
            && may_run(plan)
        {
            best = Some((plan.clone(), rate));
        }
    }
    best
}

/// The execution plan, with its rate, of a job that had `plan` and keeps its lead on `nodes` nodes in a later
/// step.
pub(crate) fn later_rate(
    job: &MalleableJob,
    node_type: &NodeType,
    plan: &ExecPlan,
    nodes: u32,
) -> Option<(ExecPlan, f64)> {
    let kept = job.keeps_plan().then(|| rate_of(job, node_type, plan, nodes)).flatten();
    kept.map(|rate| (plan.clone(), rate)).or_else(|| best_rate(job, node_type, nodes))
}

/// Weighted samples that a change of the job must gain beyond its cost: a share of what the job would make
/// without a change.
pub(crate) fn change_reluctance(problem: &PlanningProblem<'_>, steps: &TimeSteps, job: &MalleableJob) -> f64 {
    problem.config.hysteresis * job.hysteresis_share * present_value(problem, steps, job)
}

/// Weighted samples that the job would make over the horizon if it kept what it holds until the first of
/// these nodes ends.
fn present_value(problem: &PlanningProblem<'_>, steps: &TimeSteps, job: &MalleableJob) -> f64 {
    let nodes: Vec<&Gap> = problem.held_gaps(job).flatten().collect();
    let Some(first) = nodes.first() else { return 0.0 };
    let through = nodes.iter().map(|g| steps.steps_through(g.usable_until)).min().unwrap_or(0);
    let rate = rate_of(job, &first.node_type, &job.exec_plan, job.held.len() as u32).unwrap_or(0.0);
    job.weight * rate * (0..through).map(|s| steps.secs(s)).sum::<f64>()
}

/// Whether the job can stay as it is: all that it holds lasts through the first step, on nodes of one type,
/// with a known rate and an allowed size. Only then is a change voluntary.
pub(crate) fn can_stay(problem: &PlanningProblem<'_>, steps: &TimeSteps, job: &MalleableJob) -> bool {
    let Some(Some(first)) = problem.held_gaps(job).next() else { return false };
    let nodes = job.held.len() as u32;
    let lead_is_held = job.held.iter().any(|h| Some(&h.node) == job.lead_node.as_ref());
    problem
        .held_gaps(job)
        .all(|g| g.is_some_and(|g| g.node_type == first.node_type && steps.steps_through(g.usable_until) > 0))
        && lead_is_held
        && job.sizes.contains(nodes)
        && rate_of(job, &first.node_type, &job.exec_plan, nodes).is_some()
}

/// The change that carrying out `planned` makes to the job now.
pub fn first_change(job: &MalleableJob, planned: &JobPlan) -> ChangeKind {
    let had = job.held.len() as u32;
    let gets = planned.nodes.len() as u32;
    let lead = planned.nodes.first().map(|p| &p.node);
    if gets > 0 && had > 0 && lead != job.lead_node.as_ref() {
        return ChangeKind::Start;
    }
    if gets == 0 && had == 0 {
        return ChangeKind::None;
    }
    if gets > 0 && had > 0 && job.keeps_plan() && planned.exec_plan != job.exec_plan {
        return ChangeKind::Replan;
    }
    let is_same = had == gets && planned.exec_plan == job.exec_plan && has_same_nodes(job, planned);
    ChangeKind::between_sizes(had, gets, is_same)
}

fn has_same_nodes(job: &MalleableJob, planned: &JobPlan) -> bool {
    let mut nodes: Vec<&NodeName> = planned.nodes.iter().map(|p| &p.node).collect();
    nodes.sort_unstable();
    nodes.into_iter().eq(job.held.iter().map(|h| &h.node))
}
