//! A plan without a solver: starts from what is kept, from a knapsack, and from prices, each improved one job
//! at a time.
//!
//! It is the plan in hand before the solver is asked, the solver's first incumbent, and what a round falls
//! back to. With one step it is exact wherever the knapsack is; with more, the bound that comes with the
//! prices says how good it is.

use crate::model::Prover;

use super::exchange::{self, Terms};
use super::pool::Pool;
use super::prices::{self, Priced};
use super::{knapsack, path};
use crate::plan::space::decision::{Schedule, Space};

/// Rounds of improvement after which we stop even if another might still gain.
const MAX_SWEEPS: usize = 6;

/// A schedule is made from every so many iterations of prices: early prices are far off, and neighbours
/// alike.
const PRICES_A_SCHEDULE: usize = 5;

/// Schedules that are improved by exchanges.
const KEPT: usize = 3;

/// Paths of all jobs together from which exchanges choose.
const MOST_PATHS: usize = 3_600;

/// Paths of each job from which they choose at least.
const FEWEST_PATHS: usize = 100;

/// Paths that are tried in exchanges, for each job and at least: some milliseconds.
const TRIES_A_JOB: usize = 6_000;
const FEWEST_TRIES: usize = 120_000;

/// Exchanges that gain less than this share of the gap that is good enough are not looked for.
const EXCHANGE_SHARE: f64 = 0.1;

/// Relative gain below which two schedules count as equal: rounding errors are smaller, tie bonuses larger.
pub const SAME_SCORE: f64 = 1e-11;

/// A feasible schedule and what is known of the best possible one.
#[derive(Clone, Debug)]
pub struct InHand {
    /// The schedule.
    pub schedule: Schedule,
    /// Its score.
    pub score: f64,
    /// Other good schedules, the best first: for when the counts of the best cannot be laid on named nodes as
    /// they are.
    pub others: Vec<Schedule>,
    /// Prices and what they prove.
    pub priced: Priced,
    /// No schedule scores more than this.
    pub bound: f64,
    /// What proves it.
    pub by: Prover,
}

impl InHand {
    /// Whether the bound proves that no schedule is better by more than this share.
    pub fn is_within(&self, gap: f64) -> bool {
        self.bound - self.score <= gap * self.score.abs()
    }
}

impl InHand {
    /// (bound − score) / score, not negative; `None` if nothing scores anything.
    pub fn gap(&self) -> Option<f64> {
        let gap = (self.bound - self.score) / self.score.abs();
        Some(gap.max(0.0)).filter(|gap| gap.is_finite())
    }
}

