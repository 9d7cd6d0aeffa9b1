//! Seconds before the end of a window at which its node must be left.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use infill_model::{JobId, NodeType, SaveContention};

/// Least seconds from a worker's exit until Slurm shows its node idle: COMPLETING, and an epilog that does
/// nothing. Seen: 1–2 s.
pub const CLEANUP_SECS: f64 = 3.0;

/// Seconds in which a job saves and exits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopTime {
    /// Where no other job saves, by the two bounds of [`LeaveTimes::contention`]. A time that was measured
    /// beside others is shorter alone, the more saves slow each other down.
    pub alone_secs: [f64; 2],
    /// The longest possible time, after which the job is killed.
    pub most_secs: f64,
}

impl StopTime {
    /// The same time by both bounds, without a limit.
    pub fn from_secs(secs: f64) -> Self {
        StopTime { alone_secs: [secs; 2], most_secs: f64::INFINITY }
    }

    /// Seconds where no other job saves, by the worse bound.
    pub fn max_alone_secs(&self) -> f64 {
        self.alone_secs[0].max(self.alone_secs[1]).min(self.most_secs)
    }

    /// Whether another job is slower than this one in any way.
    fn is_exceeded_by(&self, other: &StopTime) -> bool {
        other.alone_secs[0] > self.alone_secs[0]
            || other.alone_secs[1] > self.alone_secs[1]
            || other.most_secs > self.most_secs
    }

    fn min_with(self, other: &StopTime) -> StopTime {
        StopTime {
            alone_secs: [0, 1].map(|i| self.alone_secs[i].min(other.alone_secs[i])),
            most_secs: self.most_secs.min(other.most_secs),
        }
    }
}

/// How long each job takes to leave each type of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaveTimes {
    /// Least seconds from the decision until the node is idle, from the configuration.
    pub least_secs: f64,
    /// Seconds until the next round, because a window that is just long enough now is too short then.
    pub notice_secs: f64,
    /// Seconds from a worker's exit until the node is idle, by type, where measured.
    pub cleanups: BTreeMap<NodeType, f64>,
    /// How much jobs that save at once slow each other down: the lower and the upper bound that the
    /// measurements allow.
    pub contention: [SaveContention; 2],
    /// Most seconds that are added because others save, too.
    pub contention_secs: f64,
    /// The times in which jobs save and exit, as far as known.
    pub stop_times: FxHashMap<JobId, StopTime>,
    /// The number of further jobs whose time is unknown.
    pub unknown_jobs: usize,
    /// The least of the known times, part by part. A job that takes a free node needs at least this.
    pub quickest: Option<StopTime>,
}

impl LeaveTimes {
    /// Sets the known times of jobs. The others count with the configured time.
    pub fn with_stops(mut self, stops: FxHashMap<JobId, StopTime>) -> Self {
        self.quickest = stops.values().copied().reduce(|a, b| a.min_with(&b));
        self.stop_times = stops;
        self
    }

    /// The time in which this job saves and exits; without a job, the quickest of the known ones.
    pub(crate) fn stop_time(&self, job: Option<JobId>) -> Option<StopTime> {
        job.map_or(self.quickest, |job| self.stop_times.get(&job).copied())
    }

    /// Seconds before the end of a window at which this job must leave a node of this type, where no other
    /// job saves then. Without a job, the seconds of the quickest.
    pub fn leave_secs(&self, job: Option<JobId>, node_type: &NodeType) -> f64 {
        self.secs_until_idle(self.stop_time(job).map(|stop| stop.max_alone_secs()), node_type)
    }

    /// Seconds before the end of a window at which a job must leave that saves and exits in `stop_secs`, if
    /// that is known.
    pub(crate) fn secs_until_idle(&self, stop_secs: Option<f64>, node_type: &NodeType) -> f64 {
        self.add_cleanup(stop_secs, self.cleanups.get(node_type).copied().unwrap_or(0.0))
    }

