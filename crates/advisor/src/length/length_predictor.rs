//! Predicts the lengths of present jobs. It learns from jobs that ended, looks each job up once when it
//! comes, and takes the user's own estimates into account.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::calibration::IntervalCalibration;
use super::distribution::{LengthDistribution, log_length};
use super::forest::{ForestError, LengthForest, MIN_FOREST_JOBS};
use super::forest_pooling::pool_with_forest;
use super::length_history::{LengthFeatures, LengthHistory};
use super::prediction_accuracy::{AccuracyCounts, PredictionAccuracy};
use super::user_estimate::UserEstimateErrors;
use infill_model::{JobId, PastJob, Submission, UnixTime, UserEstimate};

/// The number of last ended jobs from which a forest is grown.
const FOREST_WINDOW: usize = 20_000;

/// The data for a forest. Growing one takes seconds, and is done outside the predictor.
#[derive(Clone, Debug, Default)]
pub struct ForestTraining {
    rows: Vec<Vec<f64>>,
    missed: Vec<f64>,
}

impl ForestTraining {
    /// Grows a forest; `None` while too few jobs have ended.
    ///
    /// # Errors
    /// [`ForestError`] where the library refuses the numbers.
    pub fn grow_forest(self, seed: u64) -> Result<Option<LengthForest>, ForestError> {
        if self.rows.len() < MIN_FOREST_JOBS {
            return Ok(None);
        }
        let rows: Vec<&[f64]> = self.rows.iter().map(Vec::as_slice).collect();
        LengthForest::grow(&rows, self.missed, seed).map(Some)
    }
}

/// The prediction of a present job.
#[derive(Clone, Debug)]
struct ExpectedJob {
    submission: Submission,
    features: LengthFeatures,
    /// The prediction before calibration.
    raw: LengthDistribution,
    /// The calibrated prediction.
    lengths: LengthDistribution,
}

/// Predicts job lengths from history, a forest and the users' estimates.
#[derive(Debug, Default)]
pub struct LengthPredictor {
    history: LengthHistory,
    forest: Option<LengthForest>,
    calibration: IntervalCalibration,
    expected: FxHashMap<JobId, ExpectedJob>,
    /// Errors of the users' estimates of lengths.
    estimate_errors: UserEstimateErrors,
    /// Errors of the times at which jobs' losses were said to be flat.
    flat_loss_errors: UserEstimateErrors,
    accuracy: PredictionAccuracy,
    /// For the last jobs that ended, their features when they came, and by how much the logarithm of their
    /// length then differed from the mixture's median.
    samples: VecDeque<(Vec<f64>, f64)>,
}

impl LengthPredictor {
    /// Learns from past jobs, in the order of their ends. It also learns how accurate the history's
    /// predictions were when each job was submitted, and the users' estimates.
    pub fn learn_history(&mut self, past: &[PastJob]) {
        let mut by_start: Vec<usize> = (0..past.len()).collect();
        by_start.sort_by(|a, b| past[*a].job.submitted_at.total_cmp(&past[*b].job.submitted_at));
        let mut to_come = by_start.into_iter().peekable();
        let mut predictions = FxHashMap::default();
        for (index, done) in past.iter().enumerate() {
            // A job that comes at the moment of an end knows of that end. No job is predicted after its own
            // end.
            while let Some(next) = to_come.next_if(|i| past[*i].job.submitted_at < done.ended_at) {
                predictions.insert(next, self.predict_from_history(&past[next].job));
            }
            let (features, expected) =
                predictions.remove(&index).unwrap_or_else(|| self.predict_from_history(&done.job));
            self.accuracy.record_end(&expected, done.secs);
            self.calibration.record_end(&features.mixture, log_length(done.secs));
            self.record_estimates(&done.job.user, done.secs, &done.estimate);
            self.learn_length(&features, done);
        }
    }

    /// The present prediction for a submission by the history alone.
    fn predict_from_history(&self, job: &Submission) -> (LengthFeatures, LengthDistribution) {
        let features = self.history.look_up(job);
        let expected = self.calibration.apply_to(&features.mixture);
        (features, expected)
    }

    /// Takes in the length of a user's job and the estimates that it had.
    fn record_estimates(&mut self, user: &str, secs: f64, estimate: &UserEstimate) {
        if let Some(estimated) = estimate.declared_secs {
            self.estimate_errors.record_estimate(user, estimated, secs);
        }
        if let Some(estimated) = estimate.flat_loss_secs {
            self.flat_loss_errors.record_estimate(user, estimated, secs);
        }
    }

