//! Paths that may be part of a better schedule: those that fall little short of a job's best one under the
//! prices.
//!
//! Under the prices a schedule falls short of the bound by what each path falls short of its job's best
//! one (its *regret*), and by the worth of unused limits. So good schedules consist of paths of little
//! regret.

use rustc_hash::FxHashSet;

use super::multipliers::LagrangianBound;
use super::path;
use crate::plan::space::{
    decision::{DecisionSpace, JobSpace},
    step_table::StepTable,
};

/// The share of the regret that remains each time that there are too many paths.
const NARROWER: f64 = 0.5;

/// Most times that the regret is lowered: to a millionth.
const MOST_TRIES: usize = 20;

/// Paths of one job, those of the least regret first.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathPool {
    steps: usize,
    limits: usize,
    paths: Vec<usize>,
    regrets: Vec<f64>,
    uses: Vec<i64>,
    /// What the job's best path earns under the prices.
    best: f64,
}

impl PathPool {
    /// Paths of a job with a regret of at most `slack`; if there are more than `most`, of less regret.
    /// More paths would find little more, because sweeps fill gaps with the best path that fits.
    pub fn within_regret(
        space: &DecisionSpace<'_>,
        job: usize,
        priced: &LagrangianBound,
        slack: f64,
        most: usize,
    ) -> Self {
        let earnings = path::earnings_table(space, job, Some(&priced.prices));
        let ahead = path::scores_ahead(space, job, &earnings);
        let best = ahead.row(0).iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut pool =
            PathPool { steps: space.steps.len(), limits: space.limits.len(), best, ..PathPool::default() };
        let mut regret = slack;
        for _ in 0..MOST_TRIES {
            let mut walk = PathSearch::new(&space.jobs[job], &earnings, &ahead, best - regret, most);
            let complete = walk.extend_path(None, 0.0);
            if complete {
                pool.fill_paths(space, job, walk.found);
                break;
            }
            regret *= NARROWER;
        }
        pool
    }

    /// For each step and option the best path of a job that uses it there, of those with a regret of at
    /// most `slack` the `most` with the least: fewer paths, and more different ones, than in
    /// [`PathPool::within_regret`].
    pub fn with_variety(
        space: &DecisionSpace<'_>,
        job: usize,
        priced: &LagrangianBound,
        slack: f64,
        most: usize,
    ) -> Self {
        let earnings = path::earnings_table(space, job, Some(&priced.prices));
        let ahead = path::scores_ahead(space, job, &earnings);
        let behind = path::scores_behind(space, job, &earnings);
        let best = ahead.row(0).iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut pool =
            PathPool { steps: space.steps.len(), limits: space.limits.len(), best, ..PathPool::default() };
        let mut near: Vec<(f64, usize, usize)> = Vec::new();
        for (step, ((ahead, behind), earns)) in
            ahead.rows().zip(behind.rows()).zip(earnings.rows()).enumerate()
        {
            for (option, ((ahead, behind), earns)) in ahead.iter().zip(behind).zip(earns).enumerate() {
                let score = ahead + behind - earns;
                if score >= best - slack {
                    near.push((score, step, option));
                }
            }
        }
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut known = FxHashSet::default();
        let mut found = Vec::new();
        for (score, step, option) in near {
            if found.len() >= most {
                break;
            }
            let path = path::path_via(&space.jobs[job], &behind, &ahead, step, option);
            if known.insert(path.clone()) {
                found.push((score, path));
            }
        }
        pool.fill_paths(space, job, found);
        pool
    }

    /// The number of a path, which is added last where it is not among them.
    pub(crate) fn index_of(
        &mut self,
        space: &DecisionSpace<'_>,
        job: usize,
        path: &[usize],
        prices: &[f64],
    ) -> usize {
        let found = (0..self.regrets.len()).find(|number| self.path_at(*number) == path);
        found.unwrap_or_else(|| {
            let mut uses = vec![0; self.limits];
            space.take_path(&mut uses, job, path, -1);
            let regret = self.path_regret(space.path_score(job, path), &uses, prices);
            self.paths.extend(path);
            self.regrets.push(regret);
            self.uses.extend(uses);
            self.regrets.len() - 1
        })
    }

    fn fill_paths(&mut self, space: &DecisionSpace<'_>, job: usize, mut found: Vec<(f64, Vec<usize>)>) {
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        for (earned, path) in found {
            let mut uses = vec![0; self.limits];
            space.take_path(&mut uses, job, &path, -1);
            self.paths.extend(path);
            self.regrets.push(self.best - earned);
            self.uses.extend(uses);
        }
    }

    /// Regrets of the paths, rising.
    pub(crate) fn regrets(&self) -> &[f64] {
        &self.regrets
    }

    /// A path.
    pub fn path_at(&self, number: usize) -> &[usize] {
        self.paths.get(number * self.steps..(number + 1) * self.steps).unwrap_or_default()
    }

    /// What a path uses of each limit.
    pub fn uses(&self, number: usize) -> &[i64] {
        self.uses.get(number * self.limits..(number + 1) * self.limits).unwrap_or_default()
    }

    /// The regret of a path with this score and these uses.
    pub(crate) fn path_regret(&self, score: f64, uses: &[i64], prices: &[f64]) -> f64 {
        let paid: f64 = uses.iter().zip(prices).map(|(n, price)| *n as f64 * price).sum();
        self.best - (score - paid)
    }
}

/// A search for all paths that earn at least `least` under the prices.
struct PathSearch<'a> {
    job: &'a JobSpace<'a>,
    earnings: &'a StepTable,
    ahead: &'a StepTable,
    least: f64,
    most: usize,
    path: Vec<usize>,
    found: Vec<(f64, Vec<usize>)>,
}

impl<'a> PathSearch<'a> {
    fn new(
        job: &'a JobSpace<'a>,
        earnings: &'a StepTable,
        ahead: &'a StepTable,
        least: f64,
        most: usize,
    ) -> Self {
        PathSearch { job, earnings, ahead, least, most, path: Vec::new(), found: Vec::new() }
    }

    /// Follows all options of the next step that can still earn enough; `false` once there are too many
    /// paths.
    fn extend_path(&mut self, from: Option<usize>, earned: f64) -> bool {
        let step = self.path.len();
        let earnings = self.earnings.row(step);
        let ahead = self.ahead.row(step);
        if ahead.is_empty() {
            self.found.push((earned, self.path.clone()));
            return self.found.len() <= self.most;
        }
        for (to, ahead) in ahead.iter().enumerate() {
            if earned + ahead < self.least {
                continue;
            }
            let change = from.map_or(0.0, |from| self.job.change_cost(from, to));
            if earned + ahead - change < self.least {
                continue;
            }
            self.path.push(to);
            let complete = self.extend_path(Some(to), earned + earnings[to] - change);
            self.path.pop();
            if !complete {
                return false;
            }
        }
        true
    }
}
