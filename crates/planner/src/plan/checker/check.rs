//! The independent checker: whether a plan may be carried out. It reads the problem by itself
//! ([`CheckedJob`]) and computes the plan's value by itself ([`RecomputedValue`]). It shares with the planner
//! only the problem, the ends of its steps ([`TimeSteps`]), and the limit on ties.

use std::collections::{BTreeMap, BTreeSet};

use super::checked_job::{CheckedJob, NodeGaps, holds_node, top_rate};
use super::recomputed_value::{self, RecomputedValue};
use super::rules::Violation;
use super::{guarantees, host_capacity, site_limits};
use crate::plan::space::{MAX_TIES, problem::PlanningProblem, steps::TimeSteps};
use infill_model::{JobId, JobPlan, MalleableJob, NodeName, OptimalityProof, Plan, malleable::RateCurve};

/// Relative difference at which an objective or a rate counts as wrong. Sums in another order differ by less.
const TOLERANCE: f64 = 1e-6;

/// How far a plan may exceed its bound, as a share of its value. The bound is about options, which are
/// thinned. A job that is left short of nodes gets a size that may be none of these options.
const BOUND_TOLERANCE: f64 = 0.01;

/// What planners may add to the score of a job to break ties, as a share of the most valuable one.
const TIE_TOLERANCE: f64 = 1e-6;

const _: () = assert!(MAX_TIES <= TIE_TOLERANCE, "the checker must tolerate the ties of planners");

/// Checks a plan.
///
/// # Errors
///
/// Every rule that the plan breaks.
pub fn check_plan(problem: &PlanningProblem<'_>, plan: &Plan) -> Result<(), Vec<Violation>> {
    let steps = TimeSteps::from_problem(problem);
    let planned_ids: BTreeSet<JobId> = problem.jobs.iter().map(|j| j.id).collect();
    let planned = problem
        .jobs
        .iter()
        .filter_map(|j| Some(CheckedJob::from_plan(problem, &steps, j, plan.job_plan(j.id)?)));
    let facts: Vec<CheckedJob<'_>> = planned.collect();
    let mut found = Vec::new();
    check_outline(problem, &steps, plan, &planned_ids, &mut found);
    check_change_budget(problem, &facts, &mut found);
    check_forecast_supply(problem, &steps, plan, &planned_ids, &mut found);
    check_objective(problem, &steps, plan, &facts, &mut found);
    host_capacity::check_hosts(problem, &steps, &facts, &mut found);
    check_given_once(plan, &mut found);
    site_limits::check_site_limits(problem, &facts, &mut found);
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
            check_nodes(problem, &steps, facts, &planned_ids, &mut found);
        }
        check_leases(problem, facts, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Checks the order of the jobs, the jobs themselves, the moment and the steps.
fn check_outline(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    plan: &Plan,
    planned_ids: &BTreeSet<JobId>,
    found: &mut Vec<Violation>,
) {
    if !plan.jobs.is_sorted_by(|a, b| a.job < b.job) {
        found.push(Violation::Unsorted);
    }
    let unknown = plan.jobs.iter().filter(|planned| !planned_ids.contains(&planned.job));
    found.extend(unknown.map(|planned| Violation::UnknownJob { job: planned.job }));
    if plan.at != problem.now || plan.steps != steps.ends() {
        found.push(Violation::OtherMoment);
    }
}

/// Checks that voluntary changes keep within the budget.
fn check_change_budget(problem: &PlanningProblem<'_>, facts: &[CheckedJob<'_>], found: &mut Vec<Violation>) {
    let changes = facts.iter().filter(|f| f.is_voluntary()).count();
    let budget = problem.config.max_changes;
    if changes > budget as usize {
        found.push(Violation::TooManyChanges { changes, budget });
    }
}

/// Checks that for each later step all forecasts together use no more places than last through it.
fn check_forecast_supply(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    plan: &Plan,
    planned_ids: &BTreeSet<JobId>,
    found: &mut Vec<Violation>,
) {
    let usable = problem.gaps.gaps.iter().filter(|g| g.holder.is_none_or(|h| planned_ids.contains(&h)));
    let mut ends: Vec<_> = usable.map(|g| g.usable_until).collect();
    ends.sort_unstable();
    let blocks: BTreeMap<JobId, u32> = problem.jobs.iter().map(|j| (j.id, j.places_per_node)).collect();
    for (at, until) in steps.ends().iter().skip(1).enumerate() {
        let mut nodes = 0;
        for planned in &plan.jobs {
            let Some((_, foreseen)) = planned.forecast.get(at) else { continue };
            let block = blocks.get(&planned.job).copied().unwrap_or(1).max(1);
            nodes += u64::from(*foreseen) * u64::from(block);
        }
        let available = (ends.len() - ends.partition_point(|end| end < until)) as u64;
        if nodes > available {
            found.push(Violation::TooManyForeseen { until: *until, nodes, available });
        }
    }
}

