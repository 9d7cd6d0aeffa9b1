//! The circuit breaker: nodes on which things go wrong are left alone for a while.
//!
//! Pure: what happened and when come in, which nodes are blocked comes out.

use std::collections::BTreeMap;

use crate::config::DaemonConfig;
use crate::model::{NodeName, UnixTime};

/// A strike is forgotten after so many seconds without another.
const FORGIVE_SECS: f64 = 3600.0;

/// What one node has on record.
#[derive(Clone, Debug)]
struct Strikes {
    count: u32,
    last: UnixTime,
    blocked_until: Option<UnixTime>,
    times_blocked: u32,
    why: String,
}

/// Strikes by node.
#[derive(Clone, Debug)]
pub struct Breaker {
    failures: u32,
    first_secs: f64,
    longest_secs: f64,
    nodes: BTreeMap<NodeName, Strikes>,
}

impl Breaker {
    /// A breaker without a record.
    pub fn new(config: &DaemonConfig) -> Self {
        Breaker {
            failures: config.breaker_failures.max(1),
            first_secs: config.backoff_secs,
            longest_secs: config.backoff_max_secs,
            nodes: BTreeMap::new(),
        }
    }

    /// Notes that something went wrong on the node; says whether that opens the breaker.
    pub fn strike(&mut self, node: &NodeName, why: &str, now: UnixTime) -> bool {
        let fresh =
            Strikes { count: 0, last: now, blocked_until: None, times_blocked: 0, why: String::new() };
        let s = self.nodes.entry(node.clone()).or_insert(fresh);
        if now.secs_since(s.last) > FORGIVE_SECS {
            s.count = 0;
            s.times_blocked = 0;
        }
        s.count += 1;
        s.last = now;
        s.why = why.to_owned();
        if s.count < self.failures {
            return false;
        }
        s.count = 0;
        let secs = self.first_secs * f64::powi(2.0, s.times_blocked.min(20) as i32);
        s.times_blocked += 1;
        s.blocked_until = Some(now.plus_secs(secs.min(self.longest_secs)));
        true
    }

    /// Opens the breaker at once: the node went DRAIN after we left it.
    pub fn trip(&mut self, node: &NodeName, why: &str, now: UnixTime) {
        while !self.strike(node, why, now) {}
    }

    /// Why the node is left alone now, if it is.
    pub fn blocked(&self, node: &NodeName, now: UnixTime) -> Option<String> {
        let s = self.nodes.get(node)?;
        let until = s.blocked_until.filter(|t| *t > now)?;
        Some(format!("left alone until {until} (circuit breaker): {}", s.why))
    }

    /// Number of nodes that are left alone now.
    pub fn open(&self, now: UnixTime) -> usize {
        self.nodes.keys().filter(|n| self.blocked(n, now).is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_enough_strikes_for_twice_as_long_each_time_and_closes_by_itself() {
        let mut b = Breaker::new(&DaemonConfig::default());
        let n = NodeName::from("n1");
        let t = UnixTime(1000);
        assert!(!b.strike(&n, "x", t) && !b.strike(&n, "x", t) && b.blocked(&n, t).is_none());
        assert!(b.strike(&n, "died", t));
        assert!(b.blocked(&n, t + 29).is_some_and(|w| w.contains("died")));
        assert_eq!(b.blocked(&n, t + 30), None);
        b.trip(&n, "drained", t + 31);
        assert!(b.blocked(&n, t + 31 + 59).is_some());
        assert_eq!(b.open(t + 31 + 60), 0);
    }

    #[test]
    fn forgets_after_an_hour() {
        let mut b = Breaker::new(&DaemonConfig::default());
        let n = NodeName::from("n1");
        b.strike(&n, "x", UnixTime(0));
        b.strike(&n, "x", UnixTime(1));
        assert!(!b.strike(&n, "x", UnixTime(4000)));
    }
}
