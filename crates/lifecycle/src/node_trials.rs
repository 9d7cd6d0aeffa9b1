//! Where the job's command has shown that it can run, and which nodes the job is kept from.
//!
//! A command that fails on a node where it has never run, while it runs elsewhere, says something of the
//! node: the job is tried without it, and that is no restart. A command that runs out of memory says
//! something of its execution plan and size: it is tried with others, and that is none either. A command that
//! fails wherever it is fails as itself.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{NodeName, UnixTime};

/// For how long a job is kept from a node the first time; twice as long each further time.
const SHUN_SECS: f64 = 60.0;

/// Longest time for which a job is kept from a node.
const SHUN_MAX_SECS: f64 = 6.0 * 3600.0;

/// Nodes that one job is kept from at most.
const MOST_SHUNNED: usize = 64;

/// Failures in a row that are blamed on nodes, for a command that has run somewhere.
const MOST_BLAMED: u32 = 3;

/// Times that a job may run out of memory before that is a failure like any other: it could be tried with
/// each of a few plans on each of a few types of nodes.
const MOST_OVERFLOWS: u32 = 24;

/// Until when a job is kept from a node, and how often it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShunnedNode {
    until: UnixTime,
    times: u32,
}

/// What the command's runs and failures say of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTrials {
    proven: BTreeSet<NodeName>,
    proven_in: u64,
    /// Failures that were blamed on nodes since the command last ran.
    blamed: u32,
    first_failed: Option<NodeName>,
    shunned: BTreeMap<NodeName, ShunnedNode>,
    /// Times that it has run out of memory.
    overflows: u32,
    /// Whether the present generation has.
    overflowed: bool,
}

impl NodeTrials {
    /// A generation begins.
    pub(super) fn begin_generation(&mut self) {
        (self.first_failed, self.overflowed) = (None, false);
    }

    /// The present generation has run out of memory.
    pub(super) fn record_overflow(&mut self) {
        self.overflowed = true;
    }

    /// Whether the present generation has run out of memory.
    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Whether what has run out of memory may be tried once more in another way.
    pub(super) fn may_retry_overflow(&mut self) -> bool {
        let may = self.overflows < MOST_OVERFLOWS;
        self.overflows += u32::from(may);
        may
    }

    /// The command runs on the members of this generation.
    pub(super) fn record_run(&mut self, generation: u64, members: &[NodeName]) {
        if self.proven_in != generation {
            self.proven_in = generation;
            self.proven.extend(members.iter().map(NodeName::host));
            self.blamed = 0;
        }
    }

    /// The command has failed on a node.
    pub(super) fn record_failure_on(&mut self, node: &NodeName) {
        self.first_failed.get_or_insert_with(|| node.clone());
    }

    /// The node that is to blame for the failure of a generation, of whose members these failed by
    /// themselves; `None` if it is the command's own.
    pub(super) fn blame_node(&mut self, failed: &[&NodeName]) -> Option<NodeName> {
        let most = if self.proven.is_empty() { 1 } else { MOST_BLAMED };
        if self.blamed >= most {
            return None;
        }
        let first = self.first_failed.as_ref().into_iter();
        let node = first.chain(failed.iter().copied()).find(|n| !self.proven.contains(&n.host()))?.clone();
        self.blamed += 1;
        Some(node)
    }

    /// Takes back what was blamed on nodes since the command last ran; says whether anything was.
    pub(super) fn clear_blame(&mut self) -> bool {
        let blamed = self.blamed > 0;
        self.shunned.retain(|_, s| s.times > 1);
        blamed
    }

    /// Keeps the job from a node for a while, and from all places on it.
    pub(super) fn shun_node(&mut self, node: &NodeName, now: UnixTime) {
        let node = node.host();
        self.shunned.retain(|_, s| now.secs_since(s.until) < SHUN_MAX_SECS);
        if self.shunned.len() >= MOST_SHUNNED && !self.shunned.contains_key(&node) {
            let first = self.shunned.iter().min_by_key(|(_, s)| s.until).map(|(n, _)| n.clone());
            first.map(|n| self.shunned.remove(&n));
        }
        let shunned = self.shunned.entry(node).or_insert(ShunnedNode { until: now, times: 0 });
        let secs = SHUN_SECS * f64::powi(2.0, shunned.times.min(20) as i32);
        *shunned = ShunnedNode {
            until: now.plus_secs(secs.min(SHUN_MAX_SECS)),
            times: shunned.times.saturating_add(1),
        };
    }

    /// Whether the job is kept from a node now.
    pub(crate) fn is_shunned(&self, node: &NodeName, now: UnixTime) -> bool {
        self.shunned.get(&node.host()).is_some_and(|s| s.until > now)
    }

    /// The nodes that the job is kept from now, by name.
    pub(crate) fn shunned_nodes(&self, now: UnixTime) -> impl Iterator<Item = &NodeName> {
        self.shunned.iter().filter(move |(_, s)| s.until > now).map(|(node, _)| node)
    }

    /// Moves all times by these seconds.
    pub(super) fn shift_times(&mut self, secs: f64) {
        self.shunned.values_mut().for_each(|s| s.until = s.until.plus_secs(secs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(i: u32) -> NodeName {
        NodeName::new(format!("n{i}"))
    }

    #[test]
    fn a_command_that_runs_elsewhere_blames_three_nodes_and_then_itself() {
        let mut trials = NodeTrials::default();
        trials.record_run(1, &[n(1)]);
        for i in [5, 6, 7] {
            trials.begin_generation();
            trials.record_failure_on(&n(i));
            trials.record_failure_on(&n(1));
            assert_eq!(trials.blame_node(&[&n(1), &n(i)]), Some(n(i)));
        }
        assert_eq!(trials.blame_node(&[&n(8)]), None);
        assert!(trials.clear_blame());
        trials.record_run(9, &[n(1), n(2)]);
        trials.begin_generation();
        assert_eq!(trials.blame_node(&[&n(2), &n(1)]), None, "it ran on both");
        assert!(!trials.clear_blame());
    }

    #[test]
    fn a_command_that_never_ran_blames_one() {
        let mut trials = NodeTrials::default();
        trials.record_failure_on(&n(3));
        assert_eq!(trials.blame_node(&[&n(3)]), Some(n(3)));
        trials.begin_generation();
        assert_eq!(trials.blame_node(&[&n(1)]), None);
    }

    #[test]
    fn is_kept_from_a_node_for_twice_as_long_each_time() {
        let mut trials = NodeTrials::default();
        let at = |secs: i64| UnixTime(1000 + secs);
        trials.shun_node(&n(1), at(0));
        assert!(trials.is_shunned(&n(1), at(59)) && !trials.is_shunned(&n(1), at(60)));
        trials.shun_node(&n(1), at(100));
        assert!(trials.is_shunned(&n(1), at(219)) && !trials.is_shunned(&n(1), at(220)));
        (2..200).for_each(|i| trials.shun_node(&n(i), at(300)));
        assert_eq!(trials.shunned_nodes(at(300)).count(), MOST_SHUNNED);
    }
}
