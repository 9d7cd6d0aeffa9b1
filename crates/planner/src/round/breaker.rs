//! The circuit breaker: nodes on which things go wrong are left alone for a while.
//!
//! Whatever goes wrong on a node may be the fault of the node, of the job, or of something that all jobs of a
//! user do. A job keeps away from such a node by itself; here it is counted *who* met it. Two jobs of one
//! user close the node to that user, jobs of two users to everybody: so nobody can close nodes to others. A
//! job that fails elsewhere as well takes its word back. What is met on a place is met on its node.
//!
//! Pure: what happened and when come in, which nodes are blocked comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use infill_model::config::DaemonConfig;
use infill_model::{JobId, NodeName, NodeStrike, UnixTime, UserId};

/// A strike is forgotten after so many seconds.
const FORGIVE_SECS: f64 = 3600.0;

/// Strikes that are remembered of a node: more say nothing new.
const MOST_STRIKES: usize = 32;

/// Jobs of one user that must have met something on a node to close it to that user.
const JOBS_OF_A_USER: usize = 2;

/// Users who must have met something on a node to close it to everybody.
const USERS_TO_BLOCK: usize = 2;

/// What one node has on record.
#[derive(Clone, Debug, Default)]
struct NodeRecord {
    /// The last of each job, oldest first.
    strikes: Vec<NodeStrike>,
    blocked: Option<NodeBlock>,
    /// To one user each.
    blocked_to: BTreeMap<UserId, NodeBlock>,
}

/// Until when a node is left alone, and why.
#[derive(Clone, Debug)]
struct NodeBlock {
    until: UnixTime,
    times: u32,
    why: String,
}

/// Strikes by node.
#[derive(Clone, Debug)]
pub struct Breaker {
    failures: usize,
    first_secs: f64,
    longest_secs: f64,
    nodes: BTreeMap<NodeName, NodeRecord>,
}

impl Breaker {
    /// A breaker without a record.
    pub fn new(config: &DaemonConfig) -> Self {
        Breaker {
            failures: config.breaker_failures.max(1) as usize,
            first_secs: config.backoff_secs,
            longest_secs: config.backoff_max_secs,
            nodes: BTreeMap::new(),
        }
    }

    /// Notes that something went wrong on the node; says whether that closes it to everybody.
    pub fn record_strike(&mut self, node: &NodeName, strike: NodeStrike) -> bool {
        let now = strike.at;
        self.forget_old(now);
        let user = strike.user;
        let why = strike.why.clone();
        let record = self.nodes.entry(node.host()).or_default();
        record.strikes.retain(|s| s.job != strike.job);
        record.strikes.push(strike);
        let beyond = record.strikes.len().saturating_sub(MOST_STRIKES);
        record.strikes.drain(..beyond);
        let users: BTreeSet<UserId> = record.strikes.iter().map(|s| s.user).collect();
        if record.strikes.iter().filter(|s| s.user == user).count() >= JOBS_OF_A_USER {
            let before = record.blocked_to.get(&user).map_or(0, |b| b.times);
            let blocked = next_block(before, &why, (self.first_secs, self.longest_secs), now);
            record.blocked_to.insert(user, blocked);
        }
        if users.len() < USERS_TO_BLOCK || record.strikes.len() < self.failures {
            return false;
        }
        self.block_node(node, &why, now);
        true
    }

    /// Closes a node to everybody at once: it went DRAIN after we left it.
    pub fn trip_node(&mut self, node: &NodeName, why: &str, now: UnixTime) {
        self.forget_old(now);
        self.block_node(node, why, now);
    }

    fn block_node(&mut self, node: &NodeName, why: &str, now: UnixTime) {
        let record = self.nodes.entry(node.host()).or_default();
        let before = record.blocked.as_ref().map_or(0, |b| b.times);
        record.blocked = Some(next_block(before, why, (self.first_secs, self.longest_secs), now));
    }

    /// Takes back what a job has said of nodes: it fails elsewhere, too.
    pub fn acquit_job(&mut self, job: JobId) {
        self.nodes.values_mut().for_each(|record| record.strikes.retain(|s| s.job != job));
    }

    fn forget_old(&mut self, now: UnixTime) {
        let fresh = |at: UnixTime| now.secs_since(at) <= FORGIVE_SECS;
        self.nodes.retain(|_, record| {
            record.strikes.retain(|s| fresh(s.at));
            record.blocked = record.blocked.take().filter(|b| fresh(b.until));
            record.blocked_to.retain(|_, b| fresh(b.until));
            !record.strikes.is_empty() || record.blocked.is_some() || !record.blocked_to.is_empty()
        });
    }

