//! A plan without a solver. It starts from the present state, from a knapsack, and from multipliers, and
//! improves each schedule one job at a time.
//!
//! It is the plan in hand before the solver is asked, the solver's first incumbent, and the plan where
//! there is no solver. With one step it is exact wherever the knapsack is; with more, the bound that
//! comes with the multipliers says how good it is.

use infill_model::BoundSource;

use super::branch;
use super::exchange::{self, ExchangeTerms};
use super::first_step;
use super::initial_schedules::{keep_all, schedule_from_choice, schedule_from_multipliers};
use super::local_search::{polish_schedule, repeat_sweeps, sweep_jobs};
use super::multipliers::{self, LagrangianBound, MultiplierStart};
use super::path_pool::PathPool;
use super::rebuild;
use super::tolerance::SAME_SCORE;
use crate::plan::space::decision::{DecisionSpace, Schedule};

/// Iterations of prices from one schedule to the next: neighbours are alike, and early prices are far off.
const PRICES_A_SCHEDULE: usize = 5;

/// Most options that one sweep of each of these schedules looks at: some tenths of a second. Where very
/// many jobs compete there are fewer schedules.
const MAX_OPERATIONS: usize = 5_000_000;

/// Schedules that are made from prices at least.
const MIN_SCHEDULES: usize = 2;

/// Schedules that are improved by exchanges.
const KEPT_SCHEDULES: usize = 3;

/// Paths of all jobs together from which exchanges choose.
const MAX_PATHS: usize = 3_600;

/// Paths of each job from which they choose at least, as long as all together are not more than the most.
const MIN_PATHS: usize = 100;
const MAX_PATHS_IN_ALL: usize = 30_000;

/// Paths that are tried in exchanges, for each job, at least and at most: some milliseconds to some tens.
const TRIES_A_JOB: usize = 6_000;
const MIN_TRIES: usize = 120_000;
const MAX_TRIES: usize = 1_200_000;

/// Options of a sweep that are as much work as trying one path.
const OPTIONS_A_TRY: usize = 4;

/// Exchanges that gain less than this share of the gap that is good enough are not looked for.
const EXCHANGE_SHARE: f64 = 0.1;

/// A feasible schedule, and a bound on the best possible one.
#[derive(Clone, Debug)]
pub(crate) struct Incumbent {
    /// The schedule.
    pub schedule: Schedule,
    /// Its score.
    pub score: f64,
    /// Other good schedules, the best first: for when the counts of the best cannot be laid on named
    /// nodes as they are.
    pub others: Vec<Schedule>,
    /// The multipliers, and what they prove.
    pub priced: LagrangianBound,
    /// No schedule scores more than this.
    pub bound: f64,
    /// What proves it.
    pub by: BoundSource,
}

impl Incumbent {
    /// Whether the bound proves that no schedule is better by more than this share.
    pub fn is_within(&self, gap: f64) -> bool {
        self.bound - self.score <= gap * self.score.abs()
    }

    /// (bound − score) / score, not negative; `None` if nothing scores anything.
    pub fn relative_gap(&self) -> Option<f64> {
        let gap = (self.bound - self.score) / self.score.abs();
        Some(gap.max(0.0)).filter(|gap| gap.is_finite())
    }
}