/// Checks that the objective and the proof are true.
fn check_objective<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    plan: &Plan,
    facts: &[CheckedJob<'a>],
    found: &mut Vec<Violation>,
) {
    let value = recomputed_value::recompute_value(problem, steps, facts);
    let stated = plan.objective;
    let actual = value.net;
    if !is_close(stated, actual) {
        found.push(Violation::WrongObjective { stated, actual });
    }
    if let Some(proof) = &plan.proof {
        let margin = TIE_TOLERANCE * steps.total_secs() * max_job_value(facts) * facts.len() as f64;
        check_proof(proof, &value, margin, found);
    }
}

/// Whether a stated number agrees with the computed one.
fn is_close(stated: f64, actual: f64) -> bool {
    stated.is_finite() && (stated - actual).abs() <= TOLERANCE * actual.abs().max(1.0)
}

/// The most weighted samples a second that any of the jobs makes on any number of nodes.
fn max_job_value(facts: &[CheckedJob<'_>]) -> f64 {
    let mut highest = 0.0_f64;
    for CheckedJob { job, .. } in facts {
        let breakpoints = job.rates.iter().flat_map(RateCurve::curve_breakpoints);
        let rates = breakpoints.chain([job.sizes.max()]).map(|nodes| top_rate(job, nodes as usize));
        highest = highest.max(rates.fold(0.0, f64::max) * job.weight);
    }
    highest
}

/// Checks that a proof agrees with the computed value. The proof is about numbers of nodes, and a forecast
/// does not say which nodes are kept later (see [`OptimalityProof`]). So the plan's value may be below the
/// value in the proof. But the bound must not exceed the largest value that the numbers of nodes allow. Where
/// the plan has just this largest value, nothing is open, and a bound below the value is wrong.
fn check_proof(proof: &OptimalityProof, value: &RecomputedValue, margin: f64, found: &mut Vec<Violation>) {
    let actual = value.score();
    let margin = margin + TOLERANCE * value.most.abs();
    let is_open = value.is_open || value.most > actual + margin;
    let lowest_bound = actual - margin - BOUND_TOLERANCE * actual.abs();
    if !proof.bound.is_finite() || (!is_open && proof.bound < lowest_bound) {
        found.push(Violation::WrongBound { stated: proof.bound, actual });
    }
    let highest_bound = value.most + proof.gap * value.most + margin * (1.0 + proof.gap);
    if proof.gap.is_nan() || proof.gap < 0.0 || (actual >= 0.0 && proof.bound > highest_bound) {
        let actual = (proof.bound - value.most) / value.most;
        found.push(Violation::WrongGap { stated: proof.gap, actual });
    }
}

/// Checks that no node is given twice, also not to the same job.
fn check_given_once(plan: &Plan, found: &mut Vec<Violation>) {
    let mut users: BTreeMap<NodeName, JobId> = BTreeMap::new();
    for (job, planned) in plan.jobs.iter().flat_map(|j| j.nodes.iter().map(|p| (j.job, p))) {
        for place in planned.node.single_places() {
            if let Some(other) = users.insert(place, job) {
                found.push(Violation::HeldTwice { job, node: planned.node.clone(), other });
            }
        }
    }
}

/// Checks that a busy job keeps exactly what it holds, except nodes whose window has ended. Without its
/// lead's node it must have nothing, unless the lead is away.
fn check_busy_job(problem: &PlanningProblem<'_>, facts: &CheckedJob<'_>, found: &mut Vec<Violation>) {
    let job = facts.job;
    let planned = facts.planned;
    let lead_lasts = job.lead_node.as_ref().is_some_and(|node| holds_lasting(problem, job, node));
    let stays = lead_lasts || job.lead_away;
    let expect = job.held.iter().filter(|h| stays && holds_lasting(problem, job, &h.node)).count();
    let kept = planned.nodes.iter().all(|p| holds_lasting(problem, job, &p.node));
    let lead_first = planned.nodes.is_empty() || facts.lead_stays() || !lead_lasts;
    if planned.nodes.len() != expect || !kept || !lead_first || planned.exec_plan != job.exec_plan {
        found.push(Violation::Disturbed { job: job.id });
    }
}

/// Whether the job holds a node whose window has not ended.
fn holds_lasting(problem: &PlanningProblem<'_>, job: &MalleableJob, node: &NodeName) -> bool {
    holds_node(problem, job, node)
        && NodeGaps::for_node(problem, node).is_some_and(|gaps| gaps.first_to_end.usable_until > problem.now)
}

/// Checks drain, back-off, pause, minimum stay and turn.
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
    let may_stay = facts.can_stay && !facts.is_barred;
    if facts.stops && may_stay && problem.stays_secs(facts.job).is_some() {
        found.push(Violation::ChangedTooSoon { job });
    }
    if facts.job.keeps_min_size() && may_stay && !gets && !problem.drain {
        found.push(Violation::ParkedInTurn { job });
    }
}

