//! What is expected of the jobs that are here: learned from those that ended, looked up once when a job
//! comes, and held against what it says of itself.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::calibration::IntervalCalibration;
use super::distribution::{LengthDistribution, log_length};
use super::forest::{FEWEST, Forest, ForestError};
use super::forest_pooling::pool_with_forest;
use super::length_history::{LengthFeatures, LengthHistory};
use super::prediction_accuracy::{AccuracyCounts, PredictionAccuracy};
use super::user_estimate::UserEstimateErrors;
use infill_model::{JobId, PastJob, Submission, UnixTime, UserEstimate};

/// Ended jobs that a forest is grown from: the last so many.
const FOREST_WINDOW: usize = 20_000;

/// What a forest is grown from, apart from everything else: growing takes seconds, and is done elsewhere.
#[derive(Clone, Debug, Default)]
pub struct ForestTraining {
    rows: Vec<Vec<f64>>,
    missed: Vec<f64>,
}

impl ForestTraining {
    /// A forest; `None` while too little is known.
    ///
    /// # Errors
    /// [`ForestError`] where the library refuses the numbers.
    pub fn grow_forest(self, seed: u64) -> Result<Option<Forest>, ForestError> {
        if self.rows.len() < FEWEST {
            return Ok(None);
        }
        let rows: Vec<&[f64]> = self.rows.iter().map(Vec::as_slice).collect();
        Forest::grow(&rows, self.missed, seed).map(Some)
    }
}

/// What is expected of a job that is here.
#[derive(Clone, Debug)]
struct ExpectedJob {
    submission: Submission,
    glance: LengthFeatures,
    /// Before it is held to what intervals promise.
    raw: LengthDistribution,
    lengths: LengthDistribution,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct LengthPredictor {
    history: LengthHistory,
    forest: Option<Forest>,
    calibration: IntervalCalibration,
    expected: FxHashMap<JobId, ExpectedJob>,
    words: UserEstimateErrors,
    /// How far losses were flat when jobs ended.
    losses: UserEstimateErrors,
    trueness: PredictionAccuracy,
    /// What was known of the jobs that ended when they came, and by how much the logarithm of their length
    /// then differed from the mixture's median.
    seen: VecDeque<(Vec<f64>, f64)>,
}

impl LengthPredictor {
    /// Learns from jobs that ended before, the first to end first; also how far it was true what history
    /// alone expected of each when it was submitted, and what each told itself.
    pub fn learn_history(&mut self, past: &[PastJob]) {
        let mut by_start: Vec<usize> = (0..past.len()).collect();
        by_start.sort_by(|a, b| past[*a].job.at.total_cmp(&past[*b].job.at));
        let mut to_come = by_start.into_iter().peekable();
        let mut met = FxHashMap::default();
        for (index, done) in past.iter().enumerate() {
            // Who comes in the moment of an end knows of it, and none is met after its own.
            while let Some(next) = to_come.next_if(|i| past[*i].job.at < done.ended_at) {
                met.insert(next, self.predict_from_history(&past[next].job));
            }
            let (glance, expected) =
                met.remove(&index).unwrap_or_else(|| self.predict_from_history(&done.job));
            self.trueness.record_end(&expected, done.secs);
            self.calibration.record_end(&glance.mixture, log_length(done.secs));
            self.record_estimates(&done.job.user, done.secs, &done.word);
            self.learn_length(&glance, done);
        }
    }

    /// What history alone expects of a submission now.
    fn predict_from_history(&self, job: &Submission) -> (LengthFeatures, LengthDistribution) {
        let glance = self.history.look_up(job);
        let expected = self.calibration.apply_to(&glance.mixture);
        (glance, expected)
    }

    /// Takes in how true what a user's job told itself was.
    fn record_estimates(&mut self, user: &str, secs: f64, word: &UserEstimate) {
        for (words, said) in [(&mut self.words, word.said_secs), (&mut self.losses, word.flat_secs)] {
            if let Some(said) = said {
                words.record_estimate(user, said, secs);
            }
        }
    }

