//! Seconds before the end of a window at which its node must be left.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use infill_model::{JobId, NodeType, SaveContention};

/// Seconds from a worker's exit until Slurm shows its node idle, at the least: COMPLETING, and an epilog that
/// does nothing. Seen: 1–2 s.
pub const CLEANUP_SECS: f64 = 3.0;

/// Seconds in which a job saves and exits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopTime {
    /// Where no other job saves, by the two answers of [`LeaveTimes::contention`]: what was measured beside
    /// others is less alone, the more they slow each other down.
    pub alone_secs: [f64; 2],
    /// Never longer: then it is killed.
    pub most_secs: f64,
}

impl StopTime {
    /// So many seconds, whatever is known of others, and as many as it takes.
    pub fn from_secs(secs: f64) -> Self {
        StopTime { alone_secs: [secs; 2], most_secs: f64::INFINITY }
    }

    /// Seconds where no other job saves.
    pub fn max_alone_secs(&self) -> f64 {
        self.alone_secs[0].max(self.alone_secs[1]).min(self.most_secs)
    }

    /// Whether another is slower than this in any way.
    fn is_exceeded_by(&self, by: &StopTime) -> bool {
        by.alone_secs[0] > self.alone_secs[0]
            || by.alone_secs[1] > self.alone_secs[1]
            || by.most_secs > self.most_secs
    }

    fn min_with(self, other: &StopTime) -> StopTime {
        StopTime {
            alone_secs: [0, 1].map(|i| self.alone_secs[i].min(other.alone_secs[i])),
            most_secs: self.most_secs.min(other.most_secs),
        }
    }
}

/// What leaving takes each job on each type of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaveTimes {
    /// Seconds from the decision until the node is idle, at the least: as configured.
    pub least_secs: f64,
    /// Seconds until the next round: a window that is just long enough now is not in the next one.
    pub notice_secs: f64,
    /// Seconds from a worker's exit until the node is idle, by type, where it was measured.
    pub cleanups: BTreeMap<NodeType, f64>,
    /// How much jobs that save at once slow each other down: as little, and as much, as what was measured
    /// allows.
    pub contention: [SaveContention; 2],
    /// Most seconds that are added because others save, too.
    pub contention_secs: f64,
    /// In what times jobs save and exit, as far as that is known.
    pub stops: FxHashMap<JobId, StopTime>,
    /// Of how many more jobs nothing says so yet.
    pub unknown: usize,
    /// What each of the known ones takes at the least: whoever takes a free node has its own time, or more.
    pub quickest: Option<StopTime>,
}

impl LeaveTimes {
    /// The same where jobs save and exit in these times. What is not known of the others is configured.
    pub fn with_stops(mut self, stops: FxHashMap<JobId, StopTime>) -> Self {
        self.quickest = stops.values().copied().reduce(|a, b| a.min_with(&b));
        self.stops = stops;
        self
    }

    /// The time in which this job saves and exits; without a job, in which every one does that is known.
    pub(crate) fn stop_time(&self, job: Option<JobId>) -> Option<StopTime> {
        job.map_or(self.quickest, |job| self.stops.get(&job).copied())
    }

    /// Seconds before the end of a window at which this job must leave such a node, where no other saves
    /// then; without a job, at which the quickest must.
    pub fn leave_secs(&self, job: Option<JobId>, node_type: &NodeType) -> f64 {
        self.secs_until_idle(self.stop_time(job).map(|stop| stop.max_alone_secs()), node_type)
    }

    /// The same of a job that saves and exits in so many seconds, if that is known.
    pub(crate) fn secs_until_idle(&self, stop_secs: Option<f64>, node_type: &NodeType) -> f64 {
        self.add_cleanup(stop_secs, self.cleanups.get(node_type).copied().unwrap_or(0.0))
    }

    /// Seconds before the end of a window at which the quickest job must leave a node at the most, however
    /// many save with it.
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
            // The usual clean-up is in what is configured.
            None => self.least_secs + cleanup - CLEANUP_SECS,
        };
        self.notice_secs + takes.max(self.least_secs)
    }

    /// Whether this job must leave some node earlier than another would.
    pub fn is_slow(&self, job: JobId) -> bool {
        // The longer the clean-up, the less is hidden by what is configured.
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
    fn each_job_has_its_own_time_and_what_is_configured_is_the_least() {
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
        assert_eq!(secs(Some(1), &plain), 20.0, "the least, and a round");
        assert_eq!(secs(Some(2), &plain), 48.0);
        assert_eq!(secs(Some(1), &slow), 26.0, "an epilog of 20 s");
        assert_eq!(secs(Some(2), &slow), 65.0);
        assert_eq!((secs(Some(3), &plain), secs(Some(3), &slow)), (20.0, 37.0), "nothing is known of it");
        assert_eq!((secs(None, &plain), secs(None, &slow)), (20.0, 26.0));
        assert!(times.is_slow(JobId(2)) && !times.is_slow(JobId(1)) && times.is_slow(JobId(3)));
    }

    #[test]
    fn a_job_that_may_take_longer_among_others_is_slow() {
        let stop = |most_secs| StopTime { most_secs, ..StopTime::from_secs(10.0) };
        let times = LeaveTimes { least_secs: 15.0, contention_secs: 600.0, ..LeaveTimes::default() };
        let times = times.with_stops(FxHashMap::from_iter([(JobId(1), stop(60.0)), (JobId(2), stop(300.0))]));
        assert!(!times.is_slow(JobId(2)), "saves do not feel each other");
        let shared = LeaveTimes { contention: [SaveContention::new([1.0; 3]); 2], ..times };
        assert!(shared.is_slow(JobId(2)) && !shared.is_slow(JobId(1)));
        assert_eq!(shared.max_quickest_secs(), 63.0, "then it is killed");
    }
}
