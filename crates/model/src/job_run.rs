//! A run of a job, as Slurm's accounting has it.

use super::{JobId, UnixTime};

/// A run of a job; one that is requeued has several.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRun {
    /// The job.
    pub job: JobId,
    /// Owner.
    pub user: String,
    /// Account.
    pub account: String,
    /// Since when it could have started.
    pub waited_from: UnixTime,
    /// When it started.
    pub start: UnixTime,
    /// When it ended; `None` while it runs.
    pub end: Option<UnixTime>,
    /// Partition.
    pub partition: String,
    /// Nodes.
    pub nodes: u32,
    /// GPUs; 0 where Slurm does not count any.
    pub gpus: u32,
    /// CPUs; 0 where accounting does not say.
    pub cpus: u64,
    /// Energy, where Slurm measures any.
    pub joules: Option<f64>,
}

impl JobRun {
    /// Seconds of it within a stretch of time that is over at `now` at the latest.
    pub fn secs_within(&self, from: UnixTime, to: UnixTime, now: UnixTime) -> f64 {
        let end = self.end.unwrap_or(now).min(to);
        end.secs_since(self.start.max(from)).max(0.0)
    }
}