    /// Looks a job up that is here, if it is new, or known by another name or size now.
    pub fn add_job(&mut self, job: JobId, submission: &Submission) {
        if self.expected.get(&job).is_some_and(|e| e.submission == *submission) {
            return;
        }
        let glance = self.history.look_up(submission);
        let said = self.forest.as_ref().and_then(|f| f.tree_samples(&[&glance.features]).ok());
        let raw =
            pool_with_forest(&glance.mixture, said.as_ref().and_then(|all| all.first()).map(Vec::as_slice));
        let lengths = self.calibration.apply_to(&raw);
        self.expected.insert(job, ExpectedJob { submission: submission.clone(), glance, raw, lengths });
    }

    /// Work that a job is expected to do in all. What it says itself counts most; where its loss will be flat
    /// counts as much as what jobs like it did.
    pub fn predict_lengths(&self, job: JobId, word: &UserEstimate) -> LengthDistribution {
        let expected = self.expected.get(&job);
        let user = expected.map_or("", |e| &e.submission.user);
        if let Some(said) = word.said_secs.and_then(|secs| self.words.predict_lengths(user, secs)) {
            return said;
        }
        let others = expected.map_or_else(|| self.history.site_lengths(), |e| e.lengths.clone());
        let flat = word.flat_secs.and_then(|secs| self.losses.predict_lengths(user, secs));
        flat.map_or_else(|| others.clone(), |flat| flat.pool_with(&others))
    }

    /// Takes in that a job that was met has ended, how long it was, and what it first told of that.
    pub fn record_end(&mut self, job: JobId, at: UnixTime, secs: f64, word: &UserEstimate) {
        let Some(expected) = self.expected.remove(&job) else { return };
        self.record_estimates(&expected.submission.user, secs, word);
        self.trueness.record_end(&expected.lengths, secs);
        let past = PastJob { job: expected.submission, ended_at: at.0 as f64, secs, word: *word };
        self.calibration.record_end(&expected.raw, log_length(past.secs));
        self.learn_length(&expected.glance, &past);
    }

    /// Forgets jobs that are not here any more, and of which nothing is known.
    pub fn retain(&mut self, is_here: impl Fn(JobId) -> bool) {
        self.expected.retain(|job, _| is_here(*job));
    }

    fn learn_length(&mut self, glance: &LengthFeatures, past: &PastJob) {
        if self.seen.len() == FOREST_WINDOW {
            self.seen.pop_front();
        }
        self.seen.push_back((glance.features.clone(), glance.log_error(past)));
        self.history.record_end(&past.job, past.ended_at, past.secs);
    }

    /// How true what was expected came out lately.
    pub fn accuracy_counts(&self) -> AccuracyCounts {
        self.trueness.to_counts()
    }

    /// What a forest would be grown from now.
    pub fn forest_training(&self) -> ForestTraining {
        let (rows, missed) = self.seen.iter().cloned().unzip();
        ForestTraining { rows, missed }
    }

