//! A plan without a solver: starts from what is kept, from a knapsack, and from prices, each improved
//! one job at a time.
//!
//! It is the plan in hand before the solver is asked, the solver's first incumbent, and the plan where
//! there is no solver. With one step it is exact wherever the knapsack is; with more, the bound that
//! comes with the prices says how good it is.

use infill_model::BoundSource;

use super::alike::SAME_SCORE;
use super::branch;
use super::exchange::{self, Terms};
use super::first_step;
use super::pool::Pool;
use super::prices::{self, Priced, Start};
use super::rebuild;
use super::starts::{keep_all, lay_chosen, lay_priced};
use super::sweep::{polish, sweep, sweeps};
use crate::plan::space::decision::{Schedule, Space};

/// A schedule is made from every so many iterations of prices: early prices are far off, and neighbours
/// alike.
const PRICES_A_SCHEDULE: usize = 5;

/// Most options that one sweep of each of these schedules looks at: some tenths of a second. Where very
/// many jobs compete there are fewer schedules.
const MOST_OPERATIONS: usize = 5_000_000;

/// Schedules that are made from prices at least.
const FEWEST_SCHEDULES: usize = 2;

/// Schedules that are improved by exchanges.
const KEPT: usize = 3;

/// Paths of all jobs together from which exchanges choose.
const MOST_PATHS: usize = 3_600;

/// Paths of each job from which they choose at least, as long as all together are not more than the most.
const FEWEST_PATHS: usize = 100;
const MOST_PATHS_IN_ALL: usize = 30_000;

/// Paths that are tried in exchanges, for each job, at least and at most: some milliseconds to some tens.
const TRIES_A_JOB: usize = 6_000;
const FEWEST_TRIES: usize = 120_000;
const MOST_TRIES: usize = 1_200_000;

/// So many options that a sweep looks at are as much work as a path that is tried.
const OPTIONS_A_TRY: usize = 4;

/// Exchanges that gain less than this share of the gap that is good enough are not looked for.
const EXCHANGE_SHARE: f64 = 0.1;

/// A feasible schedule and what is known of the best possible one.
#[derive(Clone, Debug)]
pub(crate) struct InHand {
    /// The schedule.
    pub schedule: Schedule,
    /// Its score.
    pub score: f64,
    /// Other good schedules, the best first: for when the counts of the best cannot be laid on named
    /// nodes as they are.
    pub others: Vec<Schedule>,
    /// Prices and what they prove.
    pub priced: Priced,
    /// No schedule scores more than this.
    pub bound: f64,
    /// What proves it.
    pub by: BoundSource,
}

impl InHand {
    /// Whether the bound proves that no schedule is better by more than this share.
    pub fn is_within(&self, gap: f64) -> bool {
        self.bound - self.score <= gap * self.score.abs()
    }

    /// (bound − score) / score, not negative; `None` if nothing scores anything.
    pub fn gap(&self) -> Option<f64> {
        let gap = (self.bound - self.score) / self.score.abs();
        Some(gap.max(0.0)).filter(|gap| gap.is_finite())
    }
}

/// The best schedule that we find without a solver. It is always feasible.
pub(crate) fn solve(space: &Space<'_>) -> InHand {
    let mut best = Found::new(space, keep_all(space));
    let several_steps = space.steps.len() > 1;
    if let Some(answer) = several_steps.then(|| first_step::choose(space)).flatten() {
        best.offer(lay_chosen(space, &answer.choice));
    }
    let known = best.score();
    let start = Start::of(space);
    let schedules = (MOST_OPERATIONS / options(space).max(1)).max(FEWEST_SCHEDULES);
    let prices_a_schedule = (start.iterations / schedules).max(PRICES_A_SCHEDULE);
    let priced = prices::search(space, start, known, |iteration, prices, relaxed| {
        if iteration % prices_a_schedule == prices_a_schedule - 1 {
            best.offer(lay_priced(space, None, prices, relaxed));
        }
        best.score()
    });
    let bound = priced.bound;
    let (schedule, others, by) = (Vec::new(), Vec::new(), BoundSource::Prices);
    let mut in_hand = InHand { score: best.score(), schedule, others, priced, bound, by };
    if !in_hand.is_within(space.problem.config.mip_gap) {
        best.exchange(&in_hand.priced);
        best.rebuild(&in_hand.priced);
        // With one step it is exact.
        if let Some(answer) = (!several_steps).then(|| first_step::choose(space)).flatten() {
            best.offer(lay_chosen(space, &answer.choice));
            if let Some(optimum) = answer.optimum.filter(|optimum| *optimum < in_hand.bound) {
                (in_hand.bound, in_hand.by) = (optimum, BoundSource::Knapsack);
            }
        }
    }
    in_hand.score = best.score();
    if several_steps && !in_hand.is_within(space.problem.config.mip_gap) {
        let bound = branch::search(space, &in_hand.priced, in_hand.score, |schedule| best.offer(schedule));
        if bound < in_hand.bound {
            (in_hand.bound, in_hand.by) = (bound, BoundSource::Branches);
        }
    }
    let mut schedules = best.schedules.into_iter().map(|(_, schedule)| schedule);
    in_hand.schedule = polish(space, schedules.next().unwrap_or_else(|| space.at_rest()));
    in_hand.score = space.score(&in_hand.schedule);
    in_hand.others = schedules.collect();
    in_hand
}

