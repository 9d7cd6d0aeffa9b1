//! Where slots are: which leaf switch and which host each belongs to, free or not.

use rustc_hash::FxHashMap;

use super::super::slot_pool::{BySize, SlotPool, host_of};
use crate::plan::space::resource::BlockSize;
use infill_model::{NodeName, SwitchId, Topology};

/// Free slots of one type on one leaf.
#[derive(Clone, Debug)]
pub(super) struct LeafSlots {
    pub(super) node_type: usize,
    /// The switches above it and itself, the topmost first; none for slots that hang on none that is known,
    /// which are together here though they are not near each other.
    pub(super) path: Vec<SwitchId>,
    /// How many slots are free, by the number of steps that they last through.
    pub(super) by_lasts: Vec<usize>,
    /// How many these are.
    pub(super) free: usize,
    /// The place of its most stable slot among all.
    pub(super) rank: usize,
    /// Its pools in which slots are free.
    pub(super) pools: BySize,
    /// How many blocks of each level these make, windows apart.
    pub(super) blocks: Vec<usize>,
}

/// Where slots are, whether they are free or not.
#[derive(Debug, Default)]
pub(super) struct TopologyIndex<'t> {
    pub(super) topology: Option<&'t Topology>,
    /// Sizes of blocks.
    pub(super) levels: Vec<BlockSize>,
    /// The place of each switch's leaf of a type; without a switch, of the slots that hang on none.
    pub(super) leaves: FxHashMap<(Option<SwitchId>, usize), usize>,
    /// The pool of each host on a leaf; without a host, of its whole nodes.
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

    /// The leaf of a node's switch and type.
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
}

impl<'t> TopologyIndex<'t> {
    /// The pool of a node on a leaf.
    pub(super) fn pool_at(
        &mut self,
        node: &'t NodeName,
        leaf: usize,
        classes: usize,
        pools: &mut Vec<SlotPool>,
    ) -> usize {
        let host = host_of(node);
        *self.pools.entry((host, leaf)).or_insert_with(|| {
            pools.push(SlotPool::new(leaf, host.is_some(), classes));
            pools.len() - 1
        })
    }
}
