//! A run of a job, as recorded by Slurm's accounting.

use super::{JobId, UnixTime};

/// A run of a job. A requeued job has several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRun {
    /// The job id; the same for all runs of a job.
    pub job: JobId,
    /// The owner's login name.
    pub user: String,
    /// Slurm's account of the job.
    pub account: String,
    /// Since when the job could have started.
    pub waited_from: UnixTime,
    /// When the run started.
    pub start: UnixTime,
    /// When the run ended; `None` while it runs.
    pub end: Option<UnixTime>,
    /// The partition in which it ran.
    pub partition: String,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of GPUs; 0 if Slurm does not count any.
    pub gpus: u32,
    /// The number of CPUs; 0 if accounting does not say.
    pub cpus: u64,
    /// Energy in joules; `None` if Slurm does not measure it.
    pub joules: Option<f64>,
}

impl JobRun {
    /// Seconds of the run between `from` and `to`. A run without an end counts until `now`.
    pub fn secs_within(&self, from: UnixTime, to: UnixTime, now: UnixTime) -> f64 {
        let end = self.end.unwrap_or(now).min(to);
        end.secs_since(self.start.max(from)).max(0.0)
    }
}
