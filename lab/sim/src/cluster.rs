//! The simulated cluster: which job is on each node.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::{NodeIx, QueueChange};
use infill_model::{JobId, NodeName};

/// What a node is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOwner {
    /// A main job, or an unknown use while the log does not mention the node.
    Main,
    /// No job.
    Free,
    /// A malleable job.
    Held(JobId),
}

/// The owner of each node.
#[derive(Clone, Debug)]
pub struct ClusterState {
    names: Vec<NodeName>,
    usage: Vec<NodeOwner>,
    free: BTreeSet<NodeIx>,
    held_count: usize,
    /// Nodes whose use has changed since the last [`ClusterState::take_changed`].
    changed: BTreeSet<NodeIx>,
}

impl ClusterState {
    /// A cluster whose nodes are all free, or else all count as used by the main queue.
    pub fn new(names: &[NodeName], all_free: bool) -> Self {
        let usage = if all_free { NodeOwner::Free } else { NodeOwner::Main };
        let nodes: BTreeSet<NodeIx> = (0..names.len() as NodeIx).collect();
        ClusterState {
            names: names.to_vec(),
            usage: vec![usage; names.len()],
            free: if all_free { nodes.clone() } else { BTreeSet::new() },
            held_count: 0,
            changed: nodes,
        }
    }

    /// Names of all nodes, by number.
    pub fn node_names(&self) -> &[NodeName] {
        &self.names
    }

    /// What a node is used for.
    pub fn node_owner(&self, node: NodeIx) -> NodeOwner {
        self.usage.get(node as usize).copied().unwrap_or(NodeOwner::Main)
    }

    /// Nodes without a job.
    pub fn free_nodes(&self) -> &BTreeSet<NodeIx> {
        &self.free
    }

    /// Number of nodes that malleable jobs hold.
    pub(crate) fn held_count(&self) -> usize {
        self.held_count
    }

    /// Number of nodes that the main queue does not use.
    pub(crate) fn idle_count(&self) -> usize {
        self.free.len() + self.held_count
    }

    /// Nodes whose use has changed since the last [`ClusterState::take_changed`].
    pub fn changed_nodes(&self) -> &BTreeSet<NodeIx> {
        &self.changed
    }

    /// Nodes whose use has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<NodeIx> {
        std::mem::take(&mut self.changed)
    }

    /// Gives nodes to a malleable job. Returns those that are not free and stay as they are.
    pub fn hold_nodes(&mut self, job: JobId, nodes: &[NodeIx]) -> Vec<NodeIx> {
        let mut refused = Vec::new();
        for node in nodes {
            match self.node_owner(*node) {
                NodeOwner::Free => self.set_owner(*node, NodeOwner::Held(job)),
                _ => refused.push(*node),
            }
        }
        refused
    }

    /// Takes nodes from the malleable job that holds them.
    pub fn release_nodes(&mut self, nodes: &[NodeIx]) {
        for node in nodes {
            if matches!(self.node_owner(*node), NodeOwner::Held(_)) {
                self.set_owner(*node, NodeOwner::Free);
            }
        }
    }

    /// Applies a change of the main queue. Returns the nodes that malleable jobs lose, by job.
    pub fn apply_queue_change(&mut self, moment: &QueueChange) -> BTreeMap<JobId, Vec<NodeIx>> {
        let mut lost: BTreeMap<JobId, Vec<NodeIx>> = BTreeMap::new();
        for node in moment.taken.iter().flat_map(|t| &t.nodes) {
            if let NodeOwner::Held(job) = self.node_owner(*node) {
                lost.entry(job).or_default().push(*node);
            }
            self.set_owner(*node, NodeOwner::Main);
        }
        for node in &moment.freed {
            if self.node_owner(*node) == NodeOwner::Main {
                self.set_owner(*node, NodeOwner::Free);
            }
        }
        lost
    }

    fn set_owner(&mut self, node: NodeIx, usage: NodeOwner) {
        let Some(place) = self.usage.get_mut(node as usize) else { return };
        let before = std::mem::replace(place, usage);
        match before {
            NodeOwner::Free => _ = self.free.remove(&node),
            NodeOwner::Held(_) => self.held_count -= 1,
            NodeOwner::Main => {}
        }
        match usage {
            NodeOwner::Free => _ = self.free.insert(node),
            NodeOwner::Held(_) => self.held_count += 1,
            NodeOwner::Main => {}
        }
        self.changed.insert(node);
    }
}
