//! Improves a schedule by taking some jobs out of it and putting them back in another order, again and
//! again: ruin and recreate (Schrimpf et al. 2000) with record-to-record travel (Dueck 1993).
//!
//! With nodes of several types, a better schedule often gives new paths to five jobs or more at once: one
//! job moves to another type, and others share what it leaves. Exchanges cannot try all groups of that
//! size. Here groups are drawn. Each job of a group in turn takes the path of least regret that fits, now
//! and then a later one; the last job takes the path that earns most. A schedule that is slightly worse
//! than the best one is gone on with, so that the search leaves local optima.

use super::multipliers::LagrangianBound;
use super::path_pool::PathPool;
use super::reroute::{self, FIRST_THRESHOLD};
use super::seeded_draws::SeededDraws;
use crate::plan::space::decision::{DecisionSpace, Schedule};

/// Most jobs whose paths come from the dynamic program (see `reroute`). Paths of more jobs come from pools.
const FEW_JOBS: usize = 24;

/// Most jobs that are rebuilt. For more, the pools alone would take too long, and a job weighs little.
const MOST_JOBS: usize = 400;

/// Paths of all jobs together.
const MOST_PATHS: usize = 8_000;

/// Paths that are tried: about a tenth of a second.
const MOST_TRIES: usize = 18_000_000;

/// Smallest and largest group.
const GROUP: std::ops::RangeInclusive<usize> = 2..=20;

/// One in this many paths that fit is passed over.
const PASSED_OVER: usize = 12;

/// The best schedule that is found from a feasible one on. The search ends early with one that falls
/// short of the bound by no more than `enough`.
pub(crate) fn improve_by_rebuild(
    space: &DecisionSpace<'_>,
    priced: &LagrangianBound,
    schedule: &Schedule,
    enough: f64,
) -> Schedule {
    let jobs = space.jobs.len();
    if jobs <= FEW_JOBS {
        return reroute::improve_by_reroute(space, priced, schedule, enough);
    }
    if jobs > MOST_JOBS {
        return schedule.clone();
    }
    rebuild_from_pools(space, priced, schedule, enough, MOST_TRIES)
}

/// Rebuilds groups from paths out of pools. The search tries at most `tries` paths.
pub(super) fn rebuild_from_pools(
    space: &DecisionSpace<'_>,
    priced: &LagrangianBound,
    schedule: &Schedule,
    enough: f64,
    tries: usize,
) -> Schedule {
    let jobs = space.jobs.len();
    let slack = (priced.bound - space.score(schedule)).max(0.0);
    let mut pools = Vec::with_capacity(jobs);
    let mut chosen = Vec::with_capacity(jobs);
    for (job, path) in schedule.iter().enumerate() {
        let mut pool = PathPool::with_variety(space, job, priced, slack, MOST_PATHS / jobs.max(1));
        chosen.push(pool.index_of(space, job, path, &priced.prices));
        pools.push(pool);
    }
    let mut rebuild = PoolRebuild::new(&pools, &priced.prices, chosen, space.limits_left(schedule));
    let best = rebuild.run(enough, tries);
    best.iter().zip(&pools).map(|(path, pool)| pool.path_at(*path).to_vec()).collect()
}

/// A schedule of paths out of pools, on its way.
struct PoolRebuild<'a> {
    pools: &'a [PathPool],
    prices: &'a [f64],
    /// What each path of each job pays under the prices.
    paid: Vec<Vec<f64>>,
    /// The path of each job.
    chosen: Vec<usize>,
    /// What these leave of each limit.
    left: Vec<i64>,
    /// What they fall short of the bound.
    short: f64,
    draws: SeededDraws,
    /// Paths that may still be tried.
    tries: usize,
}

impl<'a> PoolRebuild<'a> {
    fn new(pools: &'a [PathPool], prices: &'a [f64], chosen: Vec<usize>, left: Vec<i64>) -> Self {
        let mut paid = Vec::with_capacity(pools.len());
        for pool in pools {
            paid.push((0..pool.regrets().len()).map(|path| priced_value(pool.uses(path), prices)).collect());
        }
        let regrets: f64 = pools.iter().zip(&chosen).map(|(pool, path)| pool.regrets()[*path]).sum();
        let short = regrets + priced_value(&left, prices);
        PoolRebuild { pools, prices, paid, chosen, left, short, draws: SeededDraws::new(0), tries: 0 }
    }

