//! Improves a schedule by giving a few jobs new paths at once: what one job leaves the others may need.
//!
//! A schedule falls short of the bound by the regrets of its paths and by the worth of unused limits (see
//! `path_pool`). So a group of jobs gains at most the sum of both, and a search among paths of rising regret
//! soon ends.

use super::multipliers::LagrangianBound;
use super::path_pool::PathPool;
use super::tolerance::SAME_SCORE;
use crate::plan::space::decision::{DecisionSpace, Schedule};

/// Largest group.
pub(super) const MOST_JOBS: usize = 4;

/// What an improvement needs, apart from the schedule.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeTerms<'a> {
    /// For each job the paths that it may get.
    pub pools: &'a [PathPool],
    /// What units of the limits are worth.
    pub priced: &'a LagrangianBound,
    /// A group that cannot gain so much is not looked at.
    pub least: f64,
}

/// Improves a feasible schedule: by new paths for two jobs at once, then for three, then for four. At most
/// `tries` paths are tried; the number is lowered by those that were. Says whether it gained anything.
pub(crate) fn improve_by_exchange(
    space: &DecisionSpace<'_>,
    terms: ExchangeTerms<'_>,
    tries: &mut usize,
    schedule: &mut Schedule,
) -> bool {
    let mut state = ExchangeState::new(space, terms, *tries, schedule);
    let jobs = schedule.len();
    let mut gained = false;
    let mut size = 2;
    while size <= MOST_JOBS.min(jobs) && state.tries > 0 {
        let mut order: Vec<usize> = (0..jobs).collect();
        order.sort_by(|a, b| state.regrets[*b].total_cmp(&state.regrets[*a]).then(a.cmp(b)));
        if state.try_groups(schedule, &order, &mut Vec::new(), size) {
            gained = true;
            size = 2;
        } else {
            size += 1;
        }
    }
    *tries = state.tries;
    gained
}

/// A schedule with what it uses and leaves.
struct ExchangeState<'a> {
    terms: ExchangeTerms<'a>,
    regrets: Vec<f64>,
    uses: Vec<Vec<i64>>,
    left: Vec<i64>,
    /// Paths that may still be tried.
    tries: usize,
}

/// The best new paths of a group so far: what they fall short of the bound, and which.
struct BetterPaths {
    short: f64,
    paths: Vec<usize>,
    found: bool,
    /// The paths that are being tried.
    path: Vec<usize>,
    /// What is free before the first of them, and what each leaves, one after the other.
    rooms: Vec<i64>,
}

impl<'a> ExchangeState<'a> {
    fn new(space: &DecisionSpace<'_>, terms: ExchangeTerms<'a>, tries: usize, schedule: &Schedule) -> Self {
        let left = space.limits_left(schedule);
        let mut all_uses = Vec::with_capacity(schedule.len());
        let mut regrets = Vec::with_capacity(schedule.len());
        for (job, path) in schedule.iter().enumerate() {
            let mut uses = vec![0; left.len()];
            space.take_path(&mut uses, job, path, -1);
            let score = space.path_score(job, path);
            regrets.push(terms.pools[job].path_regret(score, &uses, &terms.priced.prices));
            all_uses.push(uses);
        }
        ExchangeState { terms, regrets, uses: all_uses, left, tries }
    }

    /// The worth of unused limits under the prices.
    fn leftover_value(&self) -> f64 {
        priced_value(&self.left, &self.terms.priced.prices)
    }

    /// Tries all groups that add so `many` jobs out of `order` to `group`.
    fn try_groups(
        &mut self,
        schedule: &mut Schedule,
        order: &[usize],
        group: &mut Vec<usize>,
        many: usize,
    ) -> bool {
        if many == 0 {
            return self.exchange_group(schedule, group);
        }
        let mut gained = false;
        for (i, job) in order.iter().enumerate() {
            let most: f64 = group.iter().chain(order[i..].iter().take(many)).map(|j| self.regrets[*j]).sum();
            // Jobs further down regret less.
            if most + self.leftover_value() < self.terms.least || self.tries == 0 {
                break;
            }
            group.push(*job);
            gained |= self.try_groups(schedule, &order[i + 1..], group, many - 1);
            group.pop();
        }
        gained
    }

    /// Gives the jobs of a group the best paths of their pools that fit, if they are better than the present
    /// ones.
    fn exchange_group(&mut self, schedule: &mut Schedule, group: &[usize]) -> bool {
        let mut room = self.left.clone();
        for job in group {
            room.iter_mut().zip(&self.uses[*job]).for_each(|(room, n)| *room += n);
        }
        let now = group.iter().map(|job| self.regrets[*job]).sum::<f64>() + self.leftover_value();
        let short = now - SAME_SCORE * (now + priced_value(&room, &self.terms.priced.prices)).abs().max(1.0);
        let path = vec![0; group.len()];
        let mut rooms = room.clone();
        rooms.resize(room.len() * (group.len() + 1), 0);
        let mut better = BetterPaths { short, paths: path.clone(), found: false, path, rooms };
        let tries = self.tries;
        self.search_paths(group, 0, 0.0, &mut better);
        // A group in which there is nothing to be tried takes time, too.
        self.tries -= usize::from(self.tries == tries && tries > 0);
        if !better.found {
            return false;
        }
        for (job, path) in group.iter().zip(better.paths) {
            let pool = &self.terms.pools[*job];
            schedule[*job] = pool.path_at(path).to_vec();
            self.uses[*job] = pool.uses(path).to_vec();
            self.regrets[*job] = pool.regrets()[path];
            room.iter_mut().zip(&self.uses[*job]).for_each(|(room, n)| *room -= n);
        }
        self.left = room;
        true
    }

    /// Tries the paths of a group's jobs from the one with this number on, in the room that the ones before
    /// it leave.
    fn search_paths(&mut self, group: &[usize], number: usize, regret: f64, better: &mut BetterPaths) {
        let terms = self.terms;
        let Some(pool) = group.get(number).map(|job| &terms.pools[*job]) else { return };
        let limits = self.left.len();
        let is_last = number + 1 == group.len();
        for (path, more) in pool.regrets().iter().enumerate() {
            if regret + more >= better.short || self.tries == 0 {
                break;
            }
            self.tries -= 1;
            let (before, after) = better.rooms.split_at_mut((number + 1) * limits);
            let room = &before[number * limits..];
            let rest = &mut after[..limits];
            let mut fits = true;
            for ((rest, room), n) in rest.iter_mut().zip(room).zip(pool.uses(path)) {
                *rest = room - n;
                fits &= *rest >= 0;
            }
            if !fits {
                continue;
            }
            better.path[number] = path;
            if !is_last {
                self.search_paths(group, number + 1, regret + more, better);
                continue;
            }
            let short = regret + more + priced_value(rest, &terms.priced.prices);
            if short < better.short {
                better.short = short;
                better.found = true;
                better.paths.clone_from(&better.path);
            }
        }
    }
}

/// What amounts are worth under the prices.
fn priced_value(amounts: &[i64], prices: &[f64]) -> f64 {
    amounts.iter().zip(prices).map(|(amount, price)| *amount as f64 * price).sum()
}
