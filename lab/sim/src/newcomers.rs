//! Newcomers of a command that stays alive over changes: nodes that the job holds and that warm up while the
//! other nodes train.

use std::collections::BTreeMap;

use super::queue::NodeIx;
use infill_lifecycle::JOIN_SECS;

/// The newcomers of one job.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewcomerSet {
    /// When each newcomer is warm, s.
    ready_at: BTreeMap<NodeIx, f64>,
}

impl NewcomerSet {
    /// Number of newcomers.
    pub fn len(&self) -> u32 {
        self.ready_at.len() as u32
    }

    /// Whether this node is a newcomer.
    pub fn contains(&self, node: NodeIx) -> bool {
        self.ready_at.contains_key(&node)
    }

    /// Adds a newcomer that will be warm at this moment.
    pub fn admit_node(&mut self, node: NodeIx, ready_at: f64) {
        self.ready_at.entry(node).or_insert(ready_at);
    }

    /// Keeps the newcomers that the job still holds.
    pub fn retain(&mut self, nodes: &[NodeIx]) {
        self.ready_at.retain(|node, _| nodes.contains(node));
    }

    /// Removes all newcomers.
    pub fn clear(&mut self) {
        self.ready_at.clear();
    }

    /// When the next newcomers become members: all at once when the last is warm, but not later than
    /// [`JOIN_SECS`] after the first is warm.
    pub(crate) fn join_at(&self) -> Option<f64> {
        let last = self.ready_at.values().copied().reduce(f64::max)?;
        let first = self.ready_at.values().copied().reduce(f64::min)?;
        Some(last.min(first + JOIN_SECS))
    }

    /// Removes those that are warm at this moment: they become members.
    pub fn join_ready(&mut self, at: f64) {
        self.ready_at.retain(|_, ready_at| *ready_at > at);
    }
}
