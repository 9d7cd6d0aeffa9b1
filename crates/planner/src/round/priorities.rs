//! How long jobs are expected to run, what their users have had, and who comes next by that.

use std::collections::BTreeSet;

use super::guarantees::GuaranteeRecord;
use super::rotation::TurnRotation;
use super::usage::UserUsage;
use infill_advisor::length::{LengthDistribution, LengthPredictor};
use infill_model::{JobFacts, JobId, TurnState, UnixTime, UserEstimate, duration};

/// Ended jobs from which a daemon learns at its start: the last so many.
pub const ENDED_TO_LEARN_FROM: u32 = 100_000;

/// What is known of how long jobs run, of what their owners have had, and of what they were promised.
#[derive(Debug, Default)]
pub struct JobPriorities {
    /// How long jobs are expected to run.
    pub outlook: LengthPredictor,
    /// What users have had.
    pub usage: UserUsage,
    /// What jobs have had, and whose turn it is to hold nodes.
    pub(super) rotation: TurnRotation,
    /// What jobs were promised.
    pub(super) promises: GuaranteeRecord,
}

impl JobPriorities {
    /// Takes in the jobs that are here.
    pub(super) fn ingest_jobs(&mut self, jobs: &[JobFacts], half_life_secs: f64, now: UnixTime) {
        self.usage.ingest_jobs(jobs, half_life_secs, now);
        self.rotation.ingest_jobs(jobs, now);
        let here: BTreeSet<JobId> = jobs.iter().map(|job| job.job).collect();
        self.outlook.retain(|job| here.contains(&job));
        jobs.iter().for_each(|job| self.outlook.add_job(job.job, &job.submission()));
    }

    /// The work that a job has ahead, which makes `unit` samples a second on one node, and to which a start
    /// costs so much.
    pub fn remaining_work(&self, job: &JobFacts, unit: f64, stop_secs: f64) -> RemainingWork {
        let word = job.course.current_estimate(unit);
        let lengths = self.outlook.predict_lengths(job.job, &word);
        RemainingWork { lengths, done_secs: job.course.work_secs(unit), stop_secs, word }
    }
}

impl JobPriorities {
    /// Where a job stands among those that want nodes, by the last look.
    pub fn turn_of(&self, job: JobId) -> Option<TurnState> {
        self.rotation.turn_of(job)
    }

    /// When a job was promised its rate, by the last look; `None` where nothing is promised.
    pub fn promised_at(&self, job: JobId) -> Option<UnixTime> {
        self.promises.made_at(job)
    }

    /// Takes up what an earlier daemon promised, and when.
    pub fn restore_promises(&mut self, made: impl Iterator<Item = (JobId, UnixTime)>) {
        self.promises.restore_guarantees(made);
    }

    /// Forgets what was promised to a job that has ended.
    pub fn forget_job(&mut self, job: JobId) {
        self.promises.forget_job(job);
    }

    /// When the next turn ends for which somebody waits.
    pub fn next_end(&self, now: UnixTime) -> Option<UnixTime> {
        self.rotation.next_end(now)
    }

    /// Why a job's turn comes when it does, in words.
    pub fn describe_turn(&self, job: &JobFacts, ahead: &RemainingWork) -> String {
        let whose = match (&ahead.word, ahead.lengths.is_narrow()) {
            (UserEstimate { said_secs: Some(_), .. }, _) => "by its own word, and how true such words were",
            (UserEstimate { flat_secs: Some(_), .. }, _) => {
                "by its loss, which flattens, and by jobs like it"
            }
            (_, true) => "as jobs like it did",
            (_, false) => "if anything, for jobs like it differ",
        };
        let all = duration::format_duration(ahead.lengths.quantile_secs(0.5));
        let done = duration::format_duration(ahead.done_secs);
        format!(
            "{all} of one node's work in all, {whose}; {done} done; its owner has had {:.1} node-hours lately",
            self.usage.used_by(&job.program.user) / 3600.0
        )
    }
}

/// The work that a job has ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct RemainingWork {
    /// What it is expected to do in all, seconds on one node.
    pub lengths: LengthDistribution,
    /// What it has done of that.
    pub done_secs: f64,
    /// What it costs it to be stopped and started, seconds.
    pub stop_secs: f64,
    /// What it tells of that itself.
    pub word: UserEstimate,
}

impl RemainingWork {
    /// Whether it is known well when it ends: it has not outlived what was expected.
    pub fn is_well_known(&self) -> bool {
        self.lengths.is_narrow() && self.done_secs < self.lengths.quantile_secs(0.9)
    }

    /// The work that is left.
    pub fn remaining_lengths(&self) -> LengthDistribution {
        self.lengths.remaining_lengths(self.done_secs)
    }

    /// Work that is left, by the median, seconds on one node.
    pub fn remaining_secs(&self) -> f64 {
        self.lengths.corrected_remaining_secs(self.done_secs)
    }

    /// The same where it is well known, with what a start costs.
    pub(super) fn known_remaining_secs(&self) -> Option<f64> {
        self.is_well_known().then(|| self.remaining_secs() + self.stop_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(secs: f64, done_secs: f64, stop_secs: f64) -> RemainingWork {
        RemainingWork {
            lengths: LengthDistribution::from_logs(vec![secs.ln(); 4]).unwrap(),
            done_secs,
            stop_secs,
            word: UserEstimate::default(),
        }
    }

    #[test]
    fn what_is_left_is_known_until_it_is_outlived() {
        let known = |secs: f64, done_secs: f64| ahead(secs, done_secs, 30.0).known_remaining_secs();
        assert!((known(1e4, 0.0).unwrap() - 10_030.0).abs() < 1e-6, "a start is work");
        assert!((known(1e4, 9e3).unwrap() - 1_030.0).abs() < 1e-6);
        assert_eq!(known(1e4, 1e5), None);
        let differ = LengthDistribution::from_logs(vec![1.0, 5.0, 9.0]).unwrap();
        assert_eq!(RemainingWork { lengths: differ, ..ahead(1e4, 0.0, 30.0) }.known_remaining_secs(), None);
    }
}
