//! A log of jobs walked through as it happened: each job is predicted when it is submitted, from those that
//! had ended by then, and the forest is grown anew every so often.

use super::calibration::IntervalCalibration;
use super::distribution::{LengthDistribution, log_length};
use super::forest::{FEWEST, Forest, ForestError};
use super::forest_pooling::pool_with_forest;
use super::length_history::{LengthFeatures, LengthHistory};
use infill_model::PastJob;

/// How a log is walked through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BacktestConfig {
    /// The share of the jobs that is only learned from.
    pub train: f64,
    /// After so many jobs the forest is grown anew.
    pub refit: usize,
    /// From so many jobs, the last that had ended.
    pub window: usize,
    /// Seed of the forests.
    pub seed: u64,
}

impl Default for BacktestConfig {
    fn default() -> Self {
        BacktestConfig { train: 0.3, refit: 3000, window: 20_000, seed: 1 }
    }
}

impl BacktestConfig {
    /// How many of so many jobs are only learned from.
    pub fn training_jobs(&self, jobs: usize) -> usize {
        ((jobs as f64 * self.train) as usize).min(jobs)
    }
}

/// What was expected of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedJob {
    /// Its place in the log.
    pub index: usize,
    /// By the history alone.
    pub mixture: LengthDistribution,
    /// By the history and the forest.
    pub raw: LengthDistribution,
    /// The same, held to what intervals promise.
    pub pooled: LengthDistribution,
}

impl PredictedJob {
    /// Whether it is known well: its distribution is narrow.
    pub(crate) fn is_predictable(&self) -> bool {
        self.mixture.is_narrow()
    }
}

/// Predicts each job after the share that is only learned from. The jobs are in the order of their
/// submission. `visit` sees the share of them that is done.
///
/// # Errors
/// [`ForestError`] where the jobs know differently many numbers.
pub fn run_backtest(
    jobs: &[PastJob],
    how: &BacktestConfig,
    visit: &mut dyn FnMut(f64),
) -> Result<Vec<PredictedJob>, ForestError> {
    let first = how.training_jobs(jobs.len());
    let seen = BacktestLog::from_jobs(jobs);
    let mut found = Vec::with_capacity(jobs.len() - first);
    let mut judge = BacktestPredictor::new(&seen, first);
    let mut from = first;
    while from < jobs.len() {
        let to = (from + how.refit.max(1)).min(jobs.len());
        let forest = seen.grow_forest(from, how)?;
        let rows: Vec<&[f64]> = seen.glances[from..to].iter().map(|g| g.features.as_slice()).collect();
        let samples = forest.map(|forest| forest.tree_samples(&rows)).transpose()?;
        for index in from..to {
            let sample = samples.as_ref().map(|all| all[index - from].as_slice());
            found.push(judge.predict_job(index, sample));
            visit(found.len() as f64 / (jobs.len() - first) as f64);
        }
        from = to;
    }
    Ok(found)
}

/// A log, with what was known of each job when it was submitted.
struct BacktestLog<'a> {
    jobs: &'a [PastJob],
    /// The places of the jobs in the order of their ends.
    by_end: Vec<usize>,
    /// How many of these had ended when each was submitted.
    ended: Vec<usize>,
    glances: Vec<LengthFeatures>,
}

impl<'a> BacktestLog<'a> {
    fn from_jobs(jobs: &'a [PastJob]) -> Self {
        let mut by_end: Vec<usize> = (0..jobs.len()).collect();
        by_end.sort_by(|a, b| jobs[*a].ended_at.total_cmp(&jobs[*b].ended_at));
        let mut history = LengthHistory::default();
        let mut count = 0;
        let mut ended = Vec::with_capacity(jobs.len());
        let look = |past: &PastJob| {
            while let Some(done) =
                by_end.get(count).map(|i| &jobs[*i]).filter(|done: &&PastJob| done.ended_at <= past.job.at)
            {
                history.record_end(&done.job, done.ended_at, done.secs);
                count += 1;
            }
            ended.push(count);
            history.look_up(&past.job)
        };
        let glances = jobs.iter().map(look).collect();
        BacktestLog { jobs, by_end, ended, glances }
    }

