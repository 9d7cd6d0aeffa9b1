//! The independent judge: whether a plan may be carried out. It shares nothing with the way plans are made
//! except the steps and the definition of cost.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{JobId, JobPlan, MalleableJob, NodeName, Plan};
use crate::plan::laying::evaluate::evaluate;
use crate::plan::space::cost::{self, Change};
use crate::plan::space::problem::Problem;
use crate::plan::space::steps::Steps;

/// Relative difference at which an objective counts as wrong: sums in another order differ by less.
const OBJECTIVE_TOLERANCE: f64 = 1e-6;

/// A rule that a plan breaks.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// About the plan as a whole.
    Plan(String),
    /// About one job.
    Job(JobId, String),
    /// About a node that a job gets.
    Node(JobId, NodeName, String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Plan(what) => f.write_str(what),
            Violation::Job(job, what) => write!(f, "job {job}: {what}"),
            Violation::Node(job, node, what) => write!(f, "job {job}: node {node}: {what}"),
        }
    }
}

/// Judges a plan; lists every rule that it breaks.
pub fn check(problem: &Problem<'_>, plan: &Plan) -> Result<(), Vec<Violation>> {
    let steps = Steps::of(problem);
    let mut found = Vec::new();
    whole(problem, &steps, plan, &mut found);
    let mut users: BTreeMap<&NodeName, JobId> = BTreeMap::new();
    for job in problem.jobs {
        let Some(planned) = plan.job(job.id) else {
            found.push(Violation::Job(job.id, "is missing from the plan".to_owned()));
            continue;
        };
        for placement in &planned.nodes {
            if let Some(other) = users.insert(&placement.node, job.id) {
                let what = format!("is given to job {other} too");
                found.push(Violation::Node(job.id, placement.node.clone(), what));
            }
        }
        if problem.is_busy(job) {
            busy(problem, job, planned, &mut found);
        } else {
            standing(problem, &steps, job, planned, &mut found);
            size(problem, &steps, job, planned, &mut found);
            nodes(problem, &steps, job, planned, &mut found);
        }
        leases(problem, job, planned, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Order, steps, budget, objective.
fn whole(problem: &Problem<'_>, steps: &Steps, plan: &Plan, found: &mut Vec<Violation>) {
    let mut fail = |what: String| found.push(Violation::Plan(what));
    if !plan.jobs.is_sorted_by(|a, b| a.job < b.job) {
        fail("jobs are not sorted, or one is there twice".to_owned());
    }
    for planned in &plan.jobs {
        if !problem.jobs.iter().any(|j| j.id == planned.job) {
            fail(format!("job {} is not one of ours", planned.job));
        }
    }
    if plan.at != problem.now || plan.steps != steps.ends() {
        fail("it was made for another moment or other steps".to_owned());
    }
    let changes = problem.jobs.iter().filter(|j| is_voluntary(problem, steps, j, plan)).count();
    if changes > problem.config.max_changes as usize {
        fail(format!("{changes} voluntary changes exceed the {} allowed", problem.config.max_changes));
    }
    let value = evaluate(problem, steps, plan).net();
    let differs = (value - plan.objective).abs() > OBJECTIVE_TOLERANCE * value.abs().max(1.0);
    if differs || !plan.objective.is_finite() {
        fail(format!("its objective is {value:.3}, not {:.3}", plan.objective));
    }
}

/// Whether a plan changes a job that could stay as it is.
fn is_voluntary(problem: &Problem<'_>, steps: &Steps, job: &MalleableJob, plan: &Plan) -> bool {
    let Some(planned) = plan.job(job.id) else { return false };
    let free = job.held.is_empty() || cost::can_stay(problem, steps, job);
    let barred = problem.drain || problem.backs_off_until(job).is_some();
    free && !barred && !problem.is_busy(job) && cost::first_change(job, planned) != Change::None
}

/// A busy job keeps exactly what it holds, except nodes whose window has ended.
fn busy(problem: &Problem<'_>, job: &MalleableJob, planned: &JobPlan, found: &mut Vec<Violation>) {
    let alive = |node: &NodeName| problem.held_gap(job, node).is_some_and(|g| g.usable_until > problem.now);
    let lead_alive = job.lead_node.as_ref().is_some_and(alive);
    let expect = job.held.iter().filter(|h| lead_alive && alive(&h.node)).count();
    let kept = planned.nodes.iter().all(|p| alive(&p.node));
    let lead = planned.nodes.first().map(|p| &p.node);
    let lead_first = lead.is_none() || lead == job.lead_node.as_ref();
    if planned.nodes.len() != expect || !kept || !lead_first || planned.exec_plan != job.exec_plan {
        found.push(Violation::Job(job.id, "is in the middle of a change and must be left alone".to_owned()));
    }
}

/// Drain, back-off, pause, minimum stay.
fn standing(
    problem: &Problem<'_>,
    steps: &Steps,
    job: &MalleableJob,
    planned: &JobPlan,
    found: &mut Vec<Violation>,
) {
    let mut fail = |what: &str| found.push(Violation::Job(job.id, what.to_owned()));
    if problem.drain && !planned.nodes.is_empty() {
        fail("gets nodes although all jobs are to be parked");
    }
    if problem.backs_off_until(job).is_some() && !planned.nodes.is_empty() {
        fail("gets nodes although it backs off");
    }
    let new = planned.nodes.iter().any(|p| problem.held_gap(job, &p.node).is_none());
    if !problem.may_grow && new {
        fail("gets new nodes although growth is paused");
    }
    let changes = cost::first_change(job, planned) != Change::None;
    let barred = problem.drain || problem.backs_off_until(job).is_some();
    let free = cost::can_stay(problem, steps, job) && !barred;
    if changes && free && problem.stays_secs(job).is_some() {
        fail("is changed although it was changed a moment ago");
    }
}

/// Size, rate, execution plan, forecast.
fn size(
    problem: &Problem<'_>,
    steps: &Steps,
    job: &MalleableJob,
    planned: &JobPlan,
    found: &mut Vec<Violation>,
) {
    let mut fail = |what: String| found.push(Violation::Job(job.id, what));
    let nodes = planned.nodes.len() as u32;
    if nodes > 0 && !job.sizes.allows(nodes) {
        fail(format!("gets {nodes} nodes, but allows {}", job.sizes));
    }
    for (_, later) in &planned.forecast {
        if *later > 0 && !job.sizes.allows(*later) {
            fail(format!("is foreseen on {later} nodes, but allows {}", job.sizes));
        }
    }
    let gap = planned.nodes.first().and_then(|p| problem.gap(&p.node));
    let rate = gap.and_then(|g| cost::rate_of(job, &g.node_type, &planned.exec_plan, nodes)).unwrap_or(0.0);
    if (rate - planned.rate).abs() > OBJECTIVE_TOLERANCE * rate.max(1.0) {
        fail(format!("is promised {:.3} samples/s, its profile says {rate:.3}", planned.rate));
    }
    if nodes > 0 && rate <= 0.0 {
        fail(format!("has no known rate on {nodes} of these nodes"));
    }
    let ends = planned.forecast.iter().map(|(end, _)| *end);
    if !ends.eq(steps.ends().iter().skip(1).copied()) {
        fail("has a forecast for other steps".to_owned());
    }
}

/// Each node: a gap that lasts, of one type, allowed, with the lead in its place.
fn nodes(
    problem: &Problem<'_>,
    steps: &Steps,
    job: &MalleableJob,
    planned: &JobPlan,
    found: &mut Vec<Violation>,
) {
    let first_type = planned.nodes.first().and_then(|p| problem.gap(&p.node)).map(|g| g.node_type.clone());
    for (place, placement) in planned.nodes.iter().enumerate() {
        let mut fail = |what: &str| {
            found.push(Violation::Node(job.id, placement.node.clone(), what.to_owned()));
        };
        let Some(gap) = problem.gap(&placement.node) else {
            fail("is no gap");
            continue;
        };
        let held = problem.held_gap(job, &placement.node).is_some();
        if steps.through(gap.usable_until) == 0 {
            fail("ends before the first step does");
        }
        if !held && gap.usable_until.secs_since(problem.now) < problem.min_window_secs {
            fail("has a window too short to start in");
        }
        if !held && job.excluded.contains(&gap.node) {
            fail("cannot be used by the job");
        }
        if gap.holder.is_some_and(|h| !problem.jobs.iter().any(|j| j.id == h)) {
            fail("is held by a job that is not planned here");
        }
        if Some(&gap.node_type) != first_type.as_ref() {
            fail("is of another type than the lead's");
        }
        if held && place > 0 && job.lead_node.as_ref() == Some(&gap.node) {
            fail("holds the lead, which must stay the first");
        }
    }
}

/// No lease passes the moment at which the node must be free.
fn leases(problem: &Problem<'_>, job: &MalleableJob, planned: &JobPlan, found: &mut Vec<Violation>) {
    for placement in &planned.nodes {
        let vacate_by = problem.gap(&placement.node).and_then(|g| g.vacate_by);
        if vacate_by.is_some_and(|by| placement.lease_until > by) {
            let what = "has a lease past the end of its window".to_owned();
            found.push(Violation::Node(job.id, placement.node.clone(), what));
        }
    }
}
