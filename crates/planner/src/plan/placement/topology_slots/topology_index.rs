//! The leaf switch and the host of each slot, free or not.

use rustc_hash::FxHashMap;

use super::super::near_slot_pool::{BySize, NearSlotPool, host_of};
use crate::plan::space::resource::BlockSize;
use infill_model::{NodeName, SwitchId, Topology};

/// Free slots of one type at one leaf switch.
#[derive(Clone, Debug)]
pub(super) struct LeafSlots {
    pub(super) node_type: usize,
    /// The switches above it and itself, the topmost first. Empty for slots without a known switch, which are
    /// together here although they are not near each other.
    pub(super) path: Vec<SwitchId>,
    /// Number of free slots, by the number of steps through which they last.
    pub(super) by_lasts: Vec<usize>,
    /// Number of free slots in all.
    pub(super) free: usize,
    /// The rank of its most stable slot among all slots.
    pub(super) rank: usize,
    /// Its pools with free slots.
    pub(super) pools: BySize,
    /// Number of blocks of each level that these make, whatever their windows.
    pub(super) blocks: Vec<usize>,
}

/// The leaf and the pool of each node, whether its slots are free or not.
#[derive(Debug, Default)]
pub(super) struct TopologyIndex<'t> {
    pub(super) topology: Option<&'t Topology>,
    /// Sizes of blocks, ascending.
    pub(super) levels: Vec<BlockSize>,
    /// The leaf of each switch and type; without a switch, of the slots that have none.
    pub(super) leaves: FxHashMap<(Option<SwitchId>, usize), usize>,
    /// The pool of each host and leaf; without a host, the pool of the leaf's whole nodes.
    pub(super) pools: FxHashMap<(Option<&'t str>, usize), usize>,
}

impl TopologyIndex<'_> {
    /// The switches above a leaf and itself, the topmost first.
    pub(super) fn switch_path(&self, leaf: Option<SwitchId>) -> Vec<SwitchId> {
        let upwards = leaf
            .into_iter()
            .flat_map(|leaf| self.topology.into_iter().flat_map(move |t| t.path_to_root(leaf)));
        let mut path: Vec<SwitchId> = upwards.collect();
        path.reverse();
        path
    }

    pub(super) fn leaf_of(&self, node: &NodeName) -> Option<SwitchId> {
        self.topology?.leaf_of(node)
    }

    /// The leaf of a node's switch and type, which it adds to `leaves` if it is new.
    pub(super) fn leaf_at(
        &mut self,
        node: &NodeName,
        node_type: usize,
        classes: usize,
        leaves: &mut Vec<LeafSlots>,
    ) -> usize {
        let switch = self.leaf_of(node);
        if let Some(at) = self.leaves.get(&(switch, node_type)) {
            return *at;
        }
        let path = self.switch_path(switch);
        let blocks = vec![0; self.levels.len()];
        let by_lasts = vec![0; classes];
        let pools = BySize::new();
        leaves.push(LeafSlots { node_type, path, by_lasts, free: 0, rank: 0, pools, blocks });
        self.leaves.insert((switch, node_type), leaves.len() - 1);
        leaves.len() - 1
    }
    /// The pool of the host of a place; `None` for a whole node, and where the host has no pool.
    pub(super) fn host_pool(&self, node: &NodeName, node_type: usize) -> Option<usize> {
        let host = host_of(node)?;
        let leaf = self.leaves.get(&(self.leaf_of(node), node_type))?;
        self.pools.get(&(Some(host), *leaf)).copied()
    }
}

impl<'t> TopologyIndex<'t> {
    /// The pool of a node on a leaf, which it adds to `pools` if it is new.
    pub(super) fn pool_at(
        &mut self,
        node: &'t NodeName,
        leaf: usize,
        classes: usize,
        pools: &mut Vec<NearSlotPool>,
    ) -> usize {
        let host = host_of(node);
        *self.pools.entry((host, leaf)).or_insert_with(|| {
            pools.push(NearSlotPool::new(leaf, host.is_some(), classes));
            pools.len() - 1
        })
    }
}
