//! The best path of one job through the steps: a dynamic program over its options.
//!
//! What a step earns may be lowered by prices on what it uses, one for each limit; what does not fit earns
//! −∞.
//!
//! What a change costs depends only on its kind and on the option it leads to (see `cost`). In a class
//! of options that keep the lead, sorted by size, the larger option tells the kind. So the best change
//! from each option is a running maximum, and a step takes time in proportion to the options, not to
//! their square.

use crate::plan::space::decision::{DecisionSpace, JobSpace};
use crate::plan::space::step_table::StepTable;

/// What each job earns without prices; `None`: as much as the space allows. A branch of it forbids more.
pub(crate) type BranchGains<'a> = Option<&'a [StepTable]>;

/// What a job earns without prices.
fn job_gains<'a>(space: &'a DecisionSpace<'_>, gains: BranchGains<'a>, job: usize) -> &'a StepTable {
    gains.map_or(&space.jobs[job].gains, |gains| &gains[job])
}

/// Tables that are used again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathScratch {
    earnings: StepTable,
    ahead: StepTable,
    onward: Vec<f64>,
}

/// What each option of a job earns in each step under `prices` (none: all free), without the changes; −∞
/// where it is not allowed.
pub(crate) fn earnings_table(space: &DecisionSpace<'_>, job: usize, prices: Option<&[f64]>) -> StepTable {
    match prices {
        Some(prices) => branch_earnings(space, job, None, prices),
        None => space.jobs[job].gains.clone(),
    }
}

/// The same under prices, of what it earns without them.
pub(crate) fn branch_earnings(
    space: &DecisionSpace<'_>,
    job: usize,
    gains: BranchGains<'_>,
    prices: &[f64],
) -> StepTable {
    let mut earnings = job_gains(space, gains, job).clone();
    subtract_prices(space, job, prices, &mut earnings);
    earnings
}

/// Lowers what a job earns by what it pays.
fn subtract_prices(space: &DecisionSpace<'_>, job: usize, prices: &[f64], earnings: &mut StepTable) {
    let job = &space.jobs[job];
    for (row, limits) in earnings.rows_mut().zip(&space.limit_at) {
        for demand in &job.demands {
            let price = limits[demand.resource].map_or(0.0, |limit| prices[limit]);
            if price > 0.0 {
                let users = demand.users.clone();
                let amounts = &demand.amounts[users.clone()];
                row[users].iter_mut().zip(amounts).for_each(|(earns, n)| *earns -= price * n);
            }
        }
    }
}

/// Forbids what does not fit into `left`.
pub(crate) fn forbid_unfitting(
    space: &DecisionSpace<'_>,
    job: usize,
    left: &[i64],
    earnings: &mut StepTable,
) {
    let job = &space.jobs[job];
    for (row, limits) in earnings.rows_mut().zip(&space.limit_at) {
        for demand in &job.demands {
            let Some(left) = limits[demand.resource].map(|limit| left[limit] as f64) else { continue };
            if left >= demand.most {
                continue;
            }
            let users = demand.users.clone();
            for (earns, n) in row[users.clone()].iter_mut().zip(&demand.amounts[users]) {
                // What uses nothing of a limit does not mind that others use too much of it.
                if *n > left && *n > 0.0 {
                    *earns = f64::NEG_INFINITY;
                }
            }
        }
    }
}

/// Forbids all options but one in the first step.
pub(crate) fn pin_first(earnings: &mut StepTable, option: usize) {
    let others: Vec<usize> = (0..earnings.row(0).len()).filter(|other| *other != option).collect();
    forbid_first(earnings, &others);
}

/// Forbids options in the first step.
pub(crate) fn forbid_first(earnings: &mut StepTable, options: &[usize]) {
    let Some(row) = earnings.rows_mut().next() else { return };
    for option in options {
        if let Some(earns) = row.get_mut(*option) {
            *earns = f64::NEG_INFINITY;
        }
    }
}