/// Options that a sweep looks at.
fn options(space: &Space<'_>) -> usize {
    space.jobs.iter().map(|job| job.options.len()).sum::<usize>() * space.steps.len()
}

/// The best schedules that were found so far, the best first.
struct Found<'a> {
    space: &'a Space<'a>,
    schedules: Vec<(f64, Schedule)>,
}

impl<'a> Found<'a> {
    fn new(space: &'a Space<'a>, schedule: Schedule) -> Self {
        let mut found = Found { space, schedules: Vec::new() };
        found.offer(schedule);
        found
    }

    fn score(&self) -> f64 {
        self.schedules.first().map_or(f64::NEG_INFINITY, |(score, _)| *score)
    }

    /// Takes in a schedule, improved, if it is one of the best; returns the best score.
    fn offer(&mut self, mut schedule: Schedule) -> f64 {
        sweeps(self.space, &mut schedule);
        self.insert(schedule);
        self.score()
    }

    fn insert(&mut self, schedule: Schedule) {
        let score = self.space.score(&schedule);
        let known = |(s, _): &(f64, Schedule)| (s - score).abs() <= SAME_SCORE * score.abs().max(1.0);
        if self.schedules.iter().any(known) || !self.space.is_feasible(&schedule) {
            return;
        }
        let place = self.schedules.partition_point(|(s, _)| *s >= score);
        self.schedules.insert(place, (score, schedule));
        self.schedules.truncate(KEPT);
    }

    /// Rebuilds the best of them where nodes are of several types. With one type, exchanges nearly
    /// always come as near to the bound as is good enough; of few jobs, they try all groups.
    fn rebuild(&mut self, priced: &Priced) {
        let Some((score, schedule)) = self.schedules.first().cloned() else { return };
        let good_enough = self.space.problem.config.mip_gap * score.abs();
        let is_worth_it = self.space.types.len() > 1 && self.space.jobs.len() > exchange::MOST_JOBS;
        if is_worth_it && priced.bound - score > good_enough {
            self.offer(rebuild::improve(self.space, priced, &schedule, good_enough));
        }
    }

    /// Improves all of them by exchanges between two jobs.
    fn exchange(&mut self, priced: &Priced) {
        let slack = (priced.bound - self.score()).max(0.0);
        let jobs = self.space.jobs.len();
        let each = |all: usize| all / jobs.max(1);
        let most = each(MOST_PATHS).max(FEWEST_PATHS).min(each(MOST_PATHS_IN_ALL).max(1));
        let pools: Vec<Pool> = (0..jobs).map(|job| Pool::of(self.space, job, priced, slack, most)).collect();
        let good_enough = self.space.problem.config.mip_gap * self.score().abs();
        let least = good_enough * EXCHANGE_SHARE;
        let terms = Terms { pools: &pools, priced, least };
        let mut tries = (TRIES_A_JOB * pools.len()).clamp(FEWEST_TRIES, MOST_TRIES);
        let a_sweep = options(self.space) / OPTIONS_A_TRY;
        for (_, mut schedule) in self.schedules.clone() {
            while exchange::improve(self.space, terms, &mut tries, &mut schedule)
                && sweep(self.space, &mut schedule)
                && tries > 0
            {
                tries = tries.saturating_sub(a_sweep);
            }
            self.insert(schedule);
            if priced.bound - self.score() <= good_enough {
                break;
            }
        }
    }
}
