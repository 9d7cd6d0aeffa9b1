//! Replays a log of jobs as it happened. Each job is predicted when it is submitted, from the jobs that had
//! ended by then, and the forest is grown again at intervals.

use super::calibration::IntervalCalibration;
use super::distribution::{LengthDistribution, log_length};
use super::forest::{ForestError, LengthForest, MIN_FOREST_JOBS};
use super::forest_pooling::pool_with_forest;
use super::length_history::{LengthFeatures, LengthHistory};
use infill_model::PastJob;

/// The parameters of a backtest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BacktestConfig {
    /// The share of the jobs that is only learned from.
    pub train: f64,
    /// Jobs after which the forest is grown again.
    pub refit: usize,
    /// The number of last ended jobs from which a forest is grown.
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
    /// How many of `jobs` jobs are only learned from.
    pub fn training_jobs(&self, jobs: usize) -> usize {
        ((jobs as f64 * self.train) as usize).min(jobs)
    }
}

/// The prediction of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedJob {
    /// Its index in the log.
    pub index: usize,
    /// The prediction by the history alone.
    pub mixture: LengthDistribution,
    /// The prediction by the history and the forest.
    pub raw: LengthDistribution,
    /// The same prediction, calibrated.
    pub pooled: LengthDistribution,
}

impl PredictedJob {
    /// Whether the job is predictable: its distribution is narrow.
    pub(crate) fn is_predictable(&self) -> bool {
        self.mixture.is_narrow()
    }
}

/// Predicts each job after the share that is only learned from. The jobs must be in the order of their
/// submission. `visit` gets the share of the predictions that is done.
///
/// # Errors
/// [`ForestError`] where the jobs have different numbers of features.
pub fn run_backtest(
    jobs: &[PastJob],
    config: &BacktestConfig,
    visit: &mut dyn FnMut(f64),
) -> Result<Vec<PredictedJob>, ForestError> {
    let first = config.training_jobs(jobs.len());
    let log = BacktestLog::from_jobs(jobs);
    let mut predictions = Vec::with_capacity(jobs.len() - first);
    let mut predictor = BacktestPredictor::new(&log, first);
    let mut from = first;
    while from < jobs.len() {
        let to = (from + config.refit.max(1)).min(jobs.len());
        let forest = log.grow_forest(from, config)?;
        let rows: Vec<&[f64]> = log.features[from..to].iter().map(|f| f.features.as_slice()).collect();
        let samples = forest.map(|forest| forest.tree_samples(&rows)).transpose()?;
        for index in from..to {
            let sample = samples.as_ref().map(|all| all[index - from].as_slice());
            predictions.push(predictor.predict_job(index, sample));
            visit(predictions.len() as f64 / (jobs.len() - first) as f64);
        }
        from = to;
    }
    Ok(predictions)
}

/// A log, with what the history said of each job when it was submitted.
struct BacktestLog<'a> {
    jobs: &'a [PastJob],
    /// The indices of the jobs in the order of their ends.
    by_end: Vec<usize>,
    /// For each job, how many of these had ended when it was submitted.
    ended: Vec<usize>,
    features: Vec<LengthFeatures>,
}

impl<'a> BacktestLog<'a> {
    fn from_jobs(jobs: &'a [PastJob]) -> Self {
        let mut by_end: Vec<usize> = (0..jobs.len()).collect();
        by_end.sort_by(|a, b| jobs[*a].ended_at.total_cmp(&jobs[*b].ended_at));
        let mut history = LengthHistory::default();
        let mut count = 0;
        let mut ended = Vec::with_capacity(jobs.len());
        let mut features = Vec::with_capacity(jobs.len());
        for past in jobs {
            while let Some(done) = by_end.get(count).map(|i| &jobs[*i])
                && done.ended_at <= past.job.submitted_at
            {
                history.record_end(&done.job, done.ended_at, done.secs);
                count += 1;
            }
            ended.push(count);
            features.push(history.look_up(&past.job));
        }
        BacktestLog { jobs, by_end, ended, features }
    }

