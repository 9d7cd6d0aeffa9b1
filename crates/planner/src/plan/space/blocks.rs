//! Blocks: workers that take several places of one node, where places of nodes are shared out.
//!
//! Where the sizes of blocks are a chain of divisors (1, 2, 4, 8; on a node of six 1, 3, 6), counting stays
//! enough: blocks of d_i places each, c_i of them, fit on nodes with f_n free places if and only if for every
//! level k Σ_{i ≥ k} c_i · d_i / d_k ≤ Σ_n ⌊f_n / d_k⌋. For a block of size d_i lowers ⌊f / d_k⌋ by d_i / d_k
//! for every k ≤ i, and fits where ⌊f / d_i⌋ ≥ 1: so the largest first. Where sizes are no chain, and where
//! nodes end at different times, the rows are necessary, and laying may find less: it says so, and the next
//! round counts on what is there then.
//!
//! What a job holds stays where it is. So the places of smaller blocks that are held are not counted for
//! larger ones.

use super::problem::PlanningProblem;
use super::resource::BlockSize;
use super::slots::NodeSlot;
use infill_model::JobId;
use rustc_hash::FxHashMap;

/// Where blocks may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockLayout {
    /// Sizes of blocks, ascending; the first is 1.
    pub levels: Vec<BlockSize>,
    /// The node of each slot, where there are blocks of more than one place.
    pub host: Vec<usize>,
    /// Size of the blocks of the job that holds the slot; 0 where none of ours does. Where there are blocks.
    held: Vec<BlockSize>,
    /// Number of nodes.
    hosts: usize,
    /// Number of jobs whose workers are blocks of more than one place.
    jobs: usize,
}

/// From so many jobs of blocks on, prices and programs are those of blocks.
const MANY_JOBS: usize = 32;

impl BlockLayout {
    /// The blocks of a problem's jobs on these slots.
    pub fn from_slots(problem: &PlanningProblem<'_>, slots: &[NodeSlot<'_>]) -> BlockLayout {
        let planned = || problem.jobs.iter().filter(|j| !problem.is_busy(j));
        let mut levels: Vec<BlockSize> = planned().map(|j| j.block.max(1)).chain([1]).collect();
        levels.sort_unstable();
        levels.dedup();
        if levels.len() == 1 {
            return BlockLayout { levels, ..BlockLayout::default() };
        }
        let mut numbers = FxHashMap::default();
        let mut host = |slot: &NodeSlot<'_>| {
            let next = numbers.len();
            *numbers.entry(slot.gap.node.host()).or_insert(next)
        };
        let host = slots.iter().map(&mut host).collect();
        let size_of: FxHashMap<JobId, BlockSize> = planned().map(|j| (j.id, j.block.max(1))).collect();
        let held = slots.iter().map(|s| s.gap.holder.and_then(|h| size_of.get(&h).copied()).unwrap_or(0));
        let jobs = planned().filter(|j| j.block > 1).count();
        BlockLayout { levels, held: held.collect(), host, hosts: numbers.len(), jobs }
    }

    /// Whether any has more than one place.
    pub(crate) fn are_any(&self) -> bool {
        self.levels.len() > 1
    }

    /// Whether many jobs have such workers: their rows, one for each size of blocks, then decide how hard the
    /// problem is.
    pub(crate) fn are_many(&self) -> bool {
        self.jobs >= MANY_JOBS
    }

    /// How many blocks of `size` places the slots that may be used make together.
    pub fn count_blocks(&self, size: BlockSize, may_be_used: impl Fn(usize) -> bool) -> u32 {
        self.free_places(size, may_be_used).into_iter().map(|free| free / size.max(1)).sum()
    }

    /// For each node the places that blocks of `size` may be on.
    fn free_places(&self, size: BlockSize, may_be_used: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut free = vec![0u32; self.hosts];
        for (slot, host) in self.host.iter().enumerate() {
            if may_be_used(slot) && !self.is_pinned(slot, size) {
                free[*host] += 1;
            }
        }
        free
    }

    /// Whether a smaller block that is held keeps blocks of `size` from the slot.
    fn is_pinned(&self, slot: usize, size: BlockSize) -> bool {
        (1..size).contains(&self.held[slot])
    }
}
