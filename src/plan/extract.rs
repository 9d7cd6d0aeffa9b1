//! From counts to named nodes, without migration.
//!
//! A job first keeps what its option says it keeps. The rest are seats, each needed through some number of steps. Seats
//! and free nodes are both sorted by how long, and matched in order: windows being nested, that fills every seat if any
//! matching does. Nodes that end together are neighbours in that order and so are seats of one job, so a block goes to as
//! few jobs as possible; among seats needed equally long, the most stable nodes go to jobs that lose most by a rescale.

use std::collections::BTreeMap;

use super::cost;
use super::evaluate::evaluate;
use super::options::{Family, Spec};
use super::slots;
use super::space::{Schedule, Space};
use crate::model::{JobPlan, MalleableJob, NodeName, Placement, Plan, SolveStatus, UnixTime};

/// A node to be found for a job.
struct Seat {
    job: usize,
    /// Number of steps it is needed through.
    steps: usize,
    /// Weighted samples that the job loses when it must be rescaled because the node leaves.
    loss: f64,
}

/// Most attempts at seating. Another one is needed only when jobs must avoid nodes: then a job can be left without seats
/// that the counts promise, and gets the first choice next time.
const MAX_ATTEMPTS: usize = 4;

/// Lays a schedule on nodes.
pub fn plan(space: &Space<'_>, schedule: &Schedule, status: SolveStatus) -> Plan {
    let score = |plan: &Plan| evaluate(space.problem, &space.steps, plan).score();
    let mut favoured = Vec::new();
    let mut best: Option<(f64, Plan)> = None;
    for _ in 0..MAX_ATTEMPTS {
        let (plan, short) = attempt(space, schedule, &status, &favoured);
        let value = score(&plan);
        if best.as_ref().is_none_or(|(b, _)| value > *b) {
            best = Some((value, plan));
        }
        let new: Vec<usize> = short.into_iter().filter(|job| !favoured.contains(job)).collect();
        if new.is_empty() {
            break;
        }
        favoured.extend(new);
    }
    match best {
        Some((_, plan)) => plan,
        None => attempt(space, schedule, &status, &[]).0,
    }
}

/// One attempt, in which `favoured` jobs choose first; also returns the jobs that got fewer nodes than planned.
fn attempt(
    space: &Space<'_>,
    schedule: &Schedule,
    status: &SolveStatus,
    favoured: &[usize],
) -> (Plan, Vec<usize>) {
    let problem = space.problem;
    let nodes = seat_all(space, schedule, favoured);
    let wanted = |job: usize| {
        schedule[job].first().and_then(|o| space.jobs[job].options.get(*o)).map_or(0, |s| s.nodes)
    };
    let short = (0..nodes.len()).filter(|job| (nodes[*job].len() as u32) < wanted(*job)).collect();
    let mut jobs: Vec<JobPlan> = space
        .jobs
        .iter()
        .zip(schedule)
        .zip(nodes)
        .map(|((job, path), nodes)| {
            let specs: Vec<&Spec> = path.iter().filter_map(|o| job.options.get(*o)).collect();
            job_plan(space, job.job, &specs, nodes)
        })
        .collect();
    jobs.extend(problem.jobs.iter().filter(|j| problem.is_busy(j)).map(|j| busy_plan(space, j)));
    jobs.sort_by_key(|j| j.job);
    let mut plan = Plan {
        at: problem.now,
        jobs,
        status: status.clone(),
        objective: 0.0,
        steps: space.steps.ends().to_vec(),
    };
    plan.objective = evaluate(problem, &space.steps, &plan).net();
    (plan, short)
}

/// The slots of each job in the first step: those it keeps, in kept order, then its seats.
fn seat_all(space: &Space<'_>, schedule: &Schedule, favoured: &[usize]) -> Vec<Vec<usize>> {
    let mut pool: Vec<usize> = (0..space.slots.len()).collect();
    let mut nodes: Vec<Vec<usize>> = Vec::with_capacity(space.jobs.len());
    let mut seats = Vec::new();
    for (number, (job, path)) in space.jobs.iter().zip(schedule).enumerate() {
        let specs: Vec<&Spec> = path.iter().filter_map(|o| job.options.get(*o)).collect();
        let kept = specs.first().map_or(0, |s| s.kept as usize);
        let kept: Vec<usize> = job.kept_order.iter().take(kept).copied().collect();
        pool.retain(|slot| !kept.contains(slot));
        nodes.push(kept);
        seats.extend(seats_of(number, job.job, &specs));
    }
    pool.sort_by(|a, b| slots::stability(space.slots[*b].gap, space.slots[*a].gap));
    seats.sort_by(|a, b| {
        let later = |seat: &Seat| !favoured.contains(&seat.job);
        let by_need = b.steps.cmp(&a.steps).then(b.loss.total_cmp(&a.loss));
        later(a).cmp(&later(b)).then(by_need).then(a.job.cmp(&b.job))
    });
    for seat in seats {
        let Some(spec) = schedule[seat.job].first().and_then(|o| space.jobs[seat.job].options.get(*o)) else {
            continue;
        };
        if let Some(found) = pool.iter().position(|slot| may_sit(space, seat.job, spec, *slot)) {
            nodes[seat.job].push(pool.remove(found));
        }
    }
    nodes
}

