//! Schedules to start from: what is kept, what was chosen for the first step, what prices make.

use super::path::{self, Gains};
use crate::plan::space::decision::{Schedule, Space};

/// The schedule in which each job keeps what it has for as long as that lasts; what must change makes the
/// best of what is left.
pub(crate) fn keep_all(space: &Space<'_>) -> Schedule {
    let keeps = |job: usize| space.jobs[job].options.iter().position(|o| o.keeps && o.now);
    let choice: Vec<Option<usize>> = (0..space.jobs.len()).map(keeps).collect();
    lay_chosen(space, &choice)
}

/// Gives each job in turn its best path that begins with its chosen option, those first whose option earns
/// most for each node.
pub(crate) fn lay_chosen(space: &Space<'_>, choice: &[Option<usize>]) -> Schedule {
    let density = |job: usize| match choice[job] {
        Some(o) => space.first_gain(job, o) / space.places(job, o).max(1.0),
        None => f64::NEG_INFINITY,
    };
    lay(space, density, |job, left| {
        let mut free = path::earnings(space, job, None);
        path::restrict(space, job, left, &mut free);
        let mut pinned = free.clone();
        choice[job].into_iter().for_each(|option| path::pin(&mut pinned, option));
        path::best(space, job, &pinned).or_else(|| path::best(space, job, &free))
    })
}

/// Gives each job in turn its path of the relaxed schedule, or if that does not fit its best path under the
/// prices, those first whose path earns most for each node-second.
pub(crate) fn lay_priced(
    space: &Space<'_>,
    gains: Gains<'_>,
    prices: &[f64],
    relaxed: &Schedule,
) -> Schedule {
    let density = |job: usize| {
        let path = &relaxed[job];
        let nodes = |(step, o): (usize, &usize)| space.places(job, *o) * space.steps.secs(step);
        space.path_score(job, path) / path.iter().enumerate().map(nodes).sum::<f64>().max(1.0)
    };
    lay(space, density, |job, left| {
        let mut earnings = path::earnings_of(space, job, gains, prices);
        path::restrict(space, job, left, &mut earnings);
        path::best(space, job, &earnings)
    })
}

/// Gives each job in turn the path that `choose` finds in what is left: jobs without a choice now first, then
/// by falling `density`.
fn lay(
    space: &Space<'_>,
    density: impl Fn(usize) -> f64,
    choose: impl Fn(usize, &[i64]) -> Option<(Vec<usize>, f64)>,
) -> Schedule {
    let is_free = |job: usize| space.jobs[job].options.iter().filter(|o| o.now).count() > 1;
    let mut order: Vec<(bool, f64, usize)> =
        (0..space.jobs.len()).map(|job| (is_free(job), density(job), job)).collect();
    order.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    let mut schedule = space.at_rest();
    let mut left = space.left(&schedule);
    for (_, _, job) in order {
        space.take(&mut left, job, &schedule[job], -1);
        if let Some((path, _)) = choose(job, &left) {
            schedule[job] = path;
        }
        space.take(&mut left, job, &schedule[job], 1);
    }
    schedule
}