/// The best path, with its score; `None` when there is none, not even to hold nothing.
pub(crate) fn best_path(
    space: &DecisionSpace<'_>,
    job: usize,
    earnings: &StepTable,
) -> Option<(Vec<usize>, f64)> {
    let mut path = Vec::new();
    let mut scratch = PathScratch::default();
    fill_scores_ahead(&space.jobs[job], earnings, &mut scratch.ahead, &mut scratch.onward);
    let score = follow_path(&space.jobs[job], &scratch.ahead, &mut path)?;
    Some((path, score))
}

/// The best path of a job under prices, written to `path`; its score less what it pays.
pub(crate) fn priced_path(
    space: &DecisionSpace<'_>,
    job: usize,
    gains: BranchGains<'_>,
    prices: &[f64],
    scratch: &mut PathScratch,
    path: &mut Vec<usize>,
) -> Option<f64> {
    scratch.earnings.copy_from(job_gains(space, gains, job));
    subtract_prices(space, job, prices, &mut scratch.earnings);
    fill_scores_ahead(&space.jobs[job], &scratch.earnings, &mut scratch.ahead, &mut scratch.onward);
    follow_path(&space.jobs[job], &scratch.ahead, path)
}

/// The best path of a job under prices in what is `left`, written to `path`; its score less what it pays.
pub(crate) fn fitting_path(
    space: &DecisionSpace<'_>,
    job: usize,
    prices: &[f64],
    left: &[i64],
    scratch: &mut PathScratch,
    path: &mut Vec<usize>,
) -> Option<f64> {
    scratch.earnings.copy_from(&space.jobs[job].gains);
    subtract_prices(space, job, prices, &mut scratch.earnings);
    forbid_unfitting(space, job, left, &mut scratch.earnings);
    fill_scores_ahead(&space.jobs[job], &scratch.earnings, &mut scratch.ahead, &mut scratch.onward);
    follow_path(&space.jobs[job], &scratch.ahead, path)
}

/// For each step and option, the best score from there to the end.
pub(crate) fn scores_ahead(space: &DecisionSpace<'_>, job: usize, earnings: &StepTable) -> StepTable {
    let mut scratch = PathScratch::default();
    fill_scores_ahead(&space.jobs[job], earnings, &mut scratch.ahead, &mut scratch.onward);
    scratch.ahead
}

/// For each option the score of the best path that begins with it.
pub(crate) fn scores_by_first(space: &DecisionSpace<'_>, job: usize, earnings: &StepTable) -> Vec<f64> {
    scores_ahead(space, job, earnings).row(0).to_vec()
}

/// Follows the best scores from the first step to the last.
fn follow_path(job: &JobSpace<'_>, ahead: &StepTable, path: &mut Vec<usize>) -> Option<f64> {
    path.clear();
    let first = ahead.row(0);
    let mut at = (0..first.len()).reduce(|a, b| if first[b] > first[a] { b } else { a })?;
    let score = first[at];
    if score == f64::NEG_INFINITY {
        return None;
    }
    path.push(at);
    for row in ahead.rows().skip(1) {
        at = best_after(job, row, at);
        path.push(at);
    }
    Some(score)
}

/// The option of the next step to which going over from this one is worth most.
fn best_after(job: &JobSpace<'_>, ahead: &[f64], from: usize) -> usize {
    let mut best = (f64::NEG_INFINITY, 0);
    for (to, ahead) in ahead.iter().enumerate() {
        // The change may cost something, so an option that is not ahead without it cannot win.
        if *ahead > best.0 {
            let worth = ahead - job.change_cost(from, to);
            if worth > best.0 {
                best = (worth, to);
            }
        }
    }
    best.1
}