    /// A forest of the jobs that had ended when job `from` was submitted; `None` while there are too few.
    fn grow_forest(&self, from: usize, config: &BacktestConfig) -> Result<Option<LengthForest>, ForestError> {
        let ended = self.by_end[..self.ended[from]].iter().copied();
        let mut learned: Vec<usize> = ended.filter(|i| *i < from).collect();
        learned.sort_unstable();
        let last = &learned[learned.len().saturating_sub(config.window)..];
        if last.len() < MIN_FOREST_JOBS {
            return Ok(None);
        }
        let rows: Vec<&[f64]> = last.iter().map(|i| self.features[*i].features.as_slice()).collect();
        let missed = last.iter().map(|i| self.features[*i].log_error(&self.jobs[*i])).collect();
        LengthForest::grow(&rows, missed, config.seed).map(Some)
    }
}

/// Pools the predictions of history and forest, and calibrates them.
struct BacktestPredictor<'a> {
    log: &'a BacktestLog<'a>,
    /// The index of the first job that is predicted.
    first: usize,
    /// How many ended jobs it has learned from.
    learned: usize,
    /// The predictions from the first job on, before calibration.
    expected: Vec<LengthDistribution>,
    calibration: IntervalCalibration,
}

impl<'a> BacktestPredictor<'a> {
    fn new(log: &'a BacktestLog<'a>, first: usize) -> Self {
        BacktestPredictor {
            log,
            first,
            learned: 0,
            expected: Vec::new(),
            calibration: IntervalCalibration::default(),
        }
    }

    fn predict_job(&mut self, index: usize, sample: Option<&[f64]>) -> PredictedJob {
        self.learn_ended(self.log.ended[index]);
        let mixture = &self.log.features[index].mixture;
        let limit_secs = self.log.jobs[index].job.limit_secs;
        let uncapped = pool_with_forest(mixture, sample);
        let pooled = self.calibration.apply_to(&uncapped).capped_at(limit_secs);
        let raw = uncapped.capped_at(limit_secs);
        self.expected.push(raw.clone());
        PredictedJob { index, mixture: mixture.clone(), raw, pooled }
    }

    /// Learns from the first `ended` jobs by end.
    fn learn_ended(&mut self, ended: usize) {
        for index in &self.log.by_end[self.learned..ended] {
            let expected = index.checked_sub(self.first).and_then(|i| self.expected.get(i));
            if let Some(expected) = expected {
                self.calibration.record_end(expected, log_length(self.log.jobs[*index].secs));
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
            let submitted_at = 60.0 * i as f64;
            let secs = [100.0, 1000.0][i % 2] * (1.0 + 0.01 * (i % 5) as f64);
            let user = ["alice", "bob"][i / 2 % 2].to_owned();
            let job = Submission { submitted_at, user, nodes, ..Submission::default() };
            PastJob { job, ended_at: submitted_at + secs, secs, estimate: UserEstimate::default() }
        };
        (0..count).map(past).collect()
    }

    #[test]
    fn nothing_is_learned_from_a_job_before_its_end() {
        let mut jobs = log(900);
        let config = BacktestConfig { refit: 300, ..BacktestConfig::default() };
        let found = run_backtest(&jobs, &config, &mut |_| ()).unwrap();
        assert_eq!((found.len(), found[0].index), (630, 270));
        let error = |p: &PredictedJob| (p.pooled.quantile(0.5) - log_length(jobs[p.index].secs)).abs();
        assert!(found.iter().all(|p| error(p) < 0.1), "{:?}", found.iter().map(error).fold(0.0, f64::max));
        // The lengths of the last jobs do not change their predictions.
        jobs[899].secs *= 50.0;
        assert!(run_backtest(&jobs, &config, &mut |_| ()).unwrap() == found);
    }
}