/// Whether a job may take a slot that it does not keep.
fn may_sit(space: &Space<'_>, job: usize, spec: &Spec, slot: usize) -> bool {
    let (job, slot) = (space.jobs[job].job, &space.slots[slot]);
    // A job that starts anew elsewhere leaves its old lead's node: with that node it would be no new start.
    let old_lead = spec.family == Family::Fresh && job.lead_node.as_ref() == Some(&slot.gap.node);
    slot.node_type == spec.node_type && slot.startable && !old_lead && !slots::excludes(job, &slot.gap.node)
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

fn job_plan(space: &Space<'_>, job: &MalleableJob, specs: &[&Spec], mut slots: Vec<usize>) -> JobPlan {
    let spec = specs.first();
    let wanted = spec.map_or(0, |s| s.nodes);
    let mut exec_plan = spec.map_or_else(|| job.exec_plan.clone(), |s| s.exec_plan.clone());
    let mut rate = spec.map_or(0.0, |s| s.rate);
    let mut most = u32::MAX;
    if (slots.len() as u32) < wanted {
        // Exclusions can make a count impossible that the limits allow: take the largest size that is possible.
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
    let names = lead_first(slots.iter().map(|s| space.slots[*s].gap.node.clone()).collect());
    let later = specs.iter().zip(space.steps.ends()).skip(1);
    let forecast = later.map(|(spec, end)| (*end, spec.nodes.min(most))).collect();
    JobPlan { job: job.id, nodes: placements(space, &names), exec_plan, rate, forecast }
}

/// A busy job keeps what it holds, except nodes whose window has ended; without its lead's it has nothing.
fn busy_plan(space: &Space<'_>, job: &MalleableJob) -> JobPlan {
    let problem = space.problem;
    let alive = |node: &NodeName| problem.held_gap(job, node).filter(|gap| gap.usable_until > problem.now);
    let mut gaps: BTreeMap<&NodeName, _> =
        job.held.iter().filter_map(|h| Some((&h.node, alive(&h.node)?))).collect();
    let lead = job.lead_node.as_ref().and_then(|lead| gaps.remove(lead));
    let gaps: Vec<_> = match lead {
        Some(lead) => std::iter::once(lead).chain(gaps.into_values()).collect(),
        None => Vec::new(),
    };
    let names: Vec<NodeName> = gaps.iter().map(|g| g.node.clone()).collect();
    let lasting = |step: usize| gaps.iter().filter(|g| space.steps.through(g.usable_until) > step).count();
    let ends = space.steps.ends().iter().enumerate().skip(1);
    let rate =
        gaps.first().and_then(|g| cost::rate_of(job, &g.node_type, &job.exec_plan, names.len() as u32));
    JobPlan {
        job: job.id,
        nodes: placements(space, &names),
        exec_plan: job.exec_plan.clone(),
        rate: rate.unwrap_or(0.0),
        forecast: ends.map(|(step, end)| (*end, lasting(step) as u32)).collect(),
    }
}

/// The first name stays first; the others are sorted, so that equal plans are equal values.
fn lead_first(mut names: Vec<NodeName>) -> Vec<NodeName> {
    if let Some(others) = names.get_mut(1..) {
        others.sort();
    }
    names
}

fn placements(space: &Space<'_>, names: &[NodeName]) -> Vec<Placement> {
    let problem = space.problem;
    let lease = |node: &NodeName| -> UnixTime {
        let renewed = problem.now.plus_secs(problem.config.lease_secs);
        problem.gaps.get(node).and_then(|g| g.vacate_by).unwrap_or(renewed)
    };
    names.iter().map(|node| Placement { node: node.clone(), lease_until: lease(node) }).collect()
}