/// For each step and option, the score of the best path that uses this option in this step.
pub(crate) fn scores_through(space: &DecisionSpace<'_>, job: usize, earnings: &StepTable) -> StepTable {
    let job = &space.jobs[job];
    let mut through = StepTable::default();
    let mut running = Vec::new();
    fill_scores_ahead(job, earnings, &mut through, &mut running);
    let mut arrive = vec![0.0; job.options.len()];
    let mut behind: Option<Vec<f64>> = None;
    for (row, earns) in through.rows_mut().zip(earnings.rows()) {
        if let Some(before) = &behind {
            best_arrivals(job, before, &mut arrive, &mut running);
        }
        row.iter_mut().zip(&arrive).for_each(|(score, a)| *score += a);
        behind = Some(arrive.iter().zip(earns).map(|(a, e)| a + e).collect());
    }
    through
}

/// For each step and option, the best score from the beginning to there.
pub(crate) fn scores_behind(space: &DecisionSpace<'_>, job: usize, earnings: &StepTable) -> StepTable {
    let job = &space.jobs[job];
    let mut behind = earnings.clone();
    let mut running = vec![f64::NEG_INFINITY; job.options.len()];
    let mut arrive = vec![0.0; job.options.len()];
    for row in behind.rows_mut() {
        row.iter_mut().zip(&arrive).for_each(|(score, arrive)| *score += arrive);
        best_arrivals(job, row, &mut arrive, &mut running);
    }
    behind
}

/// The best path that uses `option` in `step`, by the best scores up to each option and from there on.
pub(crate) fn path_via(
    job: &JobSpace<'_>,
    behind: &StepTable,
    ahead: &StepTable,
    step: usize,
    option: usize,
) -> Vec<usize> {
    let mut path = vec![option; ahead.rows().len()];
    for at in (0..step).rev() {
        path[at] = best_before(job, behind.row(at), path[at + 1]);
    }
    for at in step + 1..path.len() {
        path[at] = best_after(job, ahead.row(at), path[at - 1]);
    }
    path
}

/// The option of a step from which going over to `to` leaves most.
fn best_before(job: &JobSpace<'_>, behind: &[f64], to: usize) -> usize {
    let mut best = (f64::NEG_INFINITY, 0);
    for (from, behind) in behind.iter().enumerate() {
        if *behind > best.0 {
            let worth = behind - job.change_cost(from, to);
            if worth > best.0 {
                best = (worth, from);
            }
        }
    }
    best.1
}

/// For each step and option, the best score from there to the end.
fn fill_scores_ahead(job: &JobSpace<'_>, earnings: &StepTable, ahead: &mut StepTable, rising: &mut Vec<f64>) {
    let options = job.options.len();
    ahead.copy_from(earnings);
    rising.clear();
    rising.resize(options, f64::NEG_INFINITY);
    let steps = earnings.rows().len();
    for step in (0..steps.saturating_sub(1)).rev() {
        let (here, next) = ahead.with_next(step);
        add_best_next(job, next, here, rising);
    }
}

/// The larger of two scores. `f64::max` also tests for NaN, which takes longer than the comparison.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// How many running maxima are kept side by side, so that they need not wait for each other.
const LANES: usize = 4;

/// The most of `scores` less `costs`.
fn best_difference(scores: &[f64], costs: &[f64]) -> f64 {
    let mut lanes = [f64::NEG_INFINITY; LANES];
    let mut scores = scores.chunks_exact(LANES);
    let mut costs = costs.chunks_exact(LANES);
    for (scores, costs) in scores.by_ref().zip(costs.by_ref()) {
        for ((best, score), cost) in lanes.iter_mut().zip(scores).zip(costs) {
            *best = larger(*best, score - cost);
        }
    }
    let rest = scores.remainder().iter().zip(costs.remainder()).map(|(score, cost)| score - cost);
    lanes.into_iter().chain(rest).fold(f64::NEG_INFINITY, larger)
}

