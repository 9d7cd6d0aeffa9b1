//! Seconds before the end of a window at which its node must be left.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use infill_model::{JobId, NodeType};

/// Seconds from a worker's exit until Slurm shows its node idle, at the least: COMPLETING, and an epilog that
/// does nothing. Seen: 1–2 s.
pub const CLEANUP_SECS: f64 = 3.0;

/// What leaving takes each job on each type of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimesToLeave {
    /// Seconds from the decision until the node is idle, at the least: as configured.
    pub least_secs: f64,
    /// Seconds until the next round: a window that is just long enough now is not in the next one.
    pub notice_secs: f64,
    /// Seconds in which each job saves and exits, as far as that is known.
    pub stops: FxHashMap<JobId, f64>,
    /// The same of the job that is quickest: whoever takes a free node has its own time, or more.
    pub quickest: Option<f64>,
    /// Seconds from a worker's exit until the node is idle, by type, where it was measured.
    pub cleanups: BTreeMap<NodeType, f64>,
}

impl TimesToLeave {
    /// Seconds before the end of a window at which this job must leave such a node; without a job, at which
    /// the quickest must.
    pub fn secs(&self, job: Option<JobId>, node_type: &NodeType) -> f64 {
        self.with_cleanup(job, self.cleanups.get(node_type).copied().unwrap_or(0.0))
    }

    fn with_cleanup(&self, job: Option<JobId>, cleanup_secs: f64) -> f64 {
        let cleanup = cleanup_secs.max(CLEANUP_SECS);
        let stop = match job {
            Some(job) => self.stops.get(&job).copied(),
            None => self.quickest,
        };
        let takes = match stop {
            Some(stop) => stop + cleanup,
            // The usual clean-up is in what is configured.
            None => self.least_secs + cleanup - CLEANUP_SECS,
        };
        self.notice_secs + takes.max(self.least_secs)
    }

    /// Whether this job must leave some node earlier than another would.
    pub fn is_slow(&self, job: JobId) -> bool {
        // The longer the clean-up, the less is hidden by what is configured.
        let longest = self.cleanups.values().copied().fold(0.0, f64::max);
        self.with_cleanup(Some(job), longest) > self.with_cleanup(None, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_its_own_time_and_what_is_configured_is_the_least() {
        let (plain, slow) = (NodeType::new("a"), NodeType::new("b"));
        let times = TimesToLeave {
            least_secs: 15.0,
            notice_secs: 5.0,
            stops: FxHashMap::from_iter([(JobId(1), 1.0), (JobId(2), 40.0)]),
            quickest: Some(1.0),
            cleanups: BTreeMap::from([(slow.clone(), 20.0)]),
        };
        let secs = |job: Option<u32>, node_type| times.secs(job.map(JobId), node_type);
        assert_eq!(secs(Some(1), &plain), 20.0, "the least, and a round");
        assert_eq!(secs(Some(2), &plain), 48.0);
        assert_eq!(secs(Some(1), &slow), 26.0, "an epilog of 20 s");
        assert_eq!(secs(Some(2), &slow), 65.0);
        assert_eq!((secs(Some(3), &plain), secs(Some(3), &slow)), (20.0, 37.0), "nothing is known of it");
        assert_eq!((secs(None, &plain), secs(None, &slow)), (20.0, 26.0));
        assert!(times.is_slow(JobId(2)) && !times.is_slow(JobId(1)) && times.is_slow(JobId(3)));
    }
}