/// The best schedule that we find without a solver. It is always feasible.
pub fn solve(space: &Space<'_>) -> InHand {
    let mut best = Found::new(space, keep_all(space));
    let several_steps = space.steps.len() > 1;
    if let Some(answer) = several_steps.then(|| knapsack::first_step(space)).flatten() {
        best.offer(lay_chosen(space, &answer.choice));
    }
    let known = best.score();
    let priced = prices::search(space, known, |iteration, prices, relaxed| {
        if iteration % PRICES_A_SCHEDULE == PRICES_A_SCHEDULE - 1 {
            best.offer(lay_priced(space, prices, relaxed));
        }
        best.score()
    });
    let bound = priced.bound;
    let (schedule, others, by) = (Vec::new(), Vec::new(), Prover::Prices);
    let mut in_hand = InHand { score: best.score(), schedule, others, priced, bound, by };
    if !in_hand.is_within(space.problem.config.mip_gap) {
        best.exchange(&in_hand.priced);
        // With one step it is exact.
        if let Some(answer) = (!several_steps).then(|| knapsack::first_step(space)).flatten() {
            best.offer(lay_chosen(space, &answer.choice));
            if let Some(optimum) = answer.optimum.filter(|optimum| *optimum < in_hand.bound) {
                (in_hand.bound, in_hand.by) = (optimum, Prover::Knapsack);
            }
        }
    }
    let mut schedules = best.schedules.into_iter().map(|(_, schedule)| schedule);
    in_hand.schedule = polish(space, schedules.next().unwrap_or_else(|| rest(space)));
    in_hand.score = space.score(&in_hand.schedule);
    in_hand.others = schedules.collect();
    in_hand
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

    /// Takes in a schedule, improved, if it is one of the best.
    fn offer(&mut self, mut schedule: Schedule) {
        sweeps(self.space, &mut schedule);
        self.insert(schedule);
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

    /// Improves all of them by exchanges between two jobs.
    fn exchange(&mut self, priced: &Priced) {
        let slack = (priced.bound - self.score()).max(0.0);
        let jobs = self.space.jobs.len();
        let most = (MOST_PATHS / jobs.max(1)).max(FEWEST_PATHS);
        let pools: Vec<Pool> = (0..jobs).map(|job| Pool::of(self.space, job, priced, slack, most)).collect();
        let good_enough = self.space.problem.config.mip_gap * self.score().abs();
        let least = good_enough * EXCHANGE_SHARE;
        let terms = Terms { pools: &pools, priced, least };
        let mut tries = (TRIES_A_JOB * pools.len()).max(FEWEST_TRIES);
        for (_, mut schedule) in self.schedules.clone() {
            while exchange::improve(self.space, terms, &mut tries, &mut schedule)
                && sweep(self.space, &mut schedule)
                && tries > 0
            {}
            self.insert(schedule);
            if priced.bound - self.score() <= good_enough {
                break;
            }
        }
    }
}

/// Whether `a` is feasible and scores higher than `b` beyond rounding errors.
pub fn better(space: &Space<'_>, a: &Schedule, b: &Schedule) -> bool {
    let (a_score, b_score) = (space.score(a), space.score(b));
    space.is_feasible(a) && a_score > b_score + SAME_SCORE * b_score.abs().max(1.0)
}

/// The schedule in which each job keeps what it has for as long as that lasts; what must change makes the
/// best of what is left.
fn keep_all(space: &Space<'_>) -> Schedule {
    let keeps = |job: usize| space.jobs[job].options.iter().position(|o| o.keeps && o.now);
    let choice: Vec<Option<usize>> = (0..space.jobs.len()).map(keeps).collect();
    lay_chosen(space, &choice)
}

/// Gives each job in turn its best path that begins with its chosen option, those first whose option earns
/// most for each node.
fn lay_chosen(space: &Space<'_>, choice: &[Option<usize>]) -> Schedule {
    let density = |job: usize| match choice[job] {
        Some(o) => space.first_gain(job, o) / f64::from(space.jobs[job].options[o].nodes.max(1)),
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
fn lay_priced(space: &Space<'_>, prices: &[f64], relaxed: &Schedule) -> Schedule {
    let density = |job: usize| {
        let path = &relaxed[job];
        let nodes = |(step, o): (usize, &usize)| {
            f64::from(space.jobs[job].options[*o].nodes) * space.steps.secs(step)
        };
        space.path_score(job, path) / path.iter().enumerate().map(nodes).sum::<f64>().max(1.0)
    };
    lay(space, density, |job, left| {
        let mut earnings = path::earnings(space, job, Some(prices));
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
    let mut schedule = rest(space);
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

/// The schedule to start from: jobs keep what they hold through the first step and then nothing; others hold
/// nothing. It uses no budget, so that taking a job out and putting it back is always possible.
fn rest(space: &Space<'_>) -> Schedule {
    let steps = space.steps.len();
    let path = |job: usize| {
        let keeps = space.jobs[job].options.iter().position(|o| o.keeps && o.now).unwrap_or(0);
        (0..steps).map(|step| if step == 0 { keeps } else { 0 }).collect()
    };
    (0..space.jobs.len()).map(path).collect()
}

/// Improves a feasible schedule, one job at a time, until nothing gains; then gives seniors their due.
pub fn polish(space: &Space<'_>, mut schedule: Schedule) -> Schedule {
    sweeps(space, &mut schedule);
    for _ in 0..MAX_SWEEPS {
        if !(seniors_first(space, &mut schedule) && sweep(space, &mut schedule)) {
            break;
        }
    }
    schedule
}

fn sweeps(space: &Space<'_>, schedule: &mut Schedule) {
    for _ in 0..MAX_SWEEPS {
        if !sweep(space, schedule) {
            break;
        }
    }
}

/// Gives each job in turn its best path in what the others leave; says whether that gained anything.
fn sweep(space: &Space<'_>, schedule: &mut Schedule) -> bool {
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
        let alike =
            |o: &crate::plan::space::options::Spec| (o.nodes, o.node_type) == (spec.nodes, spec.node_type);
        space.jobs[to].options.iter().position(|o| o.family == spec.family && alike(o))
    };
    path.iter().map(same).collect()
}
