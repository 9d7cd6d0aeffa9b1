//! Chooses among schedules the one with the highest value on named nodes, and proves how good it is.
//!
//! Counts can be placed on nodes as they are, with one exception: a node that one job keeps for now may be
//! the only one that lasts as long as another job needs it from now on. Placing such a schedule loses some of
//! its score. Then other good schedules are tried. Placing may also gain, where the named nodes last longer
//! than counts can tell. So the incumbent is placed as well as the solver's schedule. Placing may leave a job
//! without nodes that was to move in the middle of its turn. Or it may leave a job below its promised rate.
//! Such a plan is invalid. If all are invalid, the schedule that keeps everything is placed, which is always
//! possible.

use super::extract::{self, PlacementResult};
use crate::plan::{
    search::{bound::SolveBound, initial_schedules},
    space::decision::{DecisionSpace, JobSpace, Schedule},
};
use infill_model::{OptimalityProof, Plan};

/// Share of its score that placing a schedule may lose before another one is tried: more than the bonuses
/// that break ties, which no plan has.
const TOLERATED_LOSS: f64 = 1e-5;

/// The best plan from the `first` schedule and the `second` one, or if placing them loses score, from the
/// others.
pub(crate) fn choose_plan(
    space: &DecisionSpace<'_>,
    first: &Schedule,
    second: Option<&Schedule>,
    others: &[Schedule],
    bound: SolveBound,
) -> Plan {
    let mut best = extract::place_schedule(space, first, &bound.status);
    let mut chosen = first;
    let mut has_loss = loses_score(space, &best, first) || !is_valid_plan(space, &best);
    let always_tried = usize::from(second.is_some());
    for (at, schedule) in second.into_iter().chain(others).enumerate() {
        if !has_loss && at >= always_tried {
            break;
        }
        let placed = extract::place_schedule(space, schedule, &bound.status);
        has_loss = loses_score(space, &placed, schedule);
        if rank_of(space, &placed, schedule) > rank_of(space, &best, chosen) {
            best = placed;
            chosen = schedule;
        }
        has_loss |= !is_valid_plan(space, &best);
    }
    let last = if is_valid_plan(space, &best) {
        Vec::new()
    } else {
        vec![initial_schedules::keep_all(space), space.base_schedule()]
    };
    for schedule in &last {
        if !is_valid_plan(space, &best) {
            best = extract::place_schedule(space, schedule, &bound.status);
            chosen = schedule;
        }
    }
    let score_of_counts = Some(space.score(chosen) + best.busy.score()).filter(|_| best.short.is_empty());
    let score = match score_of_counts {
        // A forecast does not name the type of nodes or the plan: its value assumes the best of each in every
        // step.
        Some(counted) if space.types.len() > 1 || space.shares.is_some() => counted,
        Some(counted) => best.value.score().max(counted),
        None => best.value.score(),
    };
    let mut upper_bound = bound.bound + best.busy.score();
    if space.shares.is_some() {
        // A forecast continues a plan for as long as its nodes last, even where hosts will have less.
        upper_bound = upper_bound.max(best.value.score());
    }
    let gap = ((upper_bound - score) / score.abs()).max(0.0);
    let proof = OptimalityProof { bound: upper_bound, gap, by: bound.by };
    best.plan.proof = gap.is_finite().then_some(proof);
    best.plan
}

/// Whether placing a schedule lost more of its score than is tolerated.
fn loses_score(space: &DecisionSpace<'_>, placed: &PlacementResult, schedule: &Schedule) -> bool {
    placed.value.score() - placed.busy.score() < space.score(schedule) * (1.0 - TOLERATED_LOSS)
}

/// What placements are compared by: whether they are valid, then their worth. A forecast hopes for the best
/// type of nodes in each step, so with several types it may be worth more than its counts ever are.
fn rank_of(space: &DecisionSpace<'_>, placed: &PlacementResult, schedule: &Schedule) -> (bool, f64) {
    let by_forecast = placed.value.score();
    let worth = match space.types.len() {
        0 | 1 => by_forecast,
        _ => by_forecast.min(space.score(schedule) + placed.busy.score()),
    };
    (is_valid_plan(space, placed), worth)
}

/// Whether a plan keeps turns and promises.
fn is_valid_plan(space: &DecisionSpace<'_>, placed: &PlacementResult) -> bool {
    keeps_turns(space, placed) && keeps_guarantees(space, placed)
}

/// Whether each job that can reach its promised rate does so.
fn keeps_guarantees(space: &DecisionSpace<'_>, placed: &PlacementResult) -> bool {
    space.promises.jobs.iter().all(|job| {
        let job = space.jobs[*job].job;
        let planned = placed.plan.job_plan(job.id).zip(job.active_guarantee());
        planned.is_some_and(|(planned, promise)| {
            let gap = planned.nodes.first().and_then(|placement| space.problem.gap_at(&placement.node));
            let nodes = planned.nodes.len() as u32;
            gap.is_some_and(|gap| promise.is_enough(&gap.node_type, &planned.exec_plan, nodes))
        })
    })
}

/// Whether no job is parked in its turn that could stay as it is.
fn keeps_turns(space: &DecisionSpace<'_>, placed: &PlacementResult) -> bool {
    let problem = space.problem;
    space.jobs.iter().all(|JobSpace { job, can_stay, .. }| {
        let must_keep = *can_stay && job.keeps_min_size() && !problem.drain && !problem.is_barred(job);
        let planned = placed.plan.job_plan(job.id);
        !must_keep || planned.is_some_and(|planned| !planned.nodes.is_empty())
    })
}
