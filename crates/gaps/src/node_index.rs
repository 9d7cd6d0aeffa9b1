//! The index of each node in a snapshot's list. The gap finder works with indices, not names.

use rustc_hash::FxHashMap;

use infill_model::{NodeName, Snapshot};

/// The index of each node in [`Snapshot::nodes`]. It is built once for each snapshot.
#[derive(Clone, Debug)]
pub(super) struct NodeIndex<'a>(FxHashMap<&'a NodeName, usize>);

impl<'a> NodeIndex<'a> {
    pub(super) fn from_snapshot(snapshot: &'a Snapshot) -> Self {
        NodeIndex(snapshot.nodes.iter().enumerate().map(|(index, node)| (&node.name, index)).collect())
    }

    /// The node's index; `None` if the snapshot does not show it.
    pub(super) fn index_of(&self, name: &NodeName) -> Option<usize> {
        self.0.get(name).copied()
    }
}
