//! Chooses among schedules the one that is worth most on named nodes, and says how good that is proved to be.
//!
//! Counts can be laid on nodes as they are but for one case: a node that one job keeps for now may be the
//! only one that lasts as long as another job needs it from now on. Laying such a schedule loses something.
//! Then other good ones are tried. It may gain something as well, where the named nodes last longer than
//! counts can say: so what is in hand is laid beside what the solver has found. Laying may also leave a job
//! without nodes that was to move to others in the middle of its turn, or below what it is promised. Such a
//! plan is none; if all are such, what is kept is laid, which always can be.

use super::extract::{self, PlacementResult};
use crate::plan::{
    search::{bound::SolveBound, initial_schedules},
    space::decision::{DecisionSpace, JobSpace, Schedule},
};
use infill_model::{JobId, OptimalityProof, Plan};

/// What laying a schedule on nodes may lose of its score before another one is tried: more than the tie
/// bonuses, which no plan has.
const TOLERATED_LOSS: f64 = 1e-5;

/// The best plan that comes of the `first` schedule and the `second`, or if that loses something, of the
/// others.
pub(crate) fn choose_plan(
    space: &DecisionSpace<'_>,
    first: &Schedule,
    second: Option<&Schedule>,
    others: &[Schedule],
    known: SolveBound,
) -> Plan {
    let mut best = extract::place_schedule(space, first, &known.status);
    let mut chosen = first;
    let loses = |laid: &PlacementResult, schedule: &Schedule| {
        laid.value.score() - laid.busy.score() < space.score(schedule) * (1.0 - TOLERATED_LOSS)
    };
    let mut lost = loses(&best, first) || !is_valid_plan(space, &best);
    let always = usize::from(second.is_some());
    for (at, schedule) in second.into_iter().chain(others).enumerate() {
        if !lost && at >= always {
            break;
        }
        let laid = extract::place_schedule(space, schedule, &known.status);
        lost = loses(&laid, schedule);
        let rank = |laid: &PlacementResult| (is_valid_plan(space, laid), laid.value.score());
        if rank(&laid) > rank(&best) {
            (best, chosen) = (laid, schedule);
        }
        lost |= !is_valid_plan(space, &best);
    }
    let are_kept = is_valid_plan(space, &best);
    let last =
        if are_kept { Vec::new() } else { vec![initial_schedules::keep_all(space), space.base_schedule()] };
    for schedule in &last {
        if !is_valid_plan(space, &best) {
            (best, chosen) = (extract::place_schedule(space, schedule, &known.status), schedule);
        }
    }
    let of_counts = Some(space.score(chosen) + best.busy.score()).filter(|_| best.short.is_empty());
    let score = match of_counts {
        // A forecast does not say on which type of nodes, or with which plan: its value hopes for the best
        // one in each step.
        Some(of_counts) if space.types.len() > 1 || space.shares.is_some() => of_counts,
        Some(of_counts) => best.value.score().max(of_counts),
        None => best.value.score(),
    };
    let mut bound = known.bound + best.busy.score();
    if space.shares.is_some() {
        // A forecast goes on with a plan for as long as its nodes last, also where hosts will have less.
        bound = bound.max(best.value.score());
    }
    let gap = ((bound - score) / score.abs()).max(0.0);
    best.plan.proof = gap.is_finite().then_some(OptimalityProof { bound, gap, by: known.by });
    best.plan
}

/// Whether a plan is one at all.
fn is_valid_plan(space: &DecisionSpace<'_>, laid: &PlacementResult) -> bool {
    keeps_turns(space, laid) && keeps_guarantees(space, laid)
}

/// Whether each job makes what it is promised that can.
fn keeps_guarantees(space: &DecisionSpace<'_>, laid: &PlacementResult) -> bool {
    space.promises.kept.iter().all(|job| {
        let job = space.jobs[*job].job;
        let planned = laid.plan.job_plan(job.id).zip(job.active_guarantee());
        planned.is_some_and(|(planned, promise)| {
            let gap = planned.nodes.first().and_then(|placement| space.problem.gap_at(&placement.node));
            let nodes = planned.nodes.len() as u32;
            gap.is_some_and(|gap| promise.is_enough(&gap.node_type, &planned.exec_plan, nodes))
        })
    })
}

/// Whether no job is parked in its turn that could stay as it is.
fn keeps_turns(space: &DecisionSpace<'_>, laid: &PlacementResult) -> bool {
    let problem = space.problem;
    let must_keep = |job: &JobSpace<'_>| {
        job.can_stay && job.job.keeps_min_size() && !problem.drain && !problem.is_barred(job.job)
    };
    let is_parked = |job: JobId| laid.plan.job_plan(job).is_none_or(|planned| planned.nodes.is_empty());
    space.jobs.iter().filter(|job| must_keep(job)).all(|job| !is_parked(job.job.id))
}