/// Checks size, rate and forecast.
fn check_size(steps: &TimeSteps, facts: &CheckedJob<'_>, found: &mut Vec<Violation>) {
    let MalleableJob { id: job, sizes, .. } = facts.job;
    let JobPlan { forecast, rate: stated, .. } = facts.planned;
    let job = *job;
    let nodes = facts.planned.nodes.len();
    if nodes > 0 && !sizes.contains(nodes as u32) {
        found.push(Violation::NotAllowedSize { job, nodes, sizes: sizes.clone() });
    }
    let refused =
        forecast.iter().map(|(_, later)| *later).filter(|later| *later > 0 && !sizes.contains(*later));
    found.extend(refused.map(|nodes| Violation::NotAllowedLater { job, nodes, sizes: sizes.clone() }));
    let actual = facts.planned_rate();
    if !is_close(*stated, actual) {
        found.push(Violation::WrongRate { job, stated: *stated, actual });
    }
    if nodes > 0 && actual <= 0.0 {
        found.push(Violation::UnknownRate { job, nodes });
    }
    if !forecast.iter().map(|(end, _)| end).eq(steps.ends().iter().skip(1)) {
        found.push(Violation::OtherSteps { job });
    }
}

/// Checks each node: it must be a gap that lasts, of one type, allowed, with the lead on the first node.
fn check_nodes(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    facts: &CheckedJob<'_>,
    planned_ids: &BTreeSet<JobId>,
    found: &mut Vec<Violation>,
) {
    let job = facts.job.id;
    let first_end = steps.ends().first();
    for (place, (placement, (_, held))) in facts.planned.nodes.iter().zip(&facts.gaps).enumerate() {
        let node = placement.node.clone();
        let Some(NodeGaps { gaps, first_to_end }) = NodeGaps::for_node(problem, &node) else {
            found.push(Violation::NoGap { job, node });
            continue;
        };
        if gaps.len() != facts.job.places_per_node.max(1) as usize {
            found.push(Violation::OtherBlock { job, node: node.clone(), block: facts.job.places_per_node });
        }
        if first_end.is_none_or(|end| first_to_end.usable_until < *end) {
            found.push(Violation::OutsideWindow { job, node: node.clone() });
        }
        if !held && first_to_end.usable_until.secs_since(problem.now) < problem.min_window_secs {
            found.push(Violation::ShortWindow { job, node: node.clone() });
        }
        if !held && gaps.iter().any(|gap| facts.job.excluded.contains(&gap.node)) {
            found.push(Violation::ExcludedNode { job, node: node.clone() });
        }
        if gaps.iter().any(|gap| gap.holder.is_some_and(|h| !planned_ids.contains(&h))) {
            found.push(Violation::ForeignNode { job, node: node.clone() });
        }
        if gaps.iter().any(|gap| Some(&gap.node_type) != facts.node_type()) {
            found.push(Violation::OtherType { job, node: node.clone() });
        }
        if *held && place > 0 && facts.job.lead_node.as_ref() == Some(&node) {
            found.push(Violation::LeadNotFirst { job, node });
        }
    }
}

/// Checks that no lease passes the moment at which the node must be free.
fn check_leases(problem: &PlanningProblem<'_>, facts: &CheckedJob<'_>, found: &mut Vec<Violation>) {
    for placement in &facts.planned.nodes {
        let patch = NodeGaps::for_node(problem, &placement.node);
        let vacate_by = patch.and_then(|p| p.gaps.iter().filter_map(|gap| gap.vacate_by).min());
        if vacate_by.is_some_and(|by| placement.lease_until > by) {
            found.push(Violation::LeaseTooLong { job: facts.job.id, node: placement.node.clone() });
        }
    }
}
