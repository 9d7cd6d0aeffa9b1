//! The machine: who is on each node.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::{Moment, NodeIx};
use infill_model::{JobId, NodeName};

/// What a node is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A job of the main queue, or nobody's while the log says nothing of it.
    Main,
    /// Nothing.
    Free,
    /// A malleable job.
    Held(JobId),
}

/// All nodes.
#[derive(Clone, Debug)]
pub struct Cluster {
    names: Vec<NodeName>,
    usage: Vec<Usage>,
    free: BTreeSet<NodeIx>,
    held_count: usize,
    /// Nodes whose use has changed since the last [`Cluster::take_changed`].
    changed: BTreeSet<NodeIx>,
}

impl Cluster {
    /// A machine whose nodes all belong to the main queue, as far as is known; or are all free.
    pub fn new(names: &[NodeName], all_free: bool) -> Self {
        let usage = if all_free { Usage::Free } else { Usage::Main };
        let nodes: BTreeSet<NodeIx> = (0..names.len() as NodeIx).collect();
        Cluster {
            names: names.to_vec(),
            usage: vec![usage; names.len()],
            free: if all_free { nodes.clone() } else { BTreeSet::new() },
            held_count: 0,
            changed: nodes,
        }
    }

    /// Names of all nodes, by number.
    pub fn names(&self) -> &[NodeName] {
        &self.names
    }

    /// What a node is used for.
    pub fn usage(&self, node: NodeIx) -> Usage {
        self.usage.get(node as usize).copied().unwrap_or(Usage::Main)
    }

    /// Nodes on which nobody is.
    pub fn free(&self) -> &BTreeSet<NodeIx> {
        &self.free
    }

    /// How many nodes the malleable jobs hold.
    pub(crate) fn held_count(&self) -> usize {
        self.held_count
    }

    /// How many nodes the main queue does not use.
    pub(crate) fn idle_count(&self) -> usize {
        self.free.len() + self.held_count
    }

    /// Nodes whose use has changed since the last [`Cluster::take_changed`].
    pub fn changed(&self) -> &BTreeSet<NodeIx> {
        &self.changed
    }

    /// Nodes whose use has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<NodeIx> {
        std::mem::take(&mut self.changed)
    }

    /// Gives nodes to a malleable job; those that are not free stay what they are and are returned.
    pub fn hold(&mut self, job: JobId, nodes: &[NodeIx]) -> Vec<NodeIx> {
        let mut refused = Vec::new();
        for node in nodes {
            match self.usage(*node) {
                Usage::Free => self.set(*node, Usage::Held(job)),
                _ => refused.push(*node),
            }
        }
        refused
    }

    /// Takes nodes from the malleable job that holds them.
    pub fn release(&mut self, nodes: &[NodeIx]) {
        for node in nodes {
            if matches!(self.usage(*node), Usage::Held(_)) {
                self.set(*node, Usage::Free);
            }
        }
    }

    /// Lets the main queue give and take. Returns the nodes that malleable jobs lose by it, by job.
    pub fn apply(&mut self, moment: &Moment) -> BTreeMap<JobId, Vec<NodeIx>> {
        let mut lost: BTreeMap<JobId, Vec<NodeIx>> = BTreeMap::new();
        for node in moment.taken.iter().flat_map(|t| &t.nodes) {
            if let Usage::Held(job) = self.usage(*node) {
                lost.entry(job).or_default().push(*node);
            }
            self.set(*node, Usage::Main);
        }
        for node in &moment.freed {
            if self.usage(*node) == Usage::Main {
                self.set(*node, Usage::Free);
            }
        }
        lost
    }

    fn set(&mut self, node: NodeIx, usage: Usage) {
        let Some(place) = self.usage.get_mut(node as usize) else { return };
        let before = std::mem::replace(place, usage);
        match before {
            Usage::Free => _ = self.free.remove(&node),
            Usage::Held(_) => self.held_count -= 1,
            Usage::Main => {}
        }
        match usage {
            Usage::Free => _ = self.free.insert(node),
            Usage::Held(_) => self.held_count += 1,
            Usage::Main => {}
        }
        self.changed.insert(node);
    }
}