    /// Takes over a forest: it counts for those who come from now on.
    pub fn set_forest(&mut self, forest: Forest) {
        self.forest = Some(forest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(user: &str, secs: f64) -> PastJob {
        let job = Submission { user: user.to_owned(), nodes: 4, ..Submission::default() };
        PastJob { job, ended_at: 0.0, secs, word: UserEstimate::default() }
    }

    fn said(secs: f64) -> UserEstimate {
        UserEstimate { said_secs: Some(secs), ..UserEstimate::default() }
    }

    #[test]
    fn who_comes_is_expected_to_be_like_those_that_ended() {
        let mut outlook = LengthPredictor::default();
        outlook.learn_history(&vec![past("alice", 1000.0); 5]);
        outlook.learn_history(&vec![past("bob", 50.0); 5]);
        let alice = past("alice", 0.0).job;
        outlook.add_job(JobId(1), &alice);
        let nothing = UserEstimate::default();
        let median = |o: &LengthPredictor| o.predict_lengths(JobId(1), &nothing).quantile_secs(0.5);
        assert!((median(&outlook) - 1000.0).abs() < 1.0);
        let told = outlook.predict_lengths(JobId(1), &said(300.0)).quantile_secs(0.5);
        assert!((told - 300.0).abs() < 1.0, "its own word counts most");
        // What ends meanwhile changes nothing of what was expected.
        for job in 10..19 {
            outlook.add_job(JobId(job), &alice);
            outlook.record_end(JobId(job), UnixTime(5), 10.0, &nothing);
        }
        outlook.add_job(JobId(1), &alice);
        assert!((median(&outlook) - 1000.0).abs() < 1.0);
        outlook.add_job(JobId(2), &alice);
        assert!(outlook.predict_lengths(JobId(2), &nothing).quantile_secs(0.5) < 20.0);
        let tally = outlook.accuracy_counts();
        assert_eq!((tally.jobs, tally.predictable > 0), (19, true), "{tally:?}");
        outlook.retain(|job| job == JobId(2));
        assert_eq!(outlook.expected.len(), 1);
    }

    #[test]
    fn a_word_that_was_false_is_believed_less() {
        let mut outlook = LengthPredictor::default();
        let alice = past("alice", 0.0).job;
        for job in 1..6 {
            outlook.add_job(JobId(job), &alice);
            outlook.record_end(JobId(job), UnixTime(9), 5000.0, &said(100.0));
        }
        outlook.add_job(JobId(7), &alice);
        let expected = outlook.predict_lengths(JobId(7), &said(100.0)).quantile_secs(0.5);
        assert!(expected > 2000.0, "{expected}");
        // So it is after a restart.
        let mut next = LengthPredictor::default();
        next.learn_history(&vec![PastJob { word: said(100.0), ..past("alice", 5000.0) }; 5]);
        next.add_job(JobId(7), &alice);
        assert_eq!(
            next.predict_lengths(JobId(7), &said(100.0)),
            outlook.predict_lengths(JobId(7), &said(100.0))
        );
        let other = outlook.words.predict_lengths("bob", 100.0).unwrap();
        assert!((other.quantile_secs(0.5) - 100.0).abs() < 1e-6);
    }

    #[test]
    fn a_loss_that_flattens_counts_beside_others_and_by_when_its_owner_had_enough() {
        let mut outlook = LengthPredictor::default();
        outlook.learn_history(&vec![past("bob", 1000.0); 5]);
        let flat = |secs: f64| UserEstimate { flat_secs: Some(secs), ..UserEstimate::default() };
        let alice = past("alice", 0.0).job;
        outlook.add_job(JobId(1), &alice);
        let alone = outlook.predict_lengths(JobId(1), &UserEstimate::default());
        let first = outlook.predict_lengths(JobId(1), &flat(20_000.0));
        assert!(
            first.quantile_secs(0.9) > 10_000.0 && first.quantile_secs(0.1) < 2.0 * alone.quantile_secs(0.1),
            "{first:?}"
        );
        // Alice stops at a tenth of that.
        for job in 2..12 {
            outlook.add_job(JobId(job), &alice);
            outlook.record_end(JobId(job), UnixTime(9), 2000.0, &flat(20_000.0));
        }
        outlook.add_job(JobId(20), &alice);
        let then = outlook.predict_lengths(JobId(20), &flat(60_000.0));
        assert!((5000.0..=7000.0).contains(&then.quantile_secs(0.7)), "{then:?}");
    }

    #[test]
    fn a_forest_grows_from_what_ended_and_counts_for_newcomers() {
        let mut outlook = LengthPredictor::default();
        assert!(outlook.forest_training().grow_forest(1).unwrap().is_none());
        // What is alike by user differs by what only the forest looks at.
        let of = |i: usize| {
            let secs = [100.0, 3000.0][(i * 7919 % 13) % 2];
            let mut past = past("alice", secs);
            (past.job.at, past.ended_at) = (60.0 * i as f64, 60.0 * i as f64 + 30.0);
            past.job.more = vec![secs];
            past
        };
        outlook.learn_history(&(0..800).map(of).collect::<Vec<_>>());
        let forest = outlook.forest_training().grow_forest(1).unwrap().unwrap();
        outlook.set_forest(forest);
        let mut medians = Vec::new();
        for i in 0..2 {
            outlook.add_job(JobId(i as u32 + 1), &of([0, 7][i]).job);
            medians.push(
                outlook.predict_lengths(JobId(i as u32 + 1), &UserEstimate::default()).quantile_secs(0.5),
            );
        }
        assert!(medians[0] * 3.0 < medians[1], "{medians:?}");
    }
}