    /// Most seconds before the end of a window at which the quickest job must leave a node, however many jobs
    /// save with it.
    pub fn max_quickest_secs(&self) -> f64 {
        self.add_cleanup(self.quickest.map(|stop| self.longest_stop_secs(&stop)), self.longest_cleanup())
    }

    fn longest_stop_secs(&self, stop: &StopTime) -> f64 {
        let shared = if self.contention == [SaveContention::NONE; 2] { 0.0 } else { self.contention_secs };
        (stop.max_alone_secs() + shared).min(stop.most_secs)
    }

    fn longest_cleanup(&self) -> f64 {
        self.cleanups.values().copied().fold(0.0, f64::max)
    }

    fn add_cleanup(&self, stop_secs: Option<f64>, cleanup_secs: f64) -> f64 {
        let cleanup = cleanup_secs.max(CLEANUP_SECS);
        let takes = match stop_secs {
            Some(stop) => stop + cleanup,
            // The configured time includes the usual clean-up.
            None => self.least_secs + cleanup - CLEANUP_SECS,
        };
        self.notice_secs + takes.max(self.least_secs)
    }

    /// Whether this job must leave some node earlier than another would.
    pub fn is_slow(&self, job: JobId) -> bool {
        // The longer the clean-up, the less of the stop time the configured least time covers.
        let cleanup = self.longest_cleanup();
        let least = self.add_cleanup(self.quickest.map(|stop| stop.max_alone_secs()), cleanup);
        match (self.stop_time(Some(job)), self.quickest) {
            (Some(stop), Some(quickest)) => {
                quickest.is_exceeded_by(&stop)
                    && self.add_cleanup(Some(self.longest_stop_secs(&stop)), cleanup) > least
            }
            _ => self.add_cleanup(None, cleanup) > least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_its_own_time_and_the_configured_one_is_the_least() {
        let plain = NodeType::new("a");
        let slow = NodeType::new("b");
        let stops = [(JobId(1), StopTime::from_secs(1.0)), (JobId(2), StopTime::from_secs(40.0))];
        let times = LeaveTimes {
            least_secs: 15.0,
            notice_secs: 5.0,
            cleanups: BTreeMap::from([(slow.clone(), 20.0)]),
            ..LeaveTimes::default()
        };
        let times = times.with_stops(FxHashMap::from_iter(stops));
        let secs = |job: Option<u32>, node_type| times.leave_secs(job.map(JobId), node_type);
        assert_eq!(secs(Some(1), &plain), 20.0, "the least time, and a round");
        assert_eq!(secs(Some(2), &plain), 48.0);
        assert_eq!(secs(Some(1), &slow), 26.0, "an epilog of 20 s");
        assert_eq!(secs(Some(2), &slow), 65.0);
        assert_eq!((secs(Some(3), &plain), secs(Some(3), &slow)), (20.0, 37.0), "its time is unknown");
        assert_eq!((secs(None, &plain), secs(None, &slow)), (20.0, 26.0));
        assert!(times.is_slow(JobId(2)) && !times.is_slow(JobId(1)) && times.is_slow(JobId(3)));
    }

    #[test]
    fn a_job_that_may_take_longer_among_others_is_slow() {
        let stop = |most_secs| StopTime { most_secs, ..StopTime::from_secs(10.0) };
        let times = LeaveTimes { least_secs: 15.0, contention_secs: 600.0, ..LeaveTimes::default() };
        let times = times.with_stops(FxHashMap::from_iter([(JobId(1), stop(60.0)), (JobId(2), stop(300.0))]));
        assert!(!times.is_slow(JobId(2)), "saves do not slow each other down");
        let shared = LeaveTimes { contention: [SaveContention::new([1.0; 3]); 2], ..times };
        assert!(shared.is_slow(JobId(2)) && !shared.is_slow(JobId(1)));
        assert_eq!(shared.max_quickest_secs(), 63.0, "then it is killed");
    }
}
