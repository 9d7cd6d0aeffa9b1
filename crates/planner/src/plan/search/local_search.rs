//! Improves a schedule one job at a time.

use std::collections::BTreeSet;

use super::path;
use super::tolerance::SAME_SCORE;
use crate::plan::space::{
    decision::{DecisionSpace, Schedule},
    job_option::JobOption,
};

/// Rounds of improvement after which we stop even if another might still gain.
const MAX_SWEEPS: usize = 6;

/// Most pairs of a waiting job and a younger one that one search for such exchanges tries.
const MOST_PAIRS: usize = 20_000;

/// Improves a feasible schedule, one job at a time, until nothing gains. Then jobs that wait longer take
/// precedence.
pub(crate) fn polish_schedule(space: &DecisionSpace<'_>, mut schedule: Schedule) -> Schedule {
    repeat_sweeps(space, &mut schedule);
    for _ in 0..MAX_SWEEPS {
        if !(favour_seniors(space, &mut schedule) && sweep_jobs(space, &mut schedule)) {
            break;
        }
    }
    schedule
}

/// Improves a feasible schedule, one job at a time, until nothing gains.
pub(crate) fn repeat_sweeps(space: &DecisionSpace<'_>, schedule: &mut Schedule) {
    for _ in 0..MAX_SWEEPS {
        if !sweep_jobs(space, schedule) {
            break;
        }
    }
}

/// Gives each job in turn its best path in what the others leave; says whether that gained anything.
pub(crate) fn sweep_jobs(space: &DecisionSpace<'_>, schedule: &mut Schedule) -> bool {
    let mut left = space.limits_left(schedule);
    let mut gained = false;
    for (job, path) in schedule.iter_mut().enumerate() {
        let old = space.path_score(job, path);
        space.take_path(&mut left, job, path, -1);
        let mut earnings = path::earnings_table(space, job, None);
        path::forbid_unfitting(space, job, &left, &mut earnings);
        if let Some((better, score)) = path::best_path(space, job, &earnings)
            && score > old + SAME_SCORE * old.abs().max(1.0)
        {
            *path = better;
            gained = true;
        }
        space.take_path(&mut left, job, path, 1);
    }
    gained
}

/// Exchanges a waiting job with a younger one that starts now, if it can take the same path and that costs
/// nothing.
fn favour_seniors(space: &DecisionSpace<'_>, schedule: &mut Schedule) -> bool {
    let waits = |job: usize| space.jobs[job].job.held.is_empty();
    let mut by_age: Vec<usize> = (0..space.jobs.len()).filter(|job| waits(*job)).collect();
    by_age.sort_by_key(|job| (space.jobs[*job].job.submitted_at, space.jobs[*job].job.id));
    // Places in `by_age` of jobs that have something: few, however many wait.
    let mut having: BTreeSet<usize> = (0..by_age.len())
        .filter(|place| schedule[by_age[*place]].iter().any(|option| *option != 0))
        .collect();
    let mut left = space.limits_left(schedule);
    let mut tries = MOST_PAIRS;
    let mut changed = false;
    for (place, old) in by_age.iter().enumerate() {
        if having.contains(&place) {
            continue;
        }
        let mut after = having.range(place + 1..).take(tries);
        let young = after.find(|young| {
            tries = tries.saturating_sub(1);
            swap_paths(space, schedule, &mut left, by_age[**young], *old)
        });
        let Some(young) = young.copied() else { continue };
        having.remove(&young);
        having.insert(place);
        changed = true;
    }
    changed
}

/// Exchanges the paths of a young job and of an old one that has nothing, if that is possible and costs
/// nothing.
fn swap_paths(
    space: &DecisionSpace<'_>,
    schedule: &mut Schedule,
    left: &mut [i64],
    young: usize,
    old: usize,
) -> bool {
    let Some(path) = equivalent_path(space, young, &schedule[young], old) else { return false };
    let before = schedule[young].clone();
    let nothing = schedule[old].clone();
    let scores = |young_path: &[usize], old_path: &[usize]| {
        space.path_score(young, young_path) + space.path_score(old, old_path)
    };
    let is_allowed = |job: usize, path: &[usize]| {
        path.iter().enumerate().all(|(step, option)| space.is_allowed(job, *option, step))
    };
    if scores(&nothing, &path) < scores(&before, &nothing)
        || !(is_allowed(young, &nothing) && is_allowed(old, &path))
    {
        return false;
    }
    let uses = |left: &mut [i64], young_path: &[usize], old_path: &[usize], sign: i64| {
        space.take_path(left, young, young_path, sign);
        space.take_path(left, old, old_path, sign);
    };
    uses(left, &before, &nothing, -1);
    uses(left, &nothing, &path, 1);
    let fits = left.iter().all(|left| *left >= 0);
    if fits {
        (schedule[young], schedule[old]) = (nothing, path);
    } else {
        uses(left, &nothing, &path, -1);
        uses(left, &before, &nothing, 1);
    }
    fits
}

/// The path of another job that takes the same nodes in each step.
fn equivalent_path(space: &DecisionSpace<'_>, of: usize, path: &[usize], to: usize) -> Option<Vec<usize>> {
    let mut found = Vec::with_capacity(path.len());
    for option in path {
        let spec = &space.jobs[of].options[*option];
        let is_alike = |other: &JobOption| {
            other.family == spec.family && other.nodes == spec.nodes && other.node_type == spec.node_type
        };
        found.push(space.jobs[to].options.iter().position(is_alike)?);
    }
    Some(found)
}
