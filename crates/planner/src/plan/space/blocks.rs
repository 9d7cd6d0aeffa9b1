//! Blocks: workers that take several places of one node, where nodes are shared by place.
//!
//! Where the block sizes are a chain of divisors (1, 2, 4, 8; on a node of six 1, 3, 6), counting is exact:
//! c_i blocks of d_i places each fit on nodes with f_n free places if and only if for every level k Σ_{i ≥ k}
//! c_i · d_i / d_k ≤ Σ_n ⌊f_n / d_k⌋. The reason: a block of size d_i lowers ⌊f / d_k⌋ by d_i / d_k for every
//! k ≤ i, and fits where ⌊f / d_i⌋ ≥ 1, so the largest blocks go first. Where sizes are not a chain, and
//! where nodes end at different times, the rows are necessary but placement may find less. It reports that,
//! and the next round counts on what is then available.
//!
//! What a job holds stays where it is. So held places of smaller blocks are not counted for larger ones.

use super::problem::PlanningProblem;
use super::resource::BlockSize;
use super::slots::NodeSlot;
use infill_model::JobId;
use rustc_hash::FxHashMap;

/// The blocks of a round: their sizes, and the hosts on which they may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockLayout {
    /// Sizes of blocks, ascending; the first is 1.
    pub levels: Vec<BlockSize>,
    /// The host of each slot; empty where all blocks have one place.
    pub host: Vec<usize>,
    /// For each slot the block size of the job that holds it, 0 where no planned job does; empty as `host`.
    held: Vec<BlockSize>,
    /// Number of hosts.
    hosts: usize,
    /// Number of jobs whose workers are blocks of more than one place.
    jobs: usize,
}

/// From this number of jobs with blocks on, multipliers and programs are those of blocks.
const MANY_JOBS: usize = 32;

impl BlockLayout {
    /// The blocks of a problem's jobs on these slots.
    pub fn from_slots(problem: &PlanningProblem<'_>, slots: &[NodeSlot<'_>]) -> BlockLayout {
        let planned: Vec<_> = problem.jobs.iter().filter(|j| !problem.is_busy(j)).collect();
        let mut levels: Vec<BlockSize> =
            planned.iter().map(|j| j.places_per_node.max(1)).chain([1]).collect();
        levels.sort_unstable();
        levels.dedup();
        if levels.len() == 1 {
            return BlockLayout { levels, ..BlockLayout::default() };
        }
        let mut numbers = FxHashMap::default();
        let mut host = Vec::with_capacity(slots.len());
        for slot in slots {
            let next = numbers.len();
            host.push(*numbers.entry(slot.gap.node.host()).or_insert(next));
        }
        let size_of: FxHashMap<JobId, BlockSize> =
            planned.iter().map(|j| (j.id, j.places_per_node.max(1))).collect();
        let held = slots.iter().map(|s| s.gap.holder.and_then(|h| size_of.get(&h).copied()).unwrap_or(0));
        let jobs = planned.iter().filter(|j| j.places_per_node > 1).count();
        BlockLayout { levels, held: held.collect(), host, hosts: numbers.len(), jobs }
    }

    /// Whether any block has more than one place.
    pub(crate) fn are_any(&self) -> bool {
        self.levels.len() > 1
    }

    /// Whether many jobs have blocks of several places. Their rows, one for each block size, then decide how
    /// hard the problem is.
    pub(crate) fn are_many(&self) -> bool {
        self.jobs >= MANY_JOBS
    }

    /// The number of blocks of `size` places that the usable slots make together.
    pub fn count_blocks(&self, size: BlockSize, may_be_used: impl Fn(usize) -> bool) -> u32 {
        self.free_places(size, may_be_used).into_iter().map(|free| free / size.max(1)).sum()
    }

    /// For each host the number of places that blocks of `size` may take.
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