    /// Predicts a present job if it is new, or has another name or size now.
    pub fn add_job(&mut self, job: JobId, submission: &Submission) {
        if self.expected.get(&job).is_some_and(|e| e.submission == *submission) {
            return;
        }
        let features = self.history.look_up(submission);
        let samples = self.forest.as_ref().and_then(|f| f.tree_samples(&[&features.features]).ok());
        let sample = samples.as_ref().and_then(|rows| rows.first()).map(Vec::as_slice);
        let raw = pool_with_forest(&features.mixture, sample);
        let lengths = self.calibration.apply_to(&raw);
        self.expected.insert(job, ExpectedJob { submission: submission.clone(), features, raw, lengths });
    }

    /// The predicted length of a job, as work in all. The user's estimate of the length replaces the
    /// prediction. The time at which its loss will be flat counts as much as the lengths of similar jobs.
    pub fn predict_lengths(&self, job: JobId, estimate: &UserEstimate) -> LengthDistribution {
        let expected = self.expected.get(&job);
        let user = expected.map_or("", |e| &e.submission.user);
        let estimated =
            estimate.declared_secs.and_then(|secs| self.estimate_errors.predict_lengths(user, secs));
        if let Some(lengths) = estimated {
            return lengths;
        }
        let similar = expected.map_or_else(|| self.history.site_lengths(), |e| e.lengths.clone());
        match estimate.flat_loss_secs.and_then(|secs| self.flat_loss_errors.predict_lengths(user, secs)) {
            Some(flat) => flat.pool_with(&similar),
            None => similar,
        }
    }

    /// Takes in the end of a predicted job at a time, its length, and its first estimates.
    pub fn record_end(&mut self, job: JobId, at: UnixTime, secs: f64, estimate: &UserEstimate) {
        let Some(expected) = self.expected.remove(&job) else { return };
        self.record_estimates(&expected.submission.user, secs, estimate);
        self.accuracy.record_end(&expected.lengths, secs);
        let past = PastJob { job: expected.submission, ended_at: at.0 as f64, secs, estimate: *estimate };
        self.calibration.record_end(&expected.raw, log_length(past.secs));
        self.learn_length(&expected.features, &past);
    }

    /// Forgets jobs that are gone without a known end.
    pub fn retain(&mut self, is_here: impl Fn(JobId) -> bool) {
        self.expected.retain(|job, _| is_here(*job));
    }

    fn learn_length(&mut self, features: &LengthFeatures, past: &PastJob) {
        if self.samples.len() == FOREST_WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back((features.features.clone(), features.log_error(past)));
        self.history.record_end(&past.job, past.ended_at, past.secs);
    }

    /// How accurate the last predictions were.
    pub fn accuracy_counts(&self) -> AccuracyCounts {
        self.accuracy.to_counts()
    }

    /// The data from which a forest would be grown now.
    pub fn forest_training(&self) -> ForestTraining {
        let (rows, missed) = self.samples.iter().cloned().unzip();
        ForestTraining { rows, missed }
    }

