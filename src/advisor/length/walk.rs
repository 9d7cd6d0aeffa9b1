//! A log of jobs walked through as it happened: each job is predicted when it is submitted, from those that
//! had ended by then, and the forest is grown anew every so often.

use super::calibration::Calibration;
use super::distribution::{Lengths, SHORTEST_SECS};
use super::forest::{FEWEST, Forest, ForestError};
use super::history::{Glance, History};
use crate::model::Past;

/// Atoms of what a forest says, beside the history's [`ATOMS`](super::history::ATOMS): their numbers are
/// weights. The history is better at hitting what recurs, the forest at telling long jobs from short ones.
const ATOMS_OF_FOREST: usize = 11;

/// The logarithm of how long it ran.
fn log_of(past: &Past) -> f64 {
    past.secs.max(SHORTEST_SECS).ln()
}

/// How a log is walked through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walk {
    /// The share of the jobs that is only learned from.
    pub train: f64,
    /// After so many jobs the forest is grown anew.
    pub refit: usize,
    /// From so many jobs, the last that had ended.
    pub window: usize,
    /// Seed of the forests.
    pub seed: u64,
}

impl Default for Walk {
    fn default() -> Self {
        Walk { train: 0.3, refit: 3000, window: 20_000, seed: 1 }
    }
}

/// What was expected of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Its place in the log.
    pub index: usize,
    /// By the history alone.
    pub mixture: Lengths,
    /// By the history and the forest.
    pub raw: Lengths,
    /// The same, held to what intervals promise.
    pub pooled: Lengths,
}

impl Predicted {
    /// Whether it is known well: its distribution is narrow.
    pub fn is_predictable(&self) -> bool {
        self.mixture.is_narrow()
    }
}

/// Predicts each job after the share that is only learned from. The jobs are in the order of their
/// submission. `tell` hears of each that is done, and of how many there are.
///
/// # Errors
/// [`ForestError`] where the jobs know differently many numbers.
pub fn walk(
    jobs: &[Past],
    how: &Walk,
    tell: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Predicted>, ForestError> {
    let first = ((jobs.len() as f64 * how.train) as usize).min(jobs.len());
    let (glances, known) = look_at_all(jobs);
    let mut found = Vec::with_capacity(jobs.len() - first);
    let mut judge = Judge::new(jobs, first);
    let mut from = first;
    while from < jobs.len() {
        let to = (from + how.refit.max(1)).min(jobs.len());
        let forest = grow(jobs, &glances, &known, from, how)?;
        let rows: Vec<Vec<f64>> = glances[from..to].iter().map(|g| g.features.clone()).collect();
        let samples = forest.map(|forest| forest.samples(&rows)).transpose()?;
        for index in from..to {
            let glance = &glances[index];
            let sample = samples.as_ref().map(|all| all[index - from].as_slice());
            found.push(judge.predict(index, glance, sample));
            tell(index + 1 - first, jobs.len() - first);
        }
        from = to;
    }
    Ok(found)
}

/// What was known of each job when it was submitted, and how many of [`by_end`] had ended then.
fn look_at_all(jobs: &[Past]) -> (Vec<Glance>, Vec<usize>) {
    let order = by_end(jobs);
    let (mut history, mut ended) = (History::default(), 0);
    let mut known = Vec::with_capacity(jobs.len());
    let look = |past: &Past| {
        while let Some(done) = order.get(ended).map(|i| &jobs[*i]).filter(|done| done.ended_at <= past.job.at)
        {
            history.ended(&done.job, done.ended_at, done.secs);
            ended += 1;
        }
        known.push(ended);
        history.look(&past.job)
    };
    let glances = jobs.iter().map(look).collect();
    (glances, known)
}

/// The places of the jobs in the order of their ends.
fn by_end(jobs: &[Past]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|a, b| jobs[*a].ended_at.total_cmp(&jobs[*b].ended_at));
    order
}

