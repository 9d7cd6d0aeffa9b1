//! What became of the node-time that malleable jobs held: added up from look to look, an hour a row.

use std::collections::BTreeMap;

use super::{HOUR_SECS, USE_HOLDS_SECS, hour_of};
use infill_model::{JobActivity, NodeTimeKey, NodeTimeRow, NodeTimeUsage, UnixTime};

/// Most rows of an hour: users times accounts times types of nodes.
pub(crate) const MAX_HOUR_ROWS: usize = 20_000;

/// Nodes of a type that a job holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeHolding {
    /// Slurm's account.
    pub account: String,
    /// Owner.
    pub user: String,
    /// Type of the nodes.
    pub node_type: String,
    /// How many.
    pub nodes: u32,
    /// GPUs of all of them.
    pub gpus: u32,
    /// What it does there.
    pub doing: JobActivity,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTimeTracker {
    hour: BTreeMap<NodeTimeKey, NodeTimeUsage>,
    seen_at: Option<UnixTime>,
    /// What was held at the last look.
    held: Vec<NodeHolding>,
    /// The last hour that was begun: those before are over, also for a clock that is set back.
    newest: UnixTime,
    /// What was added since somebody asked last, by accounts.
    added: BTreeMap<String, NodeTimeUsage>,
}

impl NodeTimeTracker {
    /// Goes on with the rows of an hour that another daemon has begun.
    pub fn resume_from(rows: Vec<NodeTimeRow>) -> NodeTimeTracker {
        let newest = rows.iter().map(|row| row.key.from).max().unwrap_or_default();
        let hour = rows.into_iter().map(|row| (row.key, row.spent)).collect();
        NodeTimeTracker { hour, newest, ..NodeTimeTracker::default() }
    }

    /// Takes in what is held now: until the next look it stays so, for two minutes at most. Returns the rows
    /// of hours that are over by that.
    pub fn record_holdings(&mut self, now: UnixTime, held: Vec<NodeHolding>) -> Vec<NodeTimeRow> {
        let Some(seen_at) = self.seen_at.filter(|at| *at <= now) else {
            // A clock that was set back begins anew.
            (self.seen_at, self.held) = (Some(now), held);
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
        (self.seen_at, self.held) = (Some(now), held);
        self.take_finished(hour_of(now))
    }

    /// What was added since the last call, by accounts.
    pub(crate) fn take_added(&mut self) -> BTreeMap<String, NodeTimeUsage> {
        std::mem::take(&mut self.added)
    }

    /// The rows of the hours that are under way.
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

    /// Takes the rows of hours before this one out.
    fn take_finished(&mut self, hour: UnixTime) -> Vec<NodeTimeRow> {
        let under_way: BTreeMap<NodeTimeKey, NodeTimeUsage> = self
            .hour
            .iter()
            .filter(|(key, _)| key.from >= hour)
            .map(|(key, spent)| (key.clone(), *spent))
            .collect();
        let all = std::mem::replace(&mut self.hour, under_way);
        let over = all.into_iter().filter(|(key, _)| key.from < hour);
        over.map(|(key, spent)| NodeTimeRow { key, spent }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(nodes: u32, doing: JobActivity) -> NodeHolding {
        let text = |text: &str| text.to_owned();
        NodeHolding {
            account: text("ml"),
            user: text("alice"),
            node_type: text("a100"),
            nodes,
            gpus: 4 * nodes,
            doing,
        }
    }

    fn of(rows: &[NodeTimeRow]) -> Vec<(i64, [f64; 5])> {
        let spent =
            |s: &NodeTimeUsage| [s.useful_secs, s.rescale_secs, s.preempted_secs, s.probing_secs, s.gpu_secs];
        rows.iter().map(|row| (row.key.from.0, spent(&row.spent))).collect()
    }

    #[test]
    fn node_time_is_added_up_by_what_it_goes_into_and_by_the_hour() {
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
        assert_eq!(of(&over), [(0, [180.0, 20.0, 0.0, 0.0, 800.0])]);
        assert_eq!(of(&spending.current_rows()), [(3600, [40.0, 0.0, 20.0, 20.0, 320.0])]);
        let added = spending.take_added();
        assert_eq!((added.len(), added["ml"].held_secs()), (1, 280.0));
        assert!(spending.take_added().is_empty());
        let mut next = NodeTimeTracker::resume_from(spending.current_rows());
        next.record_holdings(UnixTime(3650), vec![holding(1, JobActivity::Steps)]);
        next.record_holdings(UnixTime(3660), Vec::new());
        assert_eq!(of(&next.current_rows()), [(3600, [50.0, 0.0, 20.0, 20.0, 360.0])]);
    }

    #[test]
    fn what_nobody_looked_at_is_spent_on_nothing() {
        let mut spending = NodeTimeTracker::default();
        spending.record_holdings(UnixTime(3600), vec![holding(1, JobActivity::Steps)]);
        assert!(spending.record_holdings(UnixTime(5000), vec![holding(1, JobActivity::Steps)]).is_empty());
        assert_eq!(of(&spending.current_rows()), [(3600, [120.0, 0.0, 0.0, 0.0, 480.0])]);
        // Clocks are set back.
        assert!(spending.record_holdings(UnixTime(4000), vec![holding(1, JobActivity::Steps)]).is_empty());
        spending.record_holdings(UnixTime(4010), Vec::new());
        assert_eq!(of(&spending.current_rows())[0].1[0], 130.0);
        // Back into an hour whose rows were handed over: what is stored of it stays.
        spending.record_holdings(UnixTime(7205), vec![holding(1, JobActivity::Steps)]);
        spending.record_holdings(UnixTime(7215), vec![holding(1, JobActivity::Steps)]);
        spending.record_holdings(UnixTime(7190), vec![holding(1, JobActivity::Steps)]);
        assert!(spending.record_holdings(UnixTime(7198), vec![holding(1, JobActivity::Steps)]).is_empty());
        assert_eq!(of(&spending.current_rows()), [(7200, [10.0, 0.0, 0.0, 0.0, 40.0])]);
    }
}