    /// Why the node is left alone now by everybody, if it is.
    pub fn block_reason(&self, node: &NodeName, now: UnixTime) -> Option<String> {
        self.nodes.get(&node.host())?.blocked.as_ref().filter(|b| b.until > now).map(NodeBlock::to_string)
    }

    /// Nodes that are left alone now by jobs of this user, by name.
    pub(crate) fn blocked_to(&self, user: UserId, now: UnixTime) -> impl Iterator<Item = &NodeName> {
        let to_user = move |r: &NodeRecord| r.blocked_to.get(&user).is_some_and(|b| b.until > now);
        self.nodes.iter().filter(move |(_, r)| to_user(r)).map(|(node, _)| node)
    }

    /// What has gone wrong on nodes of late, by name, oldest first.
    pub fn recent_strikes(&self, now: UnixTime) -> impl Iterator<Item = (&NodeName, Vec<&NodeStrike>)> {
        let recent = move |s: &&NodeStrike| now.secs_since(s.at) <= FORGIVE_SECS;
        let found = self.nodes.iter().map(move |(node, r)| (node, r.strikes.iter().filter(recent).collect()));
        found.filter(|(_, strikes): &(_, Vec<&NodeStrike>)| !strikes.is_empty())
    }

    /// Number of nodes that are left alone by everybody now.
    pub fn count_open(&self, now: UnixTime) -> usize {
        self.nodes.keys().filter(|n| self.block_reason(n, now).is_some()).count()
    }
}

impl fmt::Display for NodeBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left alone until {} (circuit breaker): {}", self.until, self.why)
    }
}

/// Blocked for the first time, or for twice as long as the last time, of which there were `before`.
fn next_block(before: u32, why: &str, (first_secs, longest_secs): (f64, f64), now: UnixTime) -> NodeBlock {
    let secs = first_secs * f64::powi(2.0, before.min(20) as i32);
    NodeBlock {
        until: now.plus_secs(secs.min(longest_secs)),
        times: before.saturating_add(1),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: &str = "n1";

    fn hit(b: &mut Breaker, job: u32, user: u32, at: i64) -> bool {
        let strike =
            NodeStrike { job: JobId(job), user: UserId(user), why: format!("died {job}"), at: UnixTime(at) };
        b.record_strike(&NodeName::from(N), strike)
    }

    fn closed(b: &Breaker, at: i64) -> bool {
        b.block_reason(&NodeName::from(N), UnixTime(at)).is_some()
    }

    fn closed_to(b: &Breaker, user: u32, at: i64) -> bool {
        b.blocked_to(UserId(user), UnixTime(at)).next().is_some()
    }

    #[test]
    fn one_user_closes_a_node_only_to_himself() {
        let mut b = Breaker::new(&DaemonConfig::default());
        for _ in 0..9 {
            assert!(!hit(&mut b, 1, 7, 1000));
        }
        assert!(!closed_to(&b, 7, 1000), "one job may be at fault itself");
        for job in 2..9 {
            assert!(!hit(&mut b, job, 7, 1000));
        }
        assert!(closed_to(&b, 7, 1001) && !closed_to(&b, 8, 1001) && !closed(&b, 1001));
    }

    #[test]
    fn two_users_close_it_to_all_for_twice_as_long_each_time() {
        let mut b = Breaker::new(&DaemonConfig::default());
        assert!(!hit(&mut b, 1, 7, 1000) && !hit(&mut b, 2, 7, 1000));
        assert!(hit(&mut b, 3, 8, 1000));
        let why = b.block_reason(&NodeName::from(N), UnixTime(1029));
        assert!(why.is_some_and(|w| w.contains("died 3")));
        assert!(!closed(&b, 1030));
        assert!(hit(&mut b, 3, 8, 1031));
        assert!(closed(&b, 1090) && !closed(&b, 1091));
        assert_eq!((b.count_open(UnixTime(1090)), b.count_open(UnixTime(1091))), (1, 0));
    }

    #[test]
    fn a_job_that_fails_elsewhere_takes_its_word_back_and_an_hour_forgets() {
        let mut b = Breaker::new(&DaemonConfig::default());
        hit(&mut b, 1, 7, 1000);
        hit(&mut b, 2, 8, 1000);
        b.acquit_job(JobId(1));
        assert!(!hit(&mut b, 3, 8, 1001), "only one user is left");
        assert!(!hit(&mut b, 4, 9, 4700), "all that was before is forgotten");
        assert_eq!(b.recent_strikes(UnixTime(4700)).map(|(_, s)| s.len()).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_node_that_went_drain_is_left_alone_at_once() {
        let mut b = Breaker::new(&DaemonConfig::default());
        b.trip_node(&NodeName::from(N), "went DRAIN", UnixTime(1000));
        assert!(closed(&b, 1029) && !closed(&b, 1030));
    }
}