    /// A forest of the jobs that had ended when job `from` was submitted; `None` while these are too few.
    fn grow_forest(&self, from: usize, how: &BacktestConfig) -> Result<Option<Forest>, ForestError> {
        let ended = self.by_end[..self.ended[from]].iter().copied();
        let mut learned: Vec<usize> = ended.filter(|i| *i < from).collect();
        learned.sort_unstable();
        let last = &learned[learned.len().saturating_sub(how.window)..];
        if last.len() < FEWEST {
            return Ok(None);
        }
        let rows: Vec<&[f64]> = last.iter().map(|i| self.glances[*i].features.as_slice()).collect();
        Forest::grow(
            &rows,
            last.iter().map(|i: &usize| self.glances[*i].log_error(&self.jobs[*i])).collect(),
            how.seed,
        )
        .map(Some)
    }
}

/// Pools what history and forest say, and keeps intervals to their word.
struct BacktestPredictor<'a> {
    seen: &'a BacktestLog<'a>,
    first: usize,
    /// How many jobs it has learned from.
    learned: usize,
    /// What was expected of the jobs from the first on, before it was stretched.
    expected: Vec<LengthDistribution>,
    calibration: IntervalCalibration,
}

impl<'a> BacktestPredictor<'a> {
    fn new(seen: &'a BacktestLog<'a>, first: usize) -> Self {
        BacktestPredictor {
            seen,
            first,
            learned: 0,
            expected: Vec::new(),
            calibration: IntervalCalibration::default(),
        }
    }

    fn predict_job(&mut self, index: usize, sample: Option<&[f64]>) -> PredictedJob {
        self.learn_ended(self.seen.ended[index]);
        let mixture = &self.seen.glances[index].mixture;
        let limit_secs = self.seen.jobs[index].job.limit_secs;
        let both = pool_with_forest(mixture, sample);
        let pooled = self.calibration.apply_to(&both).capped_at(limit_secs);
        let raw = both.capped_at(limit_secs);
        self.expected.push(raw.clone());
        PredictedJob { index, mixture: mixture.clone(), raw, pooled }
    }

    /// Learns from what became of the first so many jobs that ended.
    fn learn_ended(&mut self, ended: usize) {
        for index in &self.seen.by_end[self.learned..ended] {
            let expected = index.checked_sub(self.first).and_then(|i| self.expected.get(i));
            if let Some(expected) = expected {
                self.calibration.record_end(expected, log_length(self.seen.jobs[*index].secs));
            }
        }
        self.learned = ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{Submission, UserEstimate};

    /// Jobs of two users, one each minute, that take 100 s, or 1,000 s if their size is 8.
    fn log(count: usize) -> Vec<PastJob> {
        let past = |i: usize| {
            let nodes = [1, 8][i % 2];
            let at = 60.0 * i as f64;
            let secs = [100.0, 1000.0][i % 2] * (1.0 + 0.01 * (i % 5) as f64);
            let user = ["alice", "bob"][i / 2 % 2].to_owned();
            let job = Submission { at, user, nodes, ..Submission::default() };
            PastJob { job, ended_at: at + secs, secs, word: UserEstimate::default() }
        };
        (0..count).map(past).collect()
    }

    #[test]
    fn nothing_is_learned_before_it_has_ended() {
        let mut jobs = log(900);
        let how = BacktestConfig { refit: 300, ..BacktestConfig::default() };
        let found = run_backtest(&jobs, &how, &mut |_| ()).unwrap();
        assert_eq!((found.len(), found[0].index), (630, 270));
        let wrong = |p: &PredictedJob| (p.pooled.quantile(0.5) - log_length(jobs[p.index].secs)).abs();
        assert!(found.iter().all(|p| wrong(p) < 0.1), "{:?}", found.iter().map(wrong).fold(0.0, f64::max));
        // What the last ones took changes nothing of what was expected of them.
        jobs[899].secs *= 50.0;
        assert!(run_backtest(&jobs, &how, &mut |_| ()).unwrap() == found);
    }
}
