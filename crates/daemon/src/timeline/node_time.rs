//! What malleable jobs used their node-time for, summed up by the hour.

use std::collections::BTreeMap;

use super::{HOUR_SECS, USE_HOLDS_SECS, hour_of};
use infill_model::{JobActivity, NodeTimeKey, NodeTimeRow, NodeTimeUsage, UnixTime};

/// Most rows of an hour. There is one for each user, account and node type.
pub(crate) const MAX_HOUR_ROWS: usize = 20_000;

/// Nodes of a type that a job holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeHolding {
    /// The job's account in Slurm.
    pub account: String,
    /// The login name of the job's owner.
    pub user: String,
    /// The type of these nodes.
    pub node_type: String,
    /// Number of nodes.
    pub nodes: u32,
    /// GPUs of all these nodes together.
    pub gpus: u32,
    /// What the job does.
    pub doing: JobActivity,
}

/// Sums up the node-time that malleable jobs hold from snapshot to snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTimeTracker {
    hour: BTreeMap<NodeTimeKey, NodeTimeUsage>,
    seen_at: Option<UnixTime>,
    /// Nodes that jobs held at the last snapshot.
    held: Vec<NodeHolding>,
    /// The latest hour that was begun. Earlier hours are finished, even if the clock is set back.
    newest: UnixTime,
    /// What was added since the last call of [`Self::take_added`], by account.
    added: BTreeMap<String, NodeTimeUsage>,
}

impl NodeTimeTracker {
    /// Continues the rows of an hour that another daemon has begun.
    pub fn resume_from(rows: Vec<NodeTimeRow>) -> NodeTimeTracker {
        let newest = rows.iter().map(|row| row.key.from).max().unwrap_or_default();
        let hour = rows.into_iter().map(|row| (row.key, row.spent)).collect();
        NodeTimeTracker { hour, newest, ..NodeTimeTracker::default() }
    }

    /// Records the nodes that jobs hold now. It counts until the next snapshot, for [`USE_HOLDS_SECS`] at
    /// most. Returns the rows of hours that are finished by that.
    pub fn record_holdings(&mut self, now: UnixTime, held: Vec<NodeHolding>) -> Vec<NodeTimeRow> {
        let Some(seen_at) = self.seen_at.filter(|at| *at <= now) else {
            // After the clock was set back, counting starts again.
            self.seen_at = Some(now);
            self.held = held;
            return Vec::new();
        };
        let until = (seen_at + USE_HOLDS_SECS).min(now);
        let mut from = seen_at;
        while from < until {
            let hour = hour_of(from);
            let to = (hour + HOUR_SECS).min(until);
            self.add_secs(hour, to.secs_since(from));
            from = to;
        }
        self.seen_at = Some(now);
        self.held = held;
        self.take_finished(hour_of(now))
    }

    /// Takes what was added since the last call, by account.
    pub(crate) fn take_added(&mut self) -> BTreeMap<String, NodeTimeUsage> {
        std::mem::take(&mut self.added)
    }

    /// The rows of unfinished hours.
    pub fn current_rows(&self) -> Vec<NodeTimeRow> {
        self.hour.iter().map(|(key, spent)| NodeTimeRow { key: key.clone(), spent: *spent }).collect()
    }

    fn add_secs(&mut self, from: UnixTime, secs: f64) {
        if from < self.newest {
            return;
        }
        self.newest = from;
        for NodeHolding { account, user, node_type, nodes, gpus, doing } in &self.held {
            let account = account.clone();
            let user = user.clone();
            let node_type = node_type.clone();
            let key = NodeTimeKey { from, account, user, node_type };
            if self.hour.len() >= MAX_HOUR_ROWS && !self.hour.contains_key(&key) {
                continue;
            }
            let held = f64::from(*nodes) * secs;
            let mut more = NodeTimeUsage::default();
            match doing {
                JobActivity::Steps => more.useful_secs = held,
                JobActivity::Probing => more.probing_secs = held,
                JobActivity::Changing => more.rescale_secs = held,
                JobActivity::Recovering => more.preempted_secs = held,
            }
            more.gpu_secs = f64::from(*gpus) * secs;
            if self.added.len() < MAX_HOUR_ROWS || self.added.contains_key(&key.account) {
                let added = self.added.entry(key.account.clone()).or_default();
                *added = added.sum_with(&more);
            }
            let spent = self.hour.entry(key).or_default();
            *spent = spent.sum_with(&more);
        }
    }

