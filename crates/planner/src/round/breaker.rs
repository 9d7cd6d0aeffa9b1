//! The circuit breaker keeps jobs off nodes on which things go wrong, for a while.
//!
//! A failure on a node may be the fault of the node, of the job, or of something that all jobs of a user do.
//! A job keeps away from such a node by itself; the breaker counts *whose* jobs fail there. Failures of two
//! jobs of one user close the node to that user. Failures of two users' jobs close it to everyone. So no user
//! can close nodes to others. If a job fails on other nodes as well, its strikes no longer count. A failure
//! on a place counts for its node.
//!
//! The breaker is pure: events with their times come in, blocked nodes come out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use infill_model::config::DaemonConfig;
use infill_model::{JobId, NodeName, NodeStrike, UnixTime, UserId};

/// A strike is forgotten after this number of seconds.
const FORGIVE_SECS: f64 = 3600.0;

/// The largest number of strikes that are remembered for a node. More add no information.
const MOST_STRIKES: usize = 32;

/// Number of one user's jobs with a strike on a node that close it to that user.
const JOBS_OF_A_USER: usize = 2;

/// Number of users with a strike on a node that close it to everyone.
const USERS_TO_BLOCK: usize = 2;

/// The strikes and blocks of one node.
#[derive(Clone, Debug, Default)]
struct NodeRecord {
    /// The last strike of each job, oldest first.
    strikes: Vec<NodeStrike>,
    blocked: Option<NodeBlock>,
    /// Blocks that hold for one user only.
    blocked_to: BTreeMap<UserId, NodeBlock>,
}

/// A block: until when jobs keep off a node, how often it was blocked, and why.
#[derive(Clone, Debug)]
struct NodeBlock {
    until: UnixTime,
    times: u32,
    why: String,
}

/// Strikes and blocks by node.
#[derive(Clone, Debug)]
pub struct Breaker {
    failures: usize,
    first_secs: f64,
    longest_secs: f64,
    nodes: BTreeMap<NodeName, NodeRecord>,
}

impl Breaker {
    /// A breaker without strikes.
    pub fn new(config: &DaemonConfig) -> Self {
        Breaker {
            failures: config.breaker_failures.max(1) as usize,
            first_secs: config.backoff_secs,
            longest_secs: config.backoff_max_secs,
            nodes: BTreeMap::new(),
        }
    }

    /// Records that something went wrong on the node. Returns whether that closes the node to everyone.
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
            let blocked = next_block(before, &why, self.first_secs, self.longest_secs, now);
            record.blocked_to.insert(user, blocked);
        }
        if users.len() < USERS_TO_BLOCK || record.strikes.len() < self.failures {
            return false;
        }
        self.block_node(node, &why, now);
        true
    }

    /// Closes a node to everyone at once, because it went DRAIN after infill left it.
    pub fn trip_node(&mut self, node: &NodeName, why: &str, now: UnixTime) {
        self.forget_old(now);
        self.block_node(node, why, now);
    }

    fn block_node(&mut self, node: &NodeName, why: &str, now: UnixTime) {
        let record = self.nodes.entry(node.host()).or_default();
        let before = record.blocked.as_ref().map_or(0, |b| b.times);
        record.blocked = Some(next_block(before, why, self.first_secs, self.longest_secs, now));
    }

    /// Forgets the strikes of a job that fails on other nodes, too.
    pub fn acquit_job(&mut self, job: JobId) {
        self.nodes.values_mut().for_each(|record| record.strikes.retain(|s| s.job != job));
    }

    fn forget_old(&mut self, now: UnixTime) {
        self.nodes.retain(|_, record| {
            record.strikes.retain(|s| is_recent(s.at, now));
            record.blocked = record.blocked.take().filter(|b| is_recent(b.until, now));
            record.blocked_to.retain(|_, b| is_recent(b.until, now));
            !record.strikes.is_empty() || record.blocked.is_some() || !record.blocked_to.is_empty()
        });
    }

    /// Why the node is closed to everyone now; `None` if it is open.
    pub fn block_reason(&self, node: &NodeName, now: UnixTime) -> Option<String> {
        self.nodes.get(&node.host())?.blocked.as_ref().filter(|b| b.until > now).map(NodeBlock::to_string)
    }

    /// Nodes that are closed now to jobs of this user only, sorted by name.
    pub(crate) fn blocked_to(&self, user: UserId, now: UnixTime) -> impl Iterator<Item = &NodeName> {
        self.nodes
            .iter()
            .filter(move |(_, record)| record.blocked_to.get(&user).is_some_and(|b| b.until > now))
            .map(|(node, _)| node)
    }

    /// Recent strikes by node name, oldest first.
    pub fn recent_strikes(&self, now: UnixTime) -> impl Iterator<Item = (&NodeName, Vec<&NodeStrike>)> {
        self.nodes.iter().filter_map(move |(node, record)| {
            let recent: Vec<&NodeStrike> = record.strikes.iter().filter(|s| is_recent(s.at, now)).collect();
            (!recent.is_empty()).then_some((node, recent))
        })
    }

    /// Number of nodes that are closed to everyone now.
    pub fn count_open(&self, now: UnixTime) -> usize {
        self.nodes.keys().filter(|n| self.block_reason(n, now).is_some()).count()
    }
}

impl fmt::Display for NodeBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left alone until {} (circuit breaker): {}", self.until, self.why)
    }
}

fn is_recent(at: UnixTime, now: UnixTime) -> bool {
    now.secs_since(at) <= FORGIVE_SECS
}

/// The next block of a node that was blocked `before` times: twice as long as the last one, up to a limit.
fn next_block(before: u32, why: &str, first_secs: f64, longest_secs: f64, now: UnixTime) -> NodeBlock {
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
    fn one_user_closes_a_node_only_to_their_own_jobs() {
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
    fn strikes_end_with_a_failure_elsewhere_or_after_an_hour() {
        let mut b = Breaker::new(&DaemonConfig::default());
        hit(&mut b, 1, 7, 1000);
        hit(&mut b, 2, 8, 1000);
        b.acquit_job(JobId(1));
        assert!(!hit(&mut b, 3, 8, 1001), "only one user is left");
        assert!(!hit(&mut b, 4, 9, 4700), "earlier strikes are forgotten");
        assert_eq!(b.recent_strikes(UnixTime(4700)).map(|(_, s)| s.len()).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_node_that_went_drain_is_closed_at_once() {
        let mut b = Breaker::new(&DaemonConfig::default());
        b.trip_node(&NodeName::from(N), "went DRAIN", UnixTime(1000));
        assert!(closed(&b, 1029) && !closed(&b, 1030));
    }
}
