//! How long jobs are expected to run, how much their users have used, and what follows for the order of jobs.

use std::collections::BTreeSet;

use super::guarantees::GuaranteeRecord;
use super::rotation::TurnRotation;
use super::usage::UserUsage;
use infill_advisor::length::{LengthDistribution, LengthPredictor};
use infill_model::{JobFacts, JobId, TurnState, UnixTime, UserEstimate, duration};

/// Number of ended jobs, the last ones, from which a daemon learns at its start.
pub const MAX_LEARNED_JOBS: u32 = 100_000;

/// The predicted lengths of jobs, the usage of their owners, turns and promises.
#[derive(Debug, Default)]
pub struct JobPriorities {
    /// Predicts how long jobs run.
    pub length_predictor: LengthPredictor,
    /// How much users have used.
    pub usage: UserUsage,
    /// Node-seconds of jobs, and whose turn it is to hold nodes.
    pub(super) rotation: TurnRotation,
    /// Promises that were made.
    pub(super) promises: GuaranteeRecord,
}

impl JobPriorities {
    /// Takes in the present jobs. Forgets the others.
    pub(super) fn ingest_jobs(&mut self, jobs: &[JobFacts], half_life_secs: f64, now: UnixTime) {
        self.usage.ingest_jobs(jobs, half_life_secs, now);
        self.rotation.ingest_jobs(jobs, now);
        let here: BTreeSet<JobId> = jobs.iter().map(|job| job.job).collect();
        self.length_predictor.retain(|job| here.contains(&job));
        jobs.iter().for_each(|job| self.length_predictor.add_job(job.job, &job.submission()));
    }

    /// The remaining work of a job that makes `unit` samples a second on one node and whose start costs
    /// `stop_secs` seconds.
    pub fn remaining_work(&self, job: &JobFacts, unit: f64, stop_secs: f64) -> RemainingWork {
        let estimate = job.progress.current_estimate(unit);
        let lengths = self.length_predictor.predict_lengths(job.job, &estimate);
        RemainingWork { lengths, done_secs: job.progress.work_secs(unit), stop_secs, estimate }
    }
}

impl JobPriorities {
    /// The turn of a job, as the last snapshot settled it; `None` if the job does not want nodes.
    pub fn turn_of(&self, job: JobId) -> Option<TurnState> {
        self.rotation.turn_of(job)
    }

    /// When a job was promised its rate; `None` without a promise.
    pub fn promised_at(&self, job: JobId) -> Option<UnixTime> {
        self.promises.made_at(job)
    }

    /// Restores the promises that an earlier daemon made, each with its time.
    pub fn restore_promises(&mut self, made: impl Iterator<Item = (JobId, UnixTime)>) {
        self.promises.restore_guarantees(made);
    }

    /// Forgets the promise to a job that has ended.
    pub fn forget_job(&mut self, job: JobId) {
        self.promises.forget_job(job);
    }

    /// When the next turn ends for which some job waits; `None` if no job waits.
    pub fn next_end(&self, now: UnixTime) -> Option<UnixTime> {
        self.rotation.next_end(now)
    }

    /// Says what a job's priority rests on: its expected and its finished work, and its owner's recent use.
    pub fn describe_turn(&self, job: &JobFacts, remaining: &RemainingWork) -> String {
        let basis = if remaining.estimate.declared_secs.is_some() {
            "by its own estimate and how accurate such estimates were"
        } else if remaining.estimate.flat_loss_secs.is_some() {
            "by how its loss flattens and by similar jobs"
        } else if remaining.lengths.is_narrow() {
            "as similar jobs took"
        } else {
            "a rough guess: similar jobs differ, or there are none"
        };
        let total = duration::format_duration(remaining.lengths.quantile_secs(0.5));
        let done = duration::format_duration(remaining.done_secs);
        let used_hours = self.usage.used_by(&job.program.user) / 3600.0;
        format!(
            "{total} of work on one node in total, {basis}; {done} of it done; \
             its owner used {used_hours:.1} node-hours recently"
        )
    }
}

/// The work of a job: what it is expected to do in all, and how much of that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct RemainingWork {
    /// Expected work in all, seconds on one node.
    pub lengths: LengthDistribution,
    /// Work that is done, seconds on one node.
    pub done_secs: f64,
    /// What one stop and start cost the job, seconds.
    pub stop_secs: f64,
    /// The estimates of the job's length.
    pub estimate: UserEstimate,
}

impl RemainingWork {
    /// Whether the end is well known: the prediction is narrow and the job has not outlived it.
    pub fn is_well_known(&self) -> bool {
        self.lengths.is_narrow() && self.done_secs < self.lengths.quantile_secs(0.9)
    }

    /// The distribution of the remaining work, seconds on one node.
    pub fn remaining_lengths(&self) -> LengthDistribution {
        self.lengths.remaining_lengths(self.done_secs)
    }

    /// The median of the remaining work, seconds on one node.
    pub fn remaining_secs(&self) -> f64 {
        self.lengths.corrected_remaining_secs(self.done_secs)
    }

    /// Remaining work plus one start, seconds; `None` where it is not well known.
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
            estimate: UserEstimate::default(),
        }
    }

    #[test]
    fn remaining_work_is_known_until_it_is_outlived() {
        let start_secs = 30.0;
        let untouched = ahead(1e4, 0.0, start_secs).known_remaining_secs();
        assert!((untouched.unwrap() - 10_030.0).abs() < 1e-6, "a start is work");
        assert!((ahead(1e4, 9e3, start_secs).known_remaining_secs().unwrap() - 1_030.0).abs() < 1e-6);
        assert_eq!(ahead(1e4, 1e5, start_secs).known_remaining_secs(), None);
        let differ = LengthDistribution::from_logs(vec![1.0, 5.0, 9.0]).unwrap();
        assert_eq!(RemainingWork { lengths: differ, ..ahead(1e4, 0.0, 30.0) }.known_remaining_secs(), None);
    }
}