/// Adds to each option in `here` the best score of what may follow it: of the `next` step's options
/// less the change to it.
fn add_best_next(job: &JobSpace<'_>, next: &[f64], here: &mut [f64], rising: &mut [f64]) {
    let changes = &job.changes;
    let nothing = next[0];
    let mut elsewhere = BestTwo::default();
    for (number, class) in changes.classes.iter().enumerate() {
        elsewhere.offer(number, best_difference(&next[class.clone()], &changes.start[class.clone()]));
    }
    here[0] += larger(nothing, elsewhere.best_any());
    for (number, class) in changes.classes.iter().enumerate() {
        let other = larger(nothing, elsewhere.best_except(number));
        let next = &next[class.clone()];
        let rising = &mut rising[class.clone()];
        let mut best = f64::NEG_INFINITY;
        for ((rising, next), up) in rising.iter_mut().zip(next).zip(&changes.up[class.clone()]).rev() {
            best = larger(best, next - up);
            *rising = best;
        }
        let mut smaller = f64::NEG_INFINITY;
        let mut up_to_here = f64::NEG_INFINITY;
        let mut grows = f64::NEG_INFINITY;
        let firsts = &changes.first_of_size[class.clone()];
        let downs = &changes.down[class.clone()];
        let here = &mut here[class.clone()];
        for (at, ((here, next), (first, down))) in
            here.iter_mut().zip(next).zip(firsts.iter().zip(downs)).enumerate()
        {
            if *first == class.start + at {
                smaller = up_to_here;
                grows = rising[at];
            }
            *here += larger(larger(grows, smaller), larger(other, *next));
            up_to_here = larger(up_to_here, next - down);
        }
    }
}

/// For each option of the next step, the best score `before` less the change to it.
fn best_arrivals(job: &JobSpace<'_>, before: &[f64], arrive: &mut [f64], falling: &mut [f64]) {
    let changes = &job.changes;
    let nothing = before[0];
    let mut elsewhere = BestTwo::default();
    for (number, class) in changes.classes.iter().enumerate() {
        elsewhere.offer(number, before[class.clone()].iter().copied().fold(f64::NEG_INFINITY, larger));
    }
    arrive[0] = nothing.max(elsewhere.best_any());
    for (number, class) in changes.classes.iter().enumerate() {
        let other = nothing.max(elsewhere.best_except(number));
        // Those of the same size or a smaller one grow or swap; the running maximum at the last of a size has
        // them all.
        let mut best = f64::NEG_INFINITY;
        for from in class.clone() {
            best = best.max(before[from]);
            falling[from] = best;
        }
        let mut from_larger = f64::NEG_INFINITY;
        let mut from_here = f64::NEG_INFINITY;
        let mut last = class.end;
        for to in class.clone().rev() {
            if to + 1 == class.end || changes.first_of_size[to + 1] != changes.first_of_size[to] {
                from_larger = from_here;
                last = to;
            }
            let grown = falling[last] - changes.up[to];
            let shrunk = from_larger - changes.down[to];
            arrive[to] = grown.max(shrunk).max(other - changes.start[to]).max(before[to]);
            from_here = from_here.max(before[to]);
        }
    }
}

/// The two best scores of classes. They tell the best score of all classes but one.
#[derive(Clone, Copy, Debug)]
struct BestTwo {
    first: (usize, f64),
    second: f64,
}

impl Default for BestTwo {
    fn default() -> Self {
        BestTwo { first: (usize::MAX, f64::NEG_INFINITY), second: f64::NEG_INFINITY }
    }
}

impl BestTwo {
    fn offer(&mut self, class: usize, score: f64) {
        if score > self.first.1 {
            self.second = self.first.1;
            self.first = (class, score);
        } else {
            self.second = self.second.max(score);
        }
    }

    fn best_any(&self) -> f64 {
        self.first.1
    }

    fn best_except(&self, class: usize) -> f64 {
        if self.first.0 == class { self.second } else { self.first.1 }
    }
}
