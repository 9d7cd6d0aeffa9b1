//! Improves a schedule one job at a time.

use super::alike::SAME_SCORE;
use super::path;
use crate::plan::space::{
    decision::{Schedule, Space},
    spec::Spec,
};

/// Rounds of improvement after which we stop even if another might still gain.
const MAX_SWEEPS: usize = 6;

/// Improves a feasible schedule, one job at a time, until nothing gains; then gives seniors their due.
pub(crate) fn polish(space: &Space<'_>, mut schedule: Schedule) -> Schedule {
    sweeps(space, &mut schedule);
    for _ in 0..MAX_SWEEPS {
        if !(seniors_first(space, &mut schedule) && sweep(space, &mut schedule)) {
            break;
        }
    }
    schedule
}

/// The same without what is due to seniors.
pub(crate) fn sweeps(space: &Space<'_>, schedule: &mut Schedule) {
    for _ in 0..MAX_SWEEPS {
        if !sweep(space, schedule) {
            break;
        }
    }
}

/// Gives each job in turn its best path in what the others leave; says whether that gained anything.
pub(crate) fn sweep(space: &Space<'_>, schedule: &mut Schedule) -> bool {
    let mut left = space.left(schedule);
    let mut gained = false;
    for (job, path) in schedule.iter_mut().enumerate() {
        let old = space.path_score(job, path);
        space.take(&mut left, job, path, -1);
        let mut earnings = path::earnings(space, job, None);
        path::restrict(space, job, &left, &mut earnings);
        if let Some((better, score)) = path::best(space, job, &earnings)
            && score > old + SAME_SCORE * old.abs().max(1.0)
        {
            *path = better;
            gained = true;
        }
        space.take(&mut left, job, path, 1);
    }
    gained
}

/// Where a waiting job could have exactly the path of one that entered the queue later and starts now, they
/// change places if that costs nothing.
fn seniors_first(space: &Space<'_>, schedule: &mut Schedule) -> bool {
    let waits = |job: usize| space.jobs[job].job.held.is_empty();
    let mut by_age: Vec<usize> = (0..space.jobs.len()).filter(|job| waits(*job)).collect();
    by_age.sort_by_key(|job| (space.jobs[*job].job.submitted_at, space.jobs[*job].job.id));
    let mut changed = false;
    for (i, old) in by_age.iter().enumerate() {
        for young in &by_age[i + 1..] {
            if schedule[*old].iter().any(|o| *o != 0) || schedule[*young].iter().all(|o| *o == 0) {
                continue;
            }
            let Some(path) = same_path(space, *young, &schedule[*young], *old) else { continue };
            let mut other = schedule.clone();
            other[*young] = schedule[*old].clone();
            other[*old] = path;
            if space.is_feasible(&other) && space.score(&other) >= space.score(schedule) {
                *schedule = other;
                changed = true;
            }
        }
    }
    changed
}

/// The path of another job that takes the same nodes in each step.
fn same_path(space: &Space<'_>, of: usize, path: &[usize], to: usize) -> Option<Vec<usize>> {
    let same = |option: &usize| {
        let spec = &space.jobs[of].options[*option];
        let alike = |o: &Spec| (o.nodes, o.node_type) == (spec.nodes, spec.node_type);
        space.jobs[to].options.iter().position(|o| o.family == spec.family && alike(o))
    };
    path.iter().map(same).collect()
}
