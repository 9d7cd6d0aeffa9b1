//! Schedules to start from: by what jobs hold, by choices for the first step, and by prices.

use super::path::{self, BranchGains};
use crate::plan::space::decision::{DecisionSpace, Schedule};

/// The schedule in which each job keeps what it has for as long as that lasts; what must change makes the
/// best of what is left.
pub(crate) fn keep_all(space: &DecisionSpace<'_>) -> Schedule {
    let mut choice = Vec::with_capacity(space.jobs.len());
    for job in &space.jobs {
        choice.push(job.options.iter().position(|option| option.keeps && option.now));
    }
    schedule_from_choice(space, &choice)
}

/// Gives each job in turn its best path that begins with its chosen option, those first whose option earns
/// most for each node.
pub(crate) fn schedule_from_choice(space: &DecisionSpace<'_>, choice: &[Option<usize>]) -> Schedule {
    let density = |job: usize| match choice[job] {
        Some(o) => space.first_gain(job, o) / space.places_used(job, o).max(1.0),
        None => f64::NEG_INFINITY,
    };
    build_schedule(space, density, |job, left| {
        let mut free = path::earnings_table(space, job, None);
        path::forbid_unfitting(space, job, left, &mut free);
        let mut pinned = free.clone();
        choice[job].into_iter().for_each(|option| path::pin_first(&mut pinned, option));
        path::best_path(space, job, &pinned).or_else(|| path::best_path(space, job, &free))
    })
}

/// Gives each job in turn its path of the relaxed schedule, or if that does not fit its best path under the
/// prices, those first whose path earns most for each node-second.
pub(crate) fn schedule_from_multipliers(
    space: &DecisionSpace<'_>,
    gains: BranchGains<'_>,
    prices: &[f64],
    relaxed: &Schedule,
) -> Schedule {
    let density = |job: usize| {
        let path = &relaxed[job];
        let nodes = |(step, o): (usize, &usize)| space.places_used(job, *o) * space.steps.secs(step);
        space.path_score(job, path) / path.iter().enumerate().map(nodes).sum::<f64>().max(1.0)
    };
    build_schedule(space, density, |job, left| {
        let mut earnings = path::branch_earnings(space, job, gains, prices);
        path::forbid_unfitting(space, job, left, &mut earnings);
        path::best_path(space, job, &earnings)
    })
}

/// Gives each job in turn the path that `choose` finds in what is left: jobs without a choice now first, then
/// by falling `density`.
fn build_schedule(
    space: &DecisionSpace<'_>,
    density: impl Fn(usize) -> f64,
    choose: impl Fn(usize, &[i64]) -> Option<(Vec<usize>, f64)>,
) -> Schedule {
    let is_free = |job: usize| space.jobs[job].options.iter().filter(|o| o.now).count() > 1;
    let mut order: Vec<(bool, f64, usize)> =
        (0..space.jobs.len()).map(|job| (is_free(job), density(job), job)).collect();
    order.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    let mut schedule = space.base_schedule();
    let mut left = space.limits_left(&schedule);
    for (_, _, job) in order {
        space.take_path(&mut left, job, &schedule[job], -1);
        if let Some((path, _)) = choose(job, &left) {
            schedule[job] = path;
        }
        space.take_path(&mut left, job, &schedule[job], 1);
    }
    schedule
}
