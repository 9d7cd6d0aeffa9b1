//! Does the same as `rebuild` for few jobs. The paths of a better schedule are rarely in a pool there, so
//! each comes from the dynamic program. The search draws groups, and factors that change prices. The
//! factors decide what the first jobs of a group leave to the last.

use super::multipliers::LagrangianBound;
use super::path::{self, PathScratch};
use super::seeded_draws::SeededDraws;
use crate::plan::space::decision::{DecisionSpace, Schedule};

/// How much worse than the best schedule one may be at the beginning, as a share of what the best one
/// falls short of the bound. It falls to 0.
pub(super) const FIRST_THRESHOLD: f64 = 0.3;

/// Options that are looked at in all searches for paths: some hundredths of a second.
const MOST_OPERATIONS: usize = 18_000_000;

/// Most searches for paths, for each job.
const TRIES_A_JOB: usize = 2_250;

/// Smallest and largest group.
const GROUP: std::ops::RangeInclusive<usize> = 2..=4;

/// Number of different factors below 2 that may change a price.
const FACTORS: usize = 1024;

/// The best schedule that is found from a feasible one on. The search ends early with one that falls
/// short of the bound by no more than `enough`.
pub(super) fn improve_by_reroute(
    space: &DecisionSpace<'_>,
    priced: &LagrangianBound,
    schedule: &Schedule,
    enough: f64,
) -> Schedule {
    let jobs = space.jobs.len();
    let options: usize = space.jobs.iter().map(|job| job.options.len()).sum();
    let a_try = options * space.steps.len() / jobs.max(1);
    let all = (MOST_OPERATIONS / a_try.max(1)).min(TRIES_A_JOB * jobs);
    let mut reroute = RerouteState::new(space, &priced.prices, schedule, all);
    let mut best = schedule.clone();
    let mut most = reroute.score();
    while reroute.tries > 0 && priced.bound - most > enough {
        let threshold = FIRST_THRESHOLD * (priced.bound - most) * reroute.tries as f64 / all as f64;
        reroute.reroute_group(most - threshold);
        if reroute.score() > most {
            most = reroute.score();
            best.clone_from(&reroute.schedule);
        }
    }
    best
}

/// A schedule on its way.
struct RerouteState<'a> {
    space: &'a DecisionSpace<'a>,
    prices: &'a [f64],
    schedule: Schedule,
    /// The score of each path.
    scores: Vec<f64>,
    /// What the paths leave of each limit.
    left: Vec<i64>,
    draws: SeededDraws,
    scratch: PathScratch,
    /// Paths that may still be looked for.
    tries: usize,
}

impl<'a> RerouteState<'a> {
    fn new(space: &'a DecisionSpace<'a>, prices: &'a [f64], schedule: &Schedule, tries: usize) -> Self {
        let scores = schedule.iter().enumerate().map(|(job, path)| space.path_score(job, path)).collect();
        RerouteState {
            space,
            prices,
            schedule: schedule.clone(),
            scores,
            left: space.limits_left(schedule),
            draws: SeededDraws::new(1),
            scratch: PathScratch::default(),
            tries,
        }
    }

    fn score(&self) -> f64 {
        self.scores.iter().sum()
    }

    /// Takes a group out and puts it back, if the score then is more than `least`.
    fn reroute_group(&mut self, least: f64) {
        let size = GROUP.start() + self.draws.draw_below(1 + GROUP.end() - GROUP.start());
        let group = self.draws.draw_distinct(size, self.schedule.len());
        let mut prices = self.prices.to_vec();
        for price in &mut prices {
            *price = *price * (2 * self.draws.draw_below(FACTORS)) as f64 / FACTORS as f64;
        }
        let free = vec![0.0; prices.len()];
        let mut room = self.left.clone();
        group.iter().for_each(|job| self.space.take_path(&mut room, *job, &self.schedule[*job], -1));
        let mut paths = Vec::with_capacity(group.len());
        for (place, job) in group.iter().enumerate() {
            let prices = if place + 1 == group.len() { &free } else { &prices };
            let Some(path) = self.best_path(*job, prices, &room) else { return };
            self.space.take_path(&mut room, *job, &path, 1);
            paths.push(path);
        }
        // The first jobs may have passed over something that is still there.
        for (job, path) in group.iter().zip(&mut paths) {
            self.space.take_path(&mut room, *job, path, -1);
            if let Some(better) = self.best_path(*job, &free, &room) {
                *path = better;
            }
            self.space.take_path(&mut room, *job, path, 1);
        }
        let mut scores = self.scores.clone();
        for (job, path) in group.iter().zip(&paths) {
            scores[*job] = self.space.path_score(*job, path);
        }
        if scores.iter().sum::<f64>() > least {
            group.iter().zip(paths).for_each(|(job, path)| self.schedule[*job] = path);
            self.scores = scores;
            self.left = room;
        }
    }

    fn best_path(&mut self, job: usize, prices: &[f64], room: &[i64]) -> Option<Vec<usize>> {
        self.tries = self.tries.saturating_sub(1);
        let mut path = Vec::with_capacity(self.space.steps.len());
        path::fitting_path(self.space, job, prices, room, &mut self.scratch, &mut path)?;
        Some(path)
    }
}
