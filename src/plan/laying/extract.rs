//! Lays a schedule of counts on named nodes, without migration.

use std::collections::BTreeMap;

use super::evaluate::{Present, Value, counts, evaluate_job};
use super::seats::seat_all;
use crate::model::{Gap, JobPlan, MalleableJob, NodeName, Placement, Plan, SolveStatus};
use crate::plan::space::cost;
use crate::plan::space::decision::{Schedule, Space};
use crate::plan::space::slots;
use crate::plan::space::spec::{Family, Spec};

/// Most attempts at seating. Another one is needed only when jobs must avoid nodes: then a job can be left
/// without seats that the counts promise, and gets the first choice next time.
const MAX_ATTEMPTS: usize = 4;

/// A plan with what it is worth.
#[derive(Clone, Debug)]
pub struct Laid {
    /// The plan.
    pub plan: Plan,
    /// Its value.
    pub value: Value,
    /// The part of it that nobody can change: what busy jobs make.
    pub busy: Value,
    /// Jobs that got fewer nodes than planned.
    pub short: Vec<usize>,
}

/// Lays a schedule on nodes.
#[cfg(test)]
pub fn plan(space: &Space<'_>, schedule: &Schedule, status: SolveStatus) -> Plan {
    lay(space, schedule, &status).plan
}

/// Lays a schedule on nodes.
pub fn lay(space: &Space<'_>, schedule: &Schedule, status: &SolveStatus) -> Laid {
    let mut favoured = Vec::new();
    let mut best = attempt(space, schedule, status, &favoured);
    let mut short = best.short.clone();
    for _ in 1..MAX_ATTEMPTS {
        short.retain(|job| !favoured.contains(job));
        if short.is_empty() {
            break;
        }
        favoured.append(&mut short);
        let next = attempt(space, schedule, status, &favoured);
        short.clone_from(&next.short);
        if next.value.score() > best.value.score() {
            best = next;
        }
    }
    best
}

/// One attempt, in which `favoured` jobs choose first.
fn attempt(space: &Space<'_>, schedule: &Schedule, status: &SolveStatus, favoured: &[usize]) -> Laid {
    let (problem, counts) = (space.problem, counts(space.problem, &space.steps));
    let (mut jobs, mut short) = (Vec::with_capacity(problem.jobs.len()), Vec::new());
    let (mut value, mut busy) = (Value::default(), Value::default());
    for (number, slots) in seat_all(space, schedule, favoured).into_iter().enumerate() {
        let job = &space.jobs[number];
        let specs: Vec<&Spec> = schedule[number].iter().filter_map(|o| job.options.get(*o)).collect();
        if slots.len() < specs.first().map_or(0, |s| s.nodes as usize) {
            short.push(number);
        }
        let (planned, slots) = job_plan(space, job.job, &specs, slots);
        let present = Present {
            can_stay: job.can_stay,
            reluctance: job.reluctance,
            lasts: slots.iter().map(|i| space.slots[*i].lasts).collect(),
            node_type: slots.first().map(|i| &space.slots[*i].gap.node_type),
        };
        value.add(evaluate_job(problem, &space.steps, &counts, job.job, &planned, present));
        jobs.push(planned);
    }
    for job in problem.jobs.iter().filter(|j| problem.is_busy(j)) {
        let (planned, gaps) = busy_plan(space, job);
        let present = Present {
            can_stay: false,
            reluctance: 0.0,
            lasts: gaps.iter().map(|g| space.steps.through(g.usable_until)).collect(),
            node_type: gaps.first().map(|g| &g.node_type),
        };
        busy.add(evaluate_job(problem, &space.steps, &counts, job, &planned, present));
        jobs.push(planned);
    }
    value.add(busy);
    jobs.sort_by_key(|j| j.job);
    let (at, steps, objective) = (problem.now, space.steps.ends().to_vec(), value.net());
    let plan = Plan { at, jobs, status: status.clone(), proof: None, objective, steps };
    Laid { plan, value, busy, short }
}

