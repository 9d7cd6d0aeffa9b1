//! Nodes that a job holds already and that warm up while the others train: the newcomers of a command that
//! stays alive over changes.

use std::collections::BTreeMap;

use super::queue::NodeIx;
use infill_lifecycle::JOIN_SECS;

/// The newcomers of one job.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewcomerSet {
    /// When each is warm.
    ready_at: BTreeMap<NodeIx, f64>,
}

impl NewcomerSet {
    /// How many there are.
    pub fn len(&self) -> u32 {
        self.ready_at.len() as u32
    }

    /// Whether this node is one.
    pub fn contains(&self, node: NodeIx) -> bool {
        self.ready_at.contains_key(&node)
    }

    /// Takes one in, that is warm at this moment.
    pub fn admit_node(&mut self, node: NodeIx, ready_at: f64) {
        self.ready_at.entry(node).or_insert(ready_at);
    }

    /// Keeps those that the job still holds.
    pub fn retain(&mut self, nodes: &[NodeIx]) {
        self.ready_at.retain(|node, _| nodes.contains(node));
    }

    /// Forgets all: they are members now, or nothing.
    pub fn clear(&mut self) {
        self.ready_at.clear();
    }

    /// When some of them are let in: all at once when the last is warm, unless one would wait for too long.
    pub(crate) fn join_at(&self) -> Option<f64> {
        let last = self.ready_at.values().copied().reduce(f64::max)?;
        let first = self.ready_at.values().copied().reduce(f64::min)?;
        Some(last.min(first + JOIN_SECS))
    }

    /// Lets in those that are warm at this moment.
    pub fn join_ready(&mut self, at: f64) {
        self.ready_at.retain(|_, ready_at| *ready_at > at);
    }
}
