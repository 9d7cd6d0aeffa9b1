//! The past that the drawing shows: for each node the moments at which it changed, within bounds.

use std::collections::{BTreeMap, VecDeque};

use infill_api::{DaemonStatus, NodeKind, NodeView};
use infill_model::{JobId, NodeName, UnixTime};

/// The most changes that are kept for a node. With a change every ten seconds they cover well over an hour,
/// more than a screen shows.
const MAX_CHANGES: usize = 512;
/// The most jobs whose letters are kept. The drawing shows a job's past for some time after its end.
const MAX_LETTERS: usize = 512;
/// The letters of jobs, in the order in which they are assigned.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The use of a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCell {
    /// Unknown: before the first answer, or while the daemon did not answer.
    Unknown,
    /// A main job runs on it.
    Main,
    /// It is a gap that no malleable job holds.
    Gap,
    /// infill refuses it.
    Refused,
    /// A malleable job holds it.
    Job(JobId),
    /// A malleable job that the daemon does not name holds it.
    Held,
}

impl NodeCell {
    /// The present use of a node.
    pub fn from_view(node: &NodeView) -> NodeCell {
        match (node.kind, node.job) {
            (NodeKind::Held, Some(job)) => NodeCell::Job(job),
            (NodeKind::Held, None) => NodeCell::Held,
            (NodeKind::Gap, _) => NodeCell::Gap,
            (NodeKind::Busy, _) => NodeCell::Main,
            (NodeKind::Refused, _) => NodeCell::Refused,
        }
    }
}

/// The past of all nodes since the watch began, and the letters of the jobs.
#[derive(Debug, Default)]
pub struct WatchHistory {
    changes: BTreeMap<NodeName, VecDeque<(UnixTime, NodeCell)>>,
    letters: BTreeMap<JobId, char>,
    /// The number of letters assigned so far.
    assigned_count: usize,
}

impl WatchHistory {
    /// Adds an answer of the daemon. Forgets nodes that are gone.
    pub fn record_status(&mut self, status: &DaemonStatus, now: UnixTime) {
        self.changes.retain(|name, _| status.nodes.iter().any(|n| n.node == *name));
        for node in &status.nodes {
            push_change(self.changes.entry(node.node.clone()).or_default(), now, NodeCell::from_view(node));
        }
        for job in &status.jobs {
            self.assign_letter(job.job);
        }
    }

    /// Records that the use of all nodes is unknown from `now` on.
    pub fn record_loss(&mut self, now: UnixTime) {
        for changes in self.changes.values_mut() {
            push_change(changes, now, NodeCell::Unknown);
        }
    }

    /// The use of a node at a moment.
    pub fn cell_at(&self, node: &NodeName, at: UnixTime) -> NodeCell {
        let Some(changes) = self.changes.get(node) else { return NodeCell::Unknown };
        let after = changes.partition_point(|(t, _)| *t <= at);
        after.checked_sub(1).map_or(NodeCell::Unknown, |i| changes[i].1)
    }

    /// The job's letter; `?` if it has none.
    pub fn job_letter(&self, job: JobId) -> char {
        self.letters.get(&job).copied().unwrap_or('?')
    }

    fn assign_letter(&mut self, job: JobId) {
        if self.letters.contains_key(&job) {
            return;
        }
        if self.letters.len() >= MAX_LETTERS {
            self.letters.pop_first();
        }
        self.letters.insert(job, char::from(LETTERS[self.assigned_count % LETTERS.len()]));
        self.assigned_count += 1;
    }
}

fn push_change(changes: &mut VecDeque<(UnixTime, NodeCell)>, now: UnixTime, cell: NodeCell) {
    if changes.back().is_some_and(|(_, last)| *last == cell) {
        return;
    }
    if changes.len() >= MAX_CHANGES {
        changes.pop_front();
    }
    changes.push_back((now, cell));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, NOW};

    #[test]
    fn a_node_keeps_its_use_until_the_next_change() {
        let mut history = WatchHistory::default();
        let n1 = NodeName::from("n1");
        let mut status = samples::sample_status();
        history.record_status(&status, NOW);
        status.nodes[0] = samples::sample_node("n1", NodeKind::Gap);
        history.record_status(&status, NOW + 10);
        history.record_loss(NOW + 20);
        let seen = [-1, 0, 9, 10, 19, 20].map(|t| history.cell_at(&n1, NOW + t));
        let held = NodeCell::Job(JobId(101));
        assert_eq!(seen, [NodeCell::Unknown, held, held, NodeCell::Gap, NodeCell::Gap, NodeCell::Unknown]);
        assert_eq!(history.cell_at(&NodeName::from("n99"), NOW), NodeCell::Unknown);
    }

    #[test]
    fn the_history_stays_within_its_bounds() {
        let mut history = WatchHistory::default();
        let mut status = samples::sample_status();
        for i in 0..3000 {
            let kind = if i % 2 == 0 { NodeKind::Gap } else { NodeKind::Busy };
            status.nodes = vec![samples::sample_node("n1", kind)];
            status.jobs = vec![samples::sample_job(i, "a", infill_model::MalleableState::Queued, &[])];
            history.record_status(&status, NOW + i64::from(i));
        }
        assert_eq!(history.changes[&NodeName::from("n1")].len(), MAX_CHANGES);
        assert_eq!(history.letters.len(), MAX_LETTERS);
        assert_eq!(history.changes.len(), 1);
    }
}