    /// Sets the forest. It counts for jobs that come from now on.
    pub fn set_forest(&mut self, forest: LengthForest) {
        self.forest = Some(forest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(user: &str, secs: f64) -> PastJob {
        let job = Submission { user: user.to_owned(), nodes: 4, ..Submission::default() };
        PastJob { job, ended_at: 0.0, secs, estimate: UserEstimate::default() }
    }

    fn said(secs: f64) -> UserEstimate {
        UserEstimate { declared_secs: Some(secs), ..UserEstimate::default() }
    }

    #[test]
    fn a_new_job_is_expected_to_be_like_those_that_ended() {
        let mut predictor = LengthPredictor::default();
        predictor.learn_history(&vec![past("alice", 1000.0); 5]);
        predictor.learn_history(&vec![past("bob", 50.0); 5]);
        let alice = past("alice", 0.0).job;
        predictor.add_job(JobId(1), &alice);
        let nothing = UserEstimate::default();
        let median = |o: &LengthPredictor| o.predict_lengths(JobId(1), &nothing).quantile_secs(0.5);
        assert!((median(&predictor) - 1000.0).abs() < 1.0);
        let estimated = predictor.predict_lengths(JobId(1), &said(300.0)).quantile_secs(0.5);
        assert!((estimated - 300.0).abs() < 1.0, "its own estimate counts most");
        // Later ends do not change an earlier prediction.
        for job in 10..19 {
            predictor.add_job(JobId(job), &alice);
            predictor.record_end(JobId(job), UnixTime(5), 10.0, &nothing);
        }
        predictor.add_job(JobId(1), &alice);
        assert!((median(&predictor) - 1000.0).abs() < 1.0);
        predictor.add_job(JobId(2), &alice);
        assert!(predictor.predict_lengths(JobId(2), &nothing).quantile_secs(0.5) < 20.0);
        let counts = predictor.accuracy_counts();
        assert_eq!((counts.jobs, counts.predictable > 0), (19, true), "{counts:?}");
        predictor.retain(|job| job == JobId(2));
        assert_eq!(predictor.expected.len(), 1);
    }

    #[test]
    fn a_wrong_estimate_is_believed_less() {
        let mut predictor = LengthPredictor::default();
        let alice = past("alice", 0.0).job;
        for job in 1..6 {
            predictor.add_job(JobId(job), &alice);
            predictor.record_end(JobId(job), UnixTime(9), 5000.0, &said(100.0));
        }
        predictor.add_job(JobId(7), &alice);
        let expected = predictor.predict_lengths(JobId(7), &said(100.0)).quantile_secs(0.5);
        assert!(expected > 2000.0, "{expected}");
        // The same holds after a restart.
        let mut next = LengthPredictor::default();
        next.learn_history(&vec![PastJob { estimate: said(100.0), ..past("alice", 5000.0) }; 5]);
        next.add_job(JobId(7), &alice);
        assert_eq!(
            next.predict_lengths(JobId(7), &said(100.0)),
            predictor.predict_lengths(JobId(7), &said(100.0))
        );
        let other = predictor.estimate_errors.predict_lengths("bob", 100.0).unwrap();
        assert!((other.quantile_secs(0.5) - 100.0).abs() < 1e-6);
    }

    #[test]
    fn a_flat_loss_counts_beside_similar_jobs_corrected_by_the_users_errors() {
        let mut predictor = LengthPredictor::default();
        predictor.learn_history(&vec![past("bob", 1000.0); 5]);
        let flat = |secs: f64| UserEstimate { flat_loss_secs: Some(secs), ..UserEstimate::default() };
        let alice = past("alice", 0.0).job;
        predictor.add_job(JobId(1), &alice);
        let alone = predictor.predict_lengths(JobId(1), &UserEstimate::default());
        let first = predictor.predict_lengths(JobId(1), &flat(20_000.0));
        assert!(
            first.quantile_secs(0.9) > 10_000.0 && first.quantile_secs(0.1) < 2.0 * alone.quantile_secs(0.1),
            "{first:?}"
        );
        // Alice stops at a tenth of that.
        for job in 2..12 {
            predictor.add_job(JobId(job), &alice);
            predictor.record_end(JobId(job), UnixTime(9), 2000.0, &flat(20_000.0));
        }
        predictor.add_job(JobId(20), &alice);
        let then = predictor.predict_lengths(JobId(20), &flat(60_000.0));
        assert!((5000.0..=7000.0).contains(&then.quantile_secs(0.7)), "{then:?}");
    }

    #[test]
    fn a_forest_grows_from_ended_jobs_and_counts_for_new_ones() {
        let mut predictor = LengthPredictor::default();
        assert!(predictor.forest_training().grow_forest(1).unwrap().is_none());
        // Jobs that are alike by user differ in a feature that only the forest uses.
        let numbered = |i: usize| {
            let secs = [100.0, 3000.0][(i * 7919 % 13) % 2];
            let mut past = past("alice", secs);
            past.job.submitted_at = 60.0 * i as f64;
            past.ended_at = 60.0 * i as f64 + 30.0;
            past.job.further_facts = vec![secs];
            past
        };
        predictor.learn_history(&(0..800).map(numbered).collect::<Vec<_>>());
        let forest = predictor.forest_training().grow_forest(1).unwrap().unwrap();
        predictor.set_forest(forest);
        let mut medians = Vec::new();
        for i in 0..2 {
            predictor.add_job(JobId(i as u32 + 1), &numbered([0, 7][i]).job);
            medians.push(
                predictor.predict_lengths(JobId(i as u32 + 1), &UserEstimate::default()).quantile_secs(0.5),
            );
        }
        assert!(medians[0] * 3.0 < medians[1], "{medians:?}");
    }
}