    /// Takes the rows of hours before this one.
    fn take_finished(&mut self, hour: UnixTime) -> Vec<NodeTimeRow> {
        let mut finished = Vec::new();
        for (key, spent) in std::mem::take(&mut self.hour) {
            if key.from < hour {
                finished.push(NodeTimeRow { key, spent });
            } else {
                self.hour.insert(key, spent);
            }
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(nodes: u32, doing: JobActivity) -> NodeHolding {
        NodeHolding {
            account: "ml".to_owned(),
            user: "alice".to_owned(),
            node_type: "a100".to_owned(),
            nodes,
            gpus: 4 * nodes,
            doing,
        }
    }

    /// The seconds of rows: useful, rescale, preempted, probing, GPU.
    fn secs_of(rows: &[NodeTimeRow]) -> Vec<(i64, [f64; 5])> {
        let mut secs = Vec::new();
        for NodeTimeRow { key, spent: s } in rows {
            let row = [s.useful_secs, s.rescale_secs, s.preempted_secs, s.probing_secs, s.gpu_secs];
            secs.push((key.from.0, row));
        }
        secs
    }

    #[test]
    fn node_time_is_summed_up_by_activity_and_by_the_hour() {
        let mut spending = NodeTimeTracker::default();
        let looks = [
            (3500, JobActivity::Changing),
            (3510, JobActivity::Steps),
            (3590, JobActivity::Steps),
            (3620, JobActivity::Probing),
            (3630, JobActivity::Recovering),
            (3640, JobActivity::Steps),
        ];
        let mut over = Vec::new();
        for (at, doing) in looks {
            over.extend(spending.record_holdings(UnixTime(at), vec![holding(2, doing)]));
        }
        assert_eq!(secs_of(&over), [(0, [180.0, 20.0, 0.0, 0.0, 800.0])]);
        assert_eq!(secs_of(&spending.current_rows()), [(3600, [40.0, 0.0, 20.0, 20.0, 320.0])]);
        let added = spending.take_added();
        assert_eq!((added.len(), added["ml"].held_secs()), (1, 280.0));
        assert!(spending.take_added().is_empty());
        let mut next = NodeTimeTracker::resume_from(spending.current_rows());
        next.record_holdings(UnixTime(3650), vec![holding(1, JobActivity::Steps)]);
        next.record_holdings(UnixTime(3660), Vec::new());
        assert_eq!(secs_of(&next.current_rows()), [(3600, [50.0, 0.0, 20.0, 20.0, 360.0])]);
    }

    #[test]
    fn time_without_snapshots_does_not_count() {
        let mut spending = NodeTimeTracker::default();
        spending.record_holdings(UnixTime(3600), vec![holding(1, JobActivity::Steps)]);
        assert!(spending.record_holdings(UnixTime(5000), vec![holding(1, JobActivity::Steps)]).is_empty());
        assert_eq!(secs_of(&spending.current_rows()), [(3600, [120.0, 0.0, 0.0, 0.0, 480.0])]);
        // The clock is set back.
        assert!(spending.record_holdings(UnixTime(4000), vec![holding(1, JobActivity::Steps)]).is_empty());
        spending.record_holdings(UnixTime(4010), Vec::new());
        assert_eq!(secs_of(&spending.current_rows())[0].1[0], 130.0);
        // The clock is set back into an hour whose rows were taken already. The stored rows stay.
        spending.record_holdings(UnixTime(7205), vec![holding(1, JobActivity::Steps)]);
        spending.record_holdings(UnixTime(7215), vec![holding(1, JobActivity::Steps)]);
        spending.record_holdings(UnixTime(7190), vec![holding(1, JobActivity::Steps)]);
        assert!(spending.record_holdings(UnixTime(7198), vec![holding(1, JobActivity::Steps)]).is_empty());
        assert_eq!(secs_of(&spending.current_rows()), [(7200, [10.0, 0.0, 0.0, 0.0, 40.0])]);
    }
}
