//! The independent judge: whether a plan may be carried out. It reads the problem for itself (`facts`),
//! reckons the plan's worth for itself (`worth`), and shares with those who plan nothing but the problem and
//! the ends of its steps.

use std::collections::{BTreeMap, BTreeSet};

use super::checked_job::{CheckedJob, NodeGaps, holds_node, top_rate};
use super::recomputed_value::{self, RecomputedValue};
use super::rules::Violation;
use super::{guarantees, host_capacity};
use crate::plan::space::{MOST_TIES, problem::PlanningProblem, steps::TimeSteps};
use infill_model::{
    Gap, JobId, JobPlan, MalleableJob, NodeName, OptimalityProof, Plan, malleable::RateCurve,
};

/// Relative difference at which an objective or a rate counts as wrong: sums in another order differ by less.
const TOLERANCE: f64 = 1e-6;

/// Share of its worth by which a plan may exceed its bound. The bound is of options, which are thinned; a job
/// that is left short of nodes gets a size that may be none of them.
const BOUND_TOLERANCE: f64 = 0.01;

/// What planners may add to the score of a job to break ties, as a share of the most valuable one.
const TIE_TOLERANCE: f64 = 1e-6;

const _: () = assert!(MOST_TIES <= TIE_TOLERANCE, "the judge must bear with the ties of planners");