/// The best schedule that we find without a solver. It is always feasible.
pub(crate) fn find_incumbent(space: &DecisionSpace<'_>) -> Incumbent {
    let mut best = BestSchedules::new(space, keep_all(space));
    let several_steps = space.steps.len() > 1;
    if let Some(answer) = several_steps.then(|| first_step::solve_knapsack(space)).flatten() {
        best.offer(schedule_from_choice(space, &answer.choice));
    }
    let known = best.score();
    let start = MultiplierStart::whole_space(space);
    let schedules = (MAX_OPERATIONS / count_options(space).max(1)).max(MIN_SCHEDULES);
    let prices_a_schedule = (start.iterations / schedules).max(PRICES_A_SCHEDULE);
    let priced = multipliers::optimize_multipliers(space, start, known, |iteration, prices, relaxed| {
        if iteration % prices_a_schedule == prices_a_schedule - 1 {
            best.offer(schedule_from_multipliers(space, None, prices, relaxed));
        }
        best.score()
    });
    let bound = priced.bound;
    let mut in_hand = Incumbent {
        schedule: Vec::new(),
        score: best.score(),
        others: Vec::new(),
        priced,
        bound,
        by: BoundSource::Multipliers,
    };
    if !in_hand.is_within(space.problem.config.mip_gap) {
        best.exchange_best(&in_hand.priced);
        best.rebuild_best(&in_hand.priced);
        // With one step it is exact.
        if let Some(answer) = (!several_steps).then(|| first_step::solve_knapsack(space)).flatten() {
            best.offer(schedule_from_choice(space, &answer.choice));
            if let Some(optimum) = answer.optimum.filter(|optimum| *optimum < in_hand.bound) {
                in_hand.bound = optimum;
                in_hand.by = BoundSource::Knapsack;
            }
        }
    }
    in_hand.score = best.score();
    if !in_hand.is_within(space.problem.config.mip_gap) {
        let bound =
            branch::branch_and_bound(space, &in_hand.priced, in_hand.score, |schedule| best.offer(schedule));
        if bound < in_hand.bound {
            in_hand.bound = bound;
            in_hand.by = BoundSource::Branches;
        }
    }
    let mut schedules = best.schedules.into_iter().map(|(_, schedule)| schedule);
    in_hand.schedule = polish_schedule(space, schedules.next().unwrap_or_else(|| space.base_schedule()));
    in_hand.score = space.score(&in_hand.schedule);
    in_hand.others = schedules.collect();
    in_hand
}

/// Options that a sweep looks at.
fn count_options(space: &DecisionSpace<'_>) -> usize {
    space.jobs.iter().map(|job| job.options.len()).sum::<usize>() * space.steps.len()
}

/// The best schedules that were found so far, the best first.
struct BestSchedules<'a> {
    space: &'a DecisionSpace<'a>,
    schedules: Vec<(f64, Schedule)>,
}

impl<'a> BestSchedules<'a> {
    fn new(space: &'a DecisionSpace<'a>, schedule: Schedule) -> Self {
        let mut found = BestSchedules { space, schedules: Vec::new() };
        found.offer(schedule);
        found
    }

    fn score(&self) -> f64 {
        self.schedules.first().map_or(f64::NEG_INFINITY, |(score, _)| *score)
    }

    /// Takes in a schedule, improved, if it is one of the best; returns the best score.
    fn offer(&mut self, mut schedule: Schedule) -> f64 {
        repeat_sweeps(self.space, &mut schedule);
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
        self.schedules.truncate(KEPT_SCHEDULES);
    }

    /// Rebuilds the best of them where nodes are of several types. With one type, exchanges nearly
    /// always come as near to the bound as is good enough; of few jobs, they try all groups.
    fn rebuild_best(&mut self, priced: &LagrangianBound) {
        let Some((score, schedule)) = self.schedules.first().cloned() else { return };
        let good_enough = self.space.problem.config.mip_gap * score.abs();
        let is_worth_it = self.space.types.len() > 1 && self.space.jobs.len() > exchange::MOST_JOBS;
        if is_worth_it && priced.bound - score > good_enough {
            self.offer(rebuild::improve_by_rebuild(self.space, priced, &schedule, good_enough));
        }
    }

    /// Improves all of them by exchanges between two jobs.
    fn exchange_best(&mut self, priced: &LagrangianBound) {
        let slack = (priced.bound - self.score()).max(0.0);
        let jobs = self.space.jobs.len();
        let each = |all: usize| all / jobs.max(1);
        let most = each(MAX_PATHS).max(MIN_PATHS).min(each(MAX_PATHS_IN_ALL).max(1));
        let pools: Vec<PathPool> =
            (0..jobs).map(|job| PathPool::within_regret(self.space, job, priced, slack, most)).collect();
        let good_enough = self.space.problem.config.mip_gap * self.score().abs();
        let least = good_enough * EXCHANGE_SHARE;
        let terms = ExchangeTerms { pools: &pools, priced, least };
        let mut tries = (TRIES_A_JOB * pools.len()).clamp(MIN_TRIES, MAX_TRIES);
        let a_sweep = count_options(self.space) / OPTIONS_A_TRY;
        for (_, mut schedule) in self.schedules.clone() {
            while exchange::improve_by_exchange(self.space, terms, &mut tries, &mut schedule)
                && sweep_jobs(self.space, &mut schedule)
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
