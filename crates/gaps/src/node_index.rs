//! Where each node stands in a snapshot's list: the gap finder works with places, not names.

use rustc_hash::FxHashMap;

use infill_model::{NodeName, Snapshot};

/// The place of each node in [`Snapshot::nodes`]. Built once for each look at a snapshot.
#[derive(Clone, Debug)]
pub(super) struct NodeIndex<'a>(FxHashMap<&'a NodeName, usize>);

impl<'a> NodeIndex<'a> {
    pub(super) fn from_snapshot(snapshot: &'a Snapshot) -> Self {
        NodeIndex(snapshot.nodes.iter().enumerate().map(|(at, node)| (&node.name, at)).collect())
    }

    /// The node's place; `None` if the snapshot does not show it.
    pub(super) fn index_of(&self, name: &NodeName) -> Option<usize> {
        self.0.get(name).copied()
    }
}