/// Judges a plan; lists every rule that it breaks.
pub fn check_plan(problem: &PlanningProblem<'_>, plan: &Plan) -> Result<(), Vec<Violation>> {
    let steps = TimeSteps::from_problem(problem);
    let ours: BTreeSet<JobId> = problem.jobs.iter().map(|j| j.id).collect();
    let planned = problem
        .jobs
        .iter()
        .filter_map(|j| Some(CheckedJob::from_plan(problem, &steps, j, plan.job_plan(j.id)?)));
    let facts: Vec<CheckedJob<'_>> = planned.collect();
    let mut found = Vec::new();
    check_outline(problem, &steps, plan, &ours, &mut found);
    check_change_budget(problem, &facts, &mut found);
    check_forecast_supply(problem, &steps, plan, &ours, &mut found);
    check_objective(problem, &steps, plan, &facts, &mut found);
    host_capacity::check_hosts(problem, &steps, &facts, &mut found);
    check_given_once(plan, &mut found);
    guarantees::check_guarantees(problem, &steps, plan, &facts, &mut found);
    for job in problem.jobs.iter().filter(|j| plan.job_plan(j.id).is_none()) {
        found.push(Violation::Missing { job: job.id });
    }
    for facts in &facts {
        if facts.is_busy {
            check_busy_job(problem, facts, &mut found);
        } else {
            check_standing(problem, facts, &mut found);
            check_size(&steps, facts, &mut found);
            check_nodes(problem, &steps, facts, &ours, &mut found);
        }
        check_leases(problem, facts, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Order, jobs, moment, steps.
fn check_outline(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    plan: &Plan,
    ours: &BTreeSet<JobId>,
    found: &mut Vec<Violation>,
) {
    if !plan.jobs.is_sorted_by(|a, b| a.job < b.job) {
        found.push(Violation::Unsorted);
    }
    let unknown = plan.jobs.iter().filter(|planned| !ours.contains(&planned.job));
    found.extend(unknown.map(|planned| Violation::UnknownJob { job: planned.job }));
    if plan.at != problem.now || plan.steps != steps.ends() {
        found.push(Violation::OtherMoment);
    }
}

/// Voluntary changes are few.
fn check_change_budget(problem: &PlanningProblem<'_>, facts: &[CheckedJob<'_>], found: &mut Vec<Violation>) {
    let changes = facts.iter().filter(|f| f.is_voluntary()).count();
    let most = problem.config.max_changes;
    if changes > most as usize {
        found.push(Violation::TooManyChanges { changes, most });
    }
}

/// All forecasts together are of nodes that last so long.
fn check_forecast_supply(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    plan: &Plan,
    ours: &BTreeSet<JobId>,
    found: &mut Vec<Violation>,
) {
    let usable = problem.gaps.gaps.iter().filter(|g| g.holder.is_none_or(|h| ours.contains(&h)));
    let mut ends: Vec<_> = usable.map(|g| g.usable_until).collect();
    ends.sort_unstable();
    let blocks: BTreeMap<JobId, u32> = problem.jobs.iter().map(|j| (j.id, j.block)).collect();
    let block = |job| u64::from(blocks.get(&job).copied().unwrap_or(1).max(1));
    for (before, until) in steps.ends().iter().skip(1).enumerate() {
        let foreseen = plan.jobs.iter().filter_map(|j| Some((j.job, j.forecast.get(before)?)));
        let nodes: u64 = foreseen.map(|(job, (_, nodes))| u64::from(*nodes) * block(job)).sum();
        let there = (ends.len() - ends.partition_point(|end| end < until)) as u64;
        if nodes > there {
            found.push(Violation::TooManyForeseen { until: *until, nodes, there });
        }
    }
}

/// The objective and the proof are true.
fn check_objective<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    plan: &Plan,
    facts: &[CheckedJob<'a>],
    found: &mut Vec<Violation>,
) {
    let worth = recomputed_value::recompute_value(problem, steps, facts);
    let said = plan.objective;
    let is = worth.net;
    if !is_close(said, is) {
        found.push(Violation::WrongObjective { said, is });
    }
    if let Some(proof) = &plan.proof {
        let room = TIE_TOLERANCE * steps.total_secs() * max_job_value(facts) * facts.len() as f64;
        check_proof(proof, &worth, room, found);
    }
}

/// Whether a number that is said is the one that is.
fn is_close(said: f64, is: f64) -> bool {
    said.is_finite() && (said - is).abs() <= TOLERANCE * is.abs().max(1.0)
}

/// The most weighted samples a second that any of the jobs makes on any number of nodes.
fn max_job_value(facts: &[CheckedJob<'_>]) -> f64 {
    let sizes = |job: &MalleableJob| {
        let turns = job.rates.iter().flat_map(RateCurve::curve_breakpoints);
        turns.chain([job.sizes.max()]).collect::<Vec<u32>>()
    };
    facts
        .iter()
        .map(|f: &CheckedJob<'_>| {
            let rates = sizes(f.job).into_iter().map(|n| top_rate(f.job, n as usize));
            rates.fold(0.0, f64::max) * f.job.weight
        })
        .fold(0.0, f64::max)
}

/// Whether a proof agrees with the worth that is found. It is about counts, and a forecast does not say which
/// nodes are kept later (see [`Proof`]). So the plan may be worth less than its proof takes it for, but no
/// more than its counts can be worth at the very most; and where it is worth just that, nothing is left open,
/// and a bound below it is none.
fn check_proof(proof: &OptimalityProof, worth: &RecomputedValue, room: f64, found: &mut Vec<Violation>) {
    let is = worth.score();
    let room = room + TOLERANCE * worth.most.abs();
    let is_open = worth.is_open || worth.most > is + room;
    if !proof.bound.is_finite() || (!is_open && proof.bound < is - room - BOUND_TOLERANCE * is.abs()) {
        found.push(Violation::WrongBound { said: proof.bound, is });
    }
    let most_bound = worth.most + proof.gap * worth.most + room * (1.0 + proof.gap);
    if proof.gap.is_nan() || proof.gap < 0.0 || (is >= 0.0 && proof.bound > most_bound) {
        found.push(Violation::WrongGap { said: proof.gap, is: (proof.bound - worth.most) / worth.most });
    }
}

/// No node is given twice, not to the same job either.
fn check_given_once(plan: &Plan, found: &mut Vec<Violation>) {
    let mut users: BTreeMap<NodeName, JobId> = BTreeMap::new();
    for (job, place) in plan.jobs.iter().flat_map(|j| j.nodes.iter().map(|p| (j.job, p))) {
        for part in place.node.single_places() {
            if let Some(other) = users.insert(part, job) {
                found.push(Violation::HeldTwice { job, node: place.node.clone(), other });
            }
        }
    }
}

/// A busy job keeps exactly what it holds, except nodes whose window has ended; without its lead's it has
/// nothing, unless the lead is away.
fn check_busy_job(problem: &PlanningProblem<'_>, facts: &CheckedJob<'_>, found: &mut Vec<Violation>) {
    let job = facts.job;
    let planned = facts.planned;
    let alive = |node: &NodeName| {
        holds_node(problem, job, node)
            && NodeGaps::for_node(problem, node)
                .is_some_and(|patch: NodeGaps<'_>| patch.first_to_end.usable_until > problem.now)
    };
    let lead_alive = job.lead_node.as_ref().is_some_and(alive);
    let stays = lead_alive || job.lead_away;
    let expect = job.held.iter().filter(|h| stays && alive(&h.node)).count();
    let kept = planned.nodes.iter().all(|p| alive(&p.node));
    let lead_first = planned.nodes.is_empty() || facts.lead_stays() || !lead_alive;
    if planned.nodes.len() != expect || !kept || !lead_first || planned.exec_plan != job.exec_plan {
        found.push(Violation::Disturbed { job: job.id });
    }
}

/// Drain, back-off, pause, minimum stay, turn.
fn check_standing(problem: &PlanningProblem<'_>, facts: &CheckedJob<'_>, found: &mut Vec<Violation>) {
    let job = facts.job.id;
    let gets = !facts.planned.nodes.is_empty();
    if problem.drain && gets {
        found.push(Violation::RunsInDrain { job });
    }
    if problem.is_barred(facts.job) && gets {
        found.push(Violation::StartsTooSoon { job });
    }
    if !problem.may_grow && facts.gaps.iter().any(|(_, held)| !held) {
        found.push(Violation::GrowsInPause { job });
    }
    let free = facts.can_stay && !facts.is_barred;
    if facts.stops && free && problem.stays_secs(facts.job).is_some() {
        found.push(Violation::ChangedTooSoon { job });
    }
    if facts.job.keeps_min_size() && free && !gets && !problem.drain {
        found.push(Violation::ParkedInTurn { job });
    }
}

/// Size, rate, execution plan, forecast.
fn check_size(steps: &TimeSteps, facts: &CheckedJob<'_>, found: &mut Vec<Violation>) {
    let MalleableJob { id: job, sizes, .. } = facts.job;
    let JobPlan { forecast, rate: said, .. } = facts.planned;
    let job = *job;
    let nodes = facts.planned.nodes.len();
    if nodes > 0 && !sizes.contains(nodes as u32) {
        found.push(Violation::NotAllowedSize { job, nodes, sizes: sizes.clone() });
    }
    let refused =
        forecast.iter().map(|(_, later)| *later).filter(|later| *later > 0 && !sizes.contains(*later));
    found.extend(refused.map(|nodes| Violation::NotAllowedLater { job, nodes, sizes: sizes.clone() }));
    let is = facts.planned_rate();
    if !is_close(*said, is) {
        found.push(Violation::WrongRate { job, said: *said, is });
    }
    if nodes > 0 && is <= 0.0 {
        found.push(Violation::UnknownRate { job, nodes });
    }
    if !forecast.iter().map(|(end, _)| end).eq(steps.ends().iter().skip(1)) {
        found.push(Violation::OtherSteps { job });
    }
}

/// Each node: a gap that lasts, of one type, allowed, with the lead in its place.
fn check_nodes(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    facts: &CheckedJob<'_>,
    ours: &BTreeSet<JobId>,
    found: &mut Vec<Violation>,
) {
    let job = facts.job.id;
    let first_end = steps.ends().first();
    for (place, (placement, (_, held))) in facts.planned.nodes.iter().zip(&facts.gaps).enumerate() {
        let node = || placement.node.clone();
        let Some(patch) = NodeGaps::for_node(problem, &placement.node) else {
            found.push(Violation::NoGap { job, node: node() });
            continue;
        };
        let gap = patch.first_to_end;
        let any = |is: &dyn Fn(&Gap) -> bool| patch.gaps.iter().any(|g| is(g));
        if patch.gaps.len() != facts.job.block.max(1) as usize {
            found.push(Violation::OtherBlock { job, node: node(), block: facts.job.block });
        }
        if first_end.is_none_or(|end| gap.usable_until < *end) {
            found.push(Violation::OutsideWindow { job, node: node() });
        }
        if !held && gap.usable_until.secs_since(problem.now) < problem.min_window_secs {
            found.push(Violation::ShortWindow { job, node: node() });
        }
        if !held && any(&|gap| facts.job.excluded.contains(&gap.node)) {
            found.push(Violation::ExcludedNode { job, node: node() });
        }
        if any(&|gap| gap.holder.is_some_and(|h| !ours.contains(&h))) {
            found.push(Violation::ForeignNode { job, node: node() });
        }
        if any(&|gap| Some(&gap.node_type) != facts.node_type()) {
            found.push(Violation::OtherType { job, node: node() });
        }
        if *held && place > 0 && facts.job.lead_node.as_ref() == Some(&placement.node) {
            found.push(Violation::LeadNotFirst { job, node: node() });
        }
    }
}

/// No lease passes the moment at which the node must be free.
fn check_leases(problem: &PlanningProblem<'_>, facts: &CheckedJob<'_>, found: &mut Vec<Violation>) {
    for placement in &facts.planned.nodes {
        let patch = NodeGaps::for_node(problem, &placement.node);
        let vacate_by = patch.and_then(|p| p.gaps.iter().filter_map(|gap| gap.vacate_by).min());
        if vacate_by.is_some_and(|by| placement.lease_until > by) {
            found.push(Violation::LeaseTooLong { job: facts.job.id, node: placement.node.clone() });
        }
    }
}