/// A forest of the jobs that had ended when job `from` was submitted; `None` while these are too few.
fn grow(
    jobs: &[Past],
    glances: &[Glance],
    known: &[usize],
    from: usize,
    how: &Walk,
) -> Result<Option<Forest>, ForestError> {
    let mut learned: Vec<usize> = by_end(jobs)[..known[from]].iter().copied().filter(|i| *i < from).collect();
    learned.sort_unstable();
    let last = &learned[learned.len().saturating_sub(how.window)..];
    if last.len() < FEWEST {
        return Ok(None);
    }
    let rows: Vec<Vec<f64>> = last.iter().map(|i| glances[*i].features.clone()).collect();
    let missed: Vec<f64> =
        last.iter().map(|i| log_of(&jobs[*i]) - glances[*i].mixture.quantile(0.5)).collect();
    Forest::grow(&rows, &missed, how.seed).map(Some)
}

/// Pools what history and forest say, and keeps intervals to their word.
struct Judge<'a> {
    jobs: &'a [Past],
    first: usize,
    order: Vec<usize>,
    ended: usize,
    /// What was expected of the jobs from the first on, before it was stretched.
    expected: Vec<Lengths>,
    calibration: Calibration,
}

impl<'a> Judge<'a> {
    fn new(jobs: &'a [Past], first: usize) -> Self {
        let (order, expected, calibration) = (by_end(jobs), Vec::new(), Calibration::default());
        Judge { jobs, first, order, ended: 0, expected, calibration }
    }

    fn predict(&mut self, index: usize, glance: &Glance, sample: Option<&[f64]>) -> Predicted {
        let job = &self.jobs[index].job;
        self.learn_until(job.at);
        let middle = glance.mixture.quantile(0.5);
        let grown = sample.and_then(|said| {
            let all = said.iter().map(|missed| (middle + missed, 1.0)).collect();
            Lengths::of_weighted(all, ATOMS_OF_FOREST)
        });
        let pooled = grown.map_or_else(|| glance.mixture.clone(), |g| g.pooled(&glance.mixture));
        let held = self.calibration.applied(&pooled).capped(job.limit_secs);
        let raw = pooled.capped(job.limit_secs);
        self.expected.push(raw.clone());
        Predicted { index, mixture: glance.mixture.clone(), raw, pooled: held }
    }

    fn learn_until(&mut self, at: f64) {
        while let Some(index) = self.order.get(self.ended).copied() {
            let past = &self.jobs[index];
            if past.ended_at > at {
                return;
            }
            let expected = index.checked_sub(self.first).and_then(|i| self.expected.get(i));
            if let Some(expected) = expected {
                self.calibration.ended(expected, log_of(past));
            }
            self.ended += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Submission;

    /// Jobs of two users, one each minute, that take 100 s, or 1,000 s if their size is 8.
    fn log(count: usize) -> Vec<Past> {
        let past = |i: usize| {
            let nodes = [1, 8][i % 2];
            let (at, secs) = (60.0 * i as f64, [100.0, 1000.0][i % 2] * (1.0 + 0.01 * (i % 5) as f64));
            let user = ["alice", "bob"][i / 2 % 2].to_owned();
            Past { job: Submission { at, user, nodes, ..Submission::default() }, ended_at: at + secs, secs }
        };
        (0..count).map(past).collect()
    }

    #[test]
    fn nothing_is_learned_before_it_has_ended() {
        let mut jobs = log(900);
        let how = Walk { refit: 300, ..Walk::default() };
        let found = walk(&jobs, &how, &mut |_, _| ()).unwrap();
        assert_eq!((found.len(), found[0].index), (630, 270));
        let wrong = |p: &Predicted| (p.pooled.quantile(0.5) - log_of(&jobs[p.index])).abs();
        assert!(found.iter().all(|p| wrong(p) < 0.1), "{:?}", found.iter().map(wrong).fold(0.0, f64::max));
        // What the last ones took changes nothing of what was expected of them.
        jobs[899].secs *= 50.0;
        assert!(walk(&jobs, &how, &mut |_, _| ()).unwrap() == found);
    }
}