/// A job's plan on these slots, and the slots in the plan's order.
fn job_plan(
    space: &Space<'_>,
    job: &MalleableJob,
    specs: &[&Spec],
    mut slots: Vec<usize>,
) -> (JobPlan, Vec<usize>) {
    let spec = specs.first();
    let wanted = spec.map_or(0, |s| s.nodes);
    let mut exec_plan = spec.map_or_else(|| job.exec_plan.clone(), |s| s.exec_plan.clone());
    let mut rate = spec.map_or(0.0, |s| s.rate);
    let mut most = u32::MAX;
    if (slots.len() as u32) < wanted {
        // Exclusions can make a count impossible that the limits allow: take the largest size that is
        // possible.
        most = job.sizes.up_to(slots.len() as u32).last().copied().unwrap_or(0);
        slots.truncate(most as usize);
        let node_type = slots.first().map(|s| &space.slots[*s].gap.node_type);
        let best = node_type.and_then(|t| cost::best_rate(job, t, most));
        (exec_plan, rate) = best.unwrap_or_else(|| (job.exec_plan.clone(), 0.0));
    }
    if slots.is_empty() {
        (exec_plan, rate) = (job.exec_plan.clone(), 0.0);
    }
    if spec.is_some_and(|s| s.family == Family::Fresh) {
        slots.sort_by(|a, b| slots::stability(space.slots[*b].gap, space.slots[*a].gap));
    }
    // The lead stays first; the others are sorted by name, as slots are, so that equal plans are equal
    // values.
    if let Some(others) = slots.get_mut(1..) {
        others.sort_unstable();
    }
    let later = specs.iter().zip(space.steps.ends()).skip(1);
    let forecast = later.map(|(spec, end)| (*end, spec.nodes.min(most))).collect();
    let nodes = slots.iter().map(|s| placement(space, space.slots[*s].gap)).collect();
    (JobPlan { job: job.id, nodes, exec_plan, rate, forecast }, slots)
}

/// A busy job keeps what it holds, except nodes whose window has ended; without its lead's it has nothing,
/// unless the lead is away. Returns its gaps in the plan's order too.
fn busy_plan<'a>(space: &Space<'a>, job: &MalleableJob) -> (JobPlan, Vec<&'a Gap>) {
    let problem = space.problem;
    let alive = |node: &NodeName| problem.held_gap(job, node).filter(|gap| gap.usable_until > problem.now);
    let mut gaps: BTreeMap<&NodeName, _> =
        job.held.iter().filter_map(|h| Some((&h.node, alive(&h.node)?))).collect();
    let lead = job.lead_node.as_ref().and_then(|lead| gaps.remove(lead));
    if lead.is_none() && !job.lead_away {
        gaps.clear();
    }
    let gaps: Vec<&Gap> = lead.into_iter().chain(gaps.into_values()).collect();
    let lasting = |step: usize| gaps.iter().filter(|g| space.steps.through(g.usable_until) > step).count();
    let ends = space.steps.ends().iter().enumerate().skip(1);
    let rate = gaps.first().and_then(|g| cost::rate_of(job, &g.node_type, &job.exec_plan, gaps.len() as u32));
    let planned = JobPlan {
        job: job.id,
        nodes: gaps.iter().map(|gap| placement(space, gap)).collect(),
        exec_plan: job.exec_plan.clone(),
        rate: rate.unwrap_or(0.0),
        forecast: ends.map(|(step, end)| (*end, lasting(step) as u32)).collect(),
    };
    (planned, gaps)
}

fn placement(space: &Space<'_>, gap: &Gap) -> Placement {
    let problem = space.problem;
    let renewed = problem.now.plus_secs(problem.config.lease_secs);
    Placement { node: gap.node.clone(), lease_until: gap.vacate_by.unwrap_or(renewed) }
}