    /// The best path of each job. The search ends after `tries` paths, or once jobs fall short by no more
    /// than `enough`.
    fn run(&mut self, enough: f64, tries: usize) -> Vec<usize> {
        let mut best = self.chosen.clone();
        let mut least = self.short;
        self.tries = tries;
        while self.tries > 0 && least > enough {
            let threshold = FIRST_THRESHOLD * least * self.tries as f64 / tries as f64;
            self.rebuild_group(least + threshold);
            if self.short < least {
                least = self.short;
                best.clone_from(&self.chosen);
            }
        }
        best
    }

    /// Takes a group out and puts it back, if all then falls short by less than `most`.
    fn rebuild_group(&mut self, most: f64) {
        let group = self.draw_group();
        self.tries = self.tries.saturating_sub(group.len());
        let mut room = self.left.clone();
        let mut regret = self.short - priced_value(&self.left, self.prices);
        for job in &group {
            let pool = &self.pools[*job];
            let path = self.chosen[*job];
            add_uses(&mut room, pool.uses(path), 1);
            regret -= pool.regrets()[path];
        }
        let mut paths = Vec::with_capacity(group.len());
        for (place, job) in group.iter().enumerate() {
            let found = match place + 1 == group.len() {
                false => self.least_regret_path(*job, &room, most - regret),
                true => self.most_earning_path(*job, &room),
            };
            let Some(path) = found else { return };
            add_uses(&mut room, self.pools[*job].uses(path), -1);
            regret += self.pools[*job].regrets()[path];
            paths.push(path);
            if regret >= most {
                return;
            }
        }
        // The first jobs may have passed over something that is still there.
        for (job, path) in group.iter().zip(&mut paths) {
            let pool = &self.pools[*job];
            add_uses(&mut room, pool.uses(*path), 1);
            let best = self.most_earning_path(*job, &room).unwrap_or(*path);
            regret += pool.regrets()[best] - pool.regrets()[*path];
            *path = best;
            add_uses(&mut room, pool.uses(best), -1);
        }
        let short = regret + priced_value(&room, self.prices);
        if short < most {
            group.iter().zip(paths).for_each(|(job, path)| self.chosen[*job] = path);
            self.left = room;
            self.short = short;
        }
    }

    /// Some jobs, in the order in which they choose. The first that is drawn is, of two, the one that
    /// regrets more.
    fn draw_group(&mut self) -> Vec<usize> {
        let jobs = self.pools.len();
        let size = GROUP.start() + self.draws.draw_below(1 + GROUP.end() - GROUP.start());
        let mut group = self.draws.draw_distinct(size, jobs);
        let other = self.draws.draw_below(jobs);
        let regrets_more = |job: usize, than: usize| {
            self.pools[job].regrets()[self.chosen[job]] > self.pools[than].regrets()[self.chosen[than]]
        };
        if !group.contains(&other) && group.first().is_some_and(|first| regrets_more(other, *first)) {
            group[0] = other;
        }
        let place = self.draws.draw_below(group.len());
        if place < group.len() {
            group.swap(0, place);
        }
        group
    }

    /// The path of least regret that fits, or now and then one after it.
    fn least_regret_path(&mut self, job: usize, room: &[i64], most: f64) -> Option<usize> {
        let pool = &self.pools[job];
        let mut found = None;
        for (path, regret) in pool.regrets().iter().enumerate() {
            if *regret >= most {
                break;
            }
            self.tries = self.tries.saturating_sub(1);
            if uses_fit(pool.uses(path), room) {
                found = Some(path);
                if self.draws.draw_below(PASSED_OVER) != 0 {
                    break;
                }
            }
        }
        found
    }

    /// The path that earns most among those that fit.
    fn most_earning_path(&mut self, job: usize, room: &[i64]) -> Option<usize> {
        let pool = &self.pools[job];
        let mut best = (f64::NEG_INFINITY, None);
        self.tries = self.tries.saturating_sub(pool.regrets().len());
        for (path, (regret, paid)) in pool.regrets().iter().zip(&self.paid[job]).enumerate() {
            if paid - regret > best.0 && uses_fit(pool.uses(path), room) {
                best = (paid - regret, Some(path));
            }
        }
        best.1
    }
}

fn add_uses(room: &mut [i64], uses: &[i64], sign: i64) {
    room.iter_mut().zip(uses).for_each(|(room, n)| *room += sign * n);
}

fn uses_fit(uses: &[i64], room: &[i64]) -> bool {
    uses.iter().zip(room).all(|(n, room)| n <= room)
}

/// What amounts are worth under the prices.
fn priced_value(amounts: &[i64], prices: &[f64]) -> f64 {
    amounts.iter().zip(prices).map(|(amount, price)| *amount as f64 * price).sum()
}
