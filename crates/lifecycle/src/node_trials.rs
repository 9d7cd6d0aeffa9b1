//! Learns from the command's runs and failures which nodes suit the job, and keeps the job from others.
//!
//! A command may fail on a node where it has never run, although it runs elsewhere. Then the node is
//! suspected: infill tries the job without the node, and does not count a restart. A command may run out of
//! memory. Then its execution plan and size are suspected: infill tries others, and does not count a restart
//! either. A command that fails on every node is itself to blame.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{NodeName, UnixTime};

/// How long a job is kept from a node the first time, seconds; doubled each further time.
const SHUN_SECS: f64 = 60.0;

/// Longest time for which a job is kept from a node, seconds.
const SHUN_MAX_SECS: f64 = 6.0 * 3600.0;

/// Largest number of nodes that one job is kept from.
const MAX_SHUNNED_NODES: usize = 64;

/// Number of consecutive failures that are blamed on nodes, for a command that has run somewhere.
const MAX_BLAMED: u32 = 3;

/// How often a job may run out of memory before that counts as a normal failure. This allows for a few plans
/// on a few node types.
const MAX_OVERFLOWS: u32 = 24;

/// A node that a job is kept from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShunnedNode {
    until: UnixTime,
    /// How often the job was kept from it.
    times: u32,
}

/// The nodes on which the command has run or failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTrials {
    /// Hosts on which the command has run.
    proven: BTreeSet<NodeName>,
    /// The generation whose run was recorded last.
    proven_generation: u64,
    /// Failures that were blamed on nodes since the command last ran.
    blamed: u32,
    /// The node on which the present generation failed first.
    first_failed: Option<NodeName>,
    shunned: BTreeMap<NodeName, ShunnedNode>,
    /// How often infill has retried a command that ran out of memory.
    overflows: u32,
    /// Whether the present generation has run out of memory.
    overflowed: bool,
}

impl NodeTrials {
    /// A generation begins.
    pub(super) fn begin_generation(&mut self) {
        self.first_failed = None;
        self.overflowed = false;
    }

    /// The present generation has run out of memory.
    pub(super) fn record_overflow(&mut self) {
        self.overflowed = true;
    }

    /// Whether the present generation has run out of memory.
    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Whether a command that ran out of memory may be retried with another plan or size. Counts the retry.
    pub(super) fn may_retry_overflow(&mut self) -> bool {
        if self.overflows >= MAX_OVERFLOWS {
            return false;
        }
        self.overflows += 1;
        true
    }

    /// The command runs on the members of this generation.
    pub(super) fn record_run(&mut self, generation: u64, members: &[NodeName]) {
        if self.proven_generation != generation {
            self.proven_generation = generation;
            self.proven.extend(members.iter().map(NodeName::host));
            self.blamed = 0;
        }
    }

    /// The command has failed on a node.
    pub(super) fn record_failure_on(&mut self, node: &NodeName) {
        self.first_failed.get_or_insert_with(|| node.clone());
    }

    /// The node to blame for the failure of a generation; `None` if the command is to blame. `failed` are the
    /// members whose commands failed by themselves.
    pub(super) fn blame_node(&mut self, failed: &[&NodeName]) -> Option<NodeName> {
        let max_blamed = if self.proven.is_empty() { 1 } else { MAX_BLAMED };
        if self.blamed >= max_blamed {
            return None;
        }
        let mut suspects = self.first_failed.iter().chain(failed.iter().copied());
        let node = suspects.find(|n| !self.proven.contains(&n.host()))?.clone();
        self.blamed += 1;
        Some(node)
    }

    /// Withdraws the blame of nodes since the command last ran. Returns whether any node was blamed.
    pub(super) fn clear_blame(&mut self) -> bool {
        let any_blamed = self.blamed > 0;
        self.shunned.retain(|_, s| s.times > 1);
        any_blamed
    }

    /// Keeps the job from a node and all its places for a while.
    pub(super) fn shun_node(&mut self, node: &NodeName, now: UnixTime) {
        let node = node.host();
        self.shunned.retain(|_, s| now.secs_since(s.until) < SHUN_MAX_SECS);
        if self.shunned.len() >= MAX_SHUNNED_NODES && !self.shunned.contains_key(&node) {
            let earliest = self.shunned.iter().min_by_key(|(_, s)| s.until).map(|(n, _)| n.clone());
            if let Some(earliest) = earliest {
                self.shunned.remove(&earliest);
            }
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

    /// Moves all times by `secs`.
    pub(super) fn shift_times(&mut self, secs: f64) {
        for shunned in self.shunned.values_mut() {
            shunned.until = shunned.until.plus_secs(secs);
        }
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
        fn at(secs: i64) -> UnixTime {
            UnixTime(1000 + secs)
        }
        let mut trials = NodeTrials::default();
        trials.shun_node(&n(1), at(0));
        assert!(trials.is_shunned(&n(1), at(59)) && !trials.is_shunned(&n(1), at(60)));
        trials.shun_node(&n(1), at(100));
        assert!(trials.is_shunned(&n(1), at(219)) && !trials.is_shunned(&n(1), at(220)));
        (2..200).for_each(|i| trials.shun_node(&n(i), at(300)));
        assert_eq!(trials.shunned_nodes(at(300)).count(), MAX_SHUNNED_NODES);
    }
}
