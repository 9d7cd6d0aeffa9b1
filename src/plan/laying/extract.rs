//! From counts to named nodes, without migration.
//!
//! A job first keeps what its option says it keeps. The rest are seats, each needed through some number of
//! steps. Seats and free nodes are both sorted by how long, and matched in order: windows being nested, that
//! fills every seat if any matching does. Nodes that end together are neighbours in that order and so are
//! seats of one job, so a block goes to as few jobs as possible; among seats needed equally long, the most
//! stable nodes go to jobs that lose most by a rescale.

use std::collections::BTreeMap;

use super::evaluate::{Present, evaluate_job, supply};
use crate::model::{Gap, JobPlan, MalleableJob, NodeName, Placement, Plan, SolveStatus};
use crate::plan::space::cost::{self, Value};
use crate::plan::space::decision::{Schedule, Space};
use crate::plan::space::options::{Family, Spec};
use crate::plan::space::slots;

/// A node to be found for a job.
struct Seat {
    job: usize,
    /// Number of steps it is needed through.
    steps: usize,
    /// Weighted samples that the job loses when it must be rescaled because the node leaves.
    loss: f64,
}

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
    let (problem, supply) = (space.problem, supply(space.problem, &space.steps));
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
        value.add(evaluate_job(problem, &space.steps, &supply, job.job, &planned, present));
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
        busy.add(evaluate_job(problem, &space.steps, &supply, job, &planned, present));
        jobs.push(planned);
    }
    value.add(busy);
    jobs.sort_by_key(|j| j.job);
    let (at, steps, objective) = (problem.now, space.steps.ends().to_vec(), value.net());
    let plan = Plan { at, jobs, status: status.clone(), proof: None, objective, steps };
    Laid { plan, value, busy, short }
}

/// The slots of each job in the first step: those it keeps, in kept order, then its seats.
fn seat_all(space: &Space<'_>, schedule: &Schedule, favoured: &[usize]) -> Vec<Vec<usize>> {
    let mut nodes: Vec<Vec<usize>> = Vec::with_capacity(space.jobs.len());
    let mut taken = vec![false; space.slots.len()];
    let mut seats = Vec::new();
    for (number, (job, path)) in space.jobs.iter().zip(schedule).enumerate() {
        let specs: Vec<&Spec> = path.iter().filter_map(|o| job.options.get(*o)).collect();
        let kept = specs.first().map_or(0, |s| s.kept as usize);
        let kept: Vec<usize> = job.kept_order.iter().take(kept).copied().collect();
        kept.iter().for_each(|slot| taken[*slot] = true);
        nodes.push(kept);
        seats.extend(seats_of(number, job.job, &specs));
    }
    if seats.is_empty() {
        return nodes;
    }
    seats.sort_by(|a, b| {
        let later = |seat: &Seat| !favoured.contains(&seat.job);
        let by_need = b.steps.cmp(&a.steps).then(b.loss.total_cmp(&a.loss));
        later(a).cmp(&later(b)).then(by_need).then(a.job.cmp(&b.job))
    });
    let mut pools = Pools::new(space, taken);
    for seat in seats {
        let spec = schedule[seat.job].first().and_then(|o| space.jobs[seat.job].options.get(*o));
        let found = spec.and_then(|spec| pools.take(space, seat.job, spec));
        nodes[seat.job].extend(found);
    }
    nodes
}

/// Free slots of each type on which jobs may start, the most stable first.
struct Pools {
    by_type: Vec<Vec<usize>>,
    /// In each pool the first slot that may still be free.
    first: Vec<usize>,
    taken: Vec<bool>,
}

impl Pools {
    fn new(space: &Space<'_>, taken: Vec<bool>) -> Self {
        let mut by_type = vec![Vec::new(); space.types.len()];
        for slot in space.by_stability().iter().filter(|i| space.slots[**i].startable && !taken[**i]) {
            by_type[space.slots[*slot].node_type].push(*slot);
        }
        Pools { first: vec![0; by_type.len()], by_type, taken }
    }

    /// Takes the most stable slot on which the job may sit.
    fn take(&mut self, space: &Space<'_>, job: usize, spec: &Spec) -> Option<usize> {
        let pool = self.by_type.get(spec.node_type)?;
        let first = &mut self.first[spec.node_type];
        while pool.get(*first).is_some_and(|slot| self.taken[*slot]) {
            *first += 1;
        }
        let mut free = pool[*first..].iter().filter(|slot| !self.taken[**slot]);
        let found = *free.find(|slot| may_sit(space, job, spec, **slot))?;
        self.taken[found] = true;
        Some(found)
    }
}

/// Whether a job may take a free slot of its type that it does not keep.
fn may_sit(space: &Space<'_>, job: usize, spec: &Spec, slot: usize) -> bool {
    let (job, slot) = (space.jobs[job].job, &space.slots[slot]);
    // A job that starts anew elsewhere leaves its old lead's node: with that node it would be no new start.
    let old_lead = spec.family == Family::Fresh && job.lead_node.as_ref() == Some(&slot.gap.node);
    !old_lead && !slots::excludes(job, &slot.gap.node)
}

/// The seats of one job. Seat i is needed as long as more than i nodes besides the kept ones are.
fn seats_of(number: usize, job: &MalleableJob, specs: &[&Spec]) -> Vec<Seat> {
    let Some(first) = specs.first() else { return Vec::new() };
    let change = cost::Change::Shrink.loss(&job.costs, first.rate);
    let loss = change.max(cost::Change::Start.loss(&job.costs, first.rate)) * job.weight;
    let mut needed: Vec<u32> = Vec::new();
    for spec in specs {
        if !first.continues_as(spec) {
            break;
        }
        let fresh = spec.nodes - spec.kept;
        needed.push(needed.last().map_or(fresh, |before| fresh.min(*before)));
    }
    let seats = needed.first().copied().unwrap_or(0);
    let steps = |seat: u32| needed.iter().filter(|n| **n > seat).count();
    (0..seats).map(|seat| Seat { job: number, steps: steps(seat), loss }).collect()
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

/// A busy job keeps what it holds, except nodes whose window has ended; without its lead's it has nothing.
/// Returns its gaps in the plan's order too.
fn busy_plan<'a>(space: &Space<'a>, job: &MalleableJob) -> (JobPlan, Vec<&'a Gap>) {
    let problem = space.problem;
    let alive = |node: &NodeName| problem.held_gap(job, node).filter(|gap| gap.usable_until > problem.now);
    let mut gaps: BTreeMap<&NodeName, _> =
        job.held.iter().filter_map(|h| Some((&h.node, alive(&h.node)?))).collect();
    let lead = job.lead_node.as_ref().and_then(|lead| gaps.remove(lead));
    let gaps: Vec<&Gap> = match lead {
        Some(lead) => std::iter::once(lead).chain(gaps.into_values()).collect(),
        None => Vec::new(),
    };
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
