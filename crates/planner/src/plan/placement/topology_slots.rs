//! Free slots by switch and by host: the seats of a job go where it spans the fewest leaf switches, and on
//! these, where parts of nodes are lent, the fewest hosts.
//!
//! A seat needed through `q` steps may take a slot that lasts through more of them only while enough such
//! slots stay for seats that need them: for each number of steps what is free, less what is still wanted, is
//! the slack. Windows being nested, no seat goes without a slot that had one, in whatever order jobs come.
//! Blocks come before all seats of fewer slots, and regard no slack, as where nobody asks what is near.

mod topology_index;

use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::placement_request::{NodeSlots, PlacementRequest};
use super::slot_pool::{
    BySize, SeatMatches, SlotPool, count_matched, host_of, match_seats, min_seats_each, sizes_by_harm,
};
use crate::plan::space::{decision::DecisionSpace, resource::BlockSize};
use infill_model::{NodeName, SwitchId};
use topology_index::{LeafSlots, TopologyIndex};

/// Most leaves or hosts of a kind that are looked at for some seats: with more of them, one that is as
/// good is among these.
const CANDIDATES: usize = 24;

/// All free slots on which jobs may start.
#[derive(Clone, Debug)]
pub(crate) struct TopologySlots<'t> {
    index: Rc<TopologyIndex<'t>>,
    leaves: Vec<LeafSlots>,
    pools: Vec<SlotPool>,
    /// Leaves on which slots are free, by type.
    by_size: Vec<BySize>,
    /// The pool of each slot, if it was free.
    pool_of: Vec<Option<usize>>,
    /// By type and number of steps.
    slack: Vec<Vec<i64>>,
}

/// How many free slots of a class of a leaf, or of a pool, a job must avoid: (leaf or pool, lasts) → count.
type AvoidedCounts = FxHashMap<(usize, usize), usize>;

/// A job that looks for seats.
struct SeatSearch<'s> {
    seeker: PlacementRequest<'s>,
    /// Number of slots of one host that each of its seats takes.
    size: usize,
    /// Its seats that have no slot yet, by the steps that they are needed through.
    needs: Vec<usize>,
    on_leaves: AvoidedCounts,
    in_pools: AvoidedCounts,
    /// Leaf switches that it was on and that were not asked yet.
    own: BTreeSet<SwitchId>,
    /// Pools of hosts that it is on.
    own_pools: BTreeSet<usize>,
    /// Leaves that gave nothing when they were asked.
    spent: BTreeSet<usize>,
    /// The switches that are above all of its leaves, the topmost first.
    above: Option<Vec<SwitchId>>,
}

impl SeatSearch<'_> {
    fn seats_wanted(&self) -> usize {
        self.needs.iter().sum()
    }

    /// It is on this leaf.
    fn choose_leaf(&mut self, path: &[SwitchId]) {
        if !path.is_empty() {
            let shared = self.nearness(path);
            self.above = Some(path[..shared].to_vec());
        }
    }

    /// How near a leaf is: the number of switches above it that are above all of the job's leaves, too.
    fn nearness(&self, path: &[SwitchId]) -> usize {
        let above = self.above.as_deref().unwrap_or(path);
        above.iter().zip(path).take_while(|(a, b)| a == b).count()
    }
}

impl<'t> TopologySlots<'t> {
    /// Those that are not taken; `None` where all hang on one leaf, or nothing is known of switches, and all
    /// nodes are whole.
    pub fn new(space: &DecisionSpace<'t>, taken: &[bool]) -> Option<TopologySlots<'t>> {
        let topology = space.problem.topology.filter(|topology| !topology.is_empty());
        let classes = space.steps.len() + 1;
        let types = space.types.len();
        let mut index =
            TopologyIndex { topology, levels: space.blocks.levels.clone(), ..TopologyIndex::default() };
        let mut leaves = Vec::new();
        let mut pools = Vec::new();
        let mut pool_of = vec![None; space.slots.len()];
        let mut slack = vec![vec![0; classes]; types];
        for (rank, number) in space.by_stability().iter().enumerate().rev() {
            let slot = &space.slots[*number];
            if taken[*number] || !slot.startable {
                continue;
            }
            let node: &'t NodeName = &slot.gap.node;
            let at = index.leaf_at(node, slot.node_type, classes, &mut leaves);
            let pool = index.pool_at(node, at, classes, &mut pools);
            let leaf = &mut leaves[at];
            leaf.by_lasts[slot.lasts] += 1;
            (leaf.free, leaf.rank) = (leaf.free + 1, rank);
            pools[pool].add_slot(*number, slot.lasts, rank);
            pool_of[*number] = Some(pool);
            slack[slot.node_type][..=slot.lasts].iter_mut().for_each(|slack| *slack += 1);
        }
        let is_of_use = (topology.is_some() && leaves.len() > 1) || pools.len() > leaves.len();
        let mut by_size = vec![BySize::new(); types];
        for (at, leaf) in leaves.iter().enumerate().filter(|(_, leaf)| !leaf.path.is_empty()) {
            by_size[leaf.node_type].insert((leaf.free, leaf.rank, at));
        }
        for (number, pool) in pools.iter().enumerate() {
            let leaf = &mut leaves[pool.leaf];
            leaf.pools.insert((pool.free, pool.rank, number));
            let makes = |level: &BlockSize| pool.blocks_in(pool.free, *level as usize);
            leaf.blocks.iter_mut().zip(&index.levels).for_each(|(blocks, level)| *blocks += makes(level));
        }
        let index = Rc::new(index);
        is_of_use.then_some(TopologySlots { index, leaves, pools, by_size, pool_of, slack })
    }

    /// Counts a seat of so many slots that will be looked for.
    pub(crate) fn expect_seat(&mut self, node_type: usize, size: u32, steps: usize) {
        self.slack[node_type][..=steps].iter_mut().for_each(|slack| *slack -= i64::from(size));
    }

    /// Nodes for the seats of a job, which are needed through so many steps each; fewer where it must avoid
    /// too many. `kept` are the slots that it has.
    pub fn take_seats(
        &mut self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        seats: &[usize],
        kept: &[usize],
    ) -> Vec<NodeSlots> {
        let mut search = self.start_search(space, seeker, seats, kept);
        let mut found: Vec<NodeSlots> = Vec::with_capacity(seats.len());
        while let Some(at) = self.best_leaf(&search) {
            let before = found.len();
            while let Some(pool) = self.best_pool(space, &search, at) {
                if !self.fill_from_pool(space, &mut search, pool, &mut found) {
                    break;
                }
            }
            // A leaf that has given what it could gives no more.
            let path = &self.leaves[at].path;
            if let Some(leaf) = path.last() {
                search.own.remove(leaf);
            }
            if found.len() > before {
                search.choose_leaf(path);
            } else {
                search.spent.insert(at);
            }
        }
        for need in (0..search.needs.len()).rev() {
            found.extend((0..search.needs[need]).map_while(|_| self.take_longest(space, &search, need)));
        }
        found
    }

    fn start_search<'s>(
        &self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'s>,
        seats: &[usize],
        kept: &[usize],
    ) -> SeatSearch<'s> {
        let (on_leaves, in_pools) = self.count_avoided(space, seeker);
        let node = |slot: &usize| &space.slots[*slot].gap.node;
        let leaves: BTreeSet<Option<SwitchId>> =
            kept.iter().map(|slot| self.index.leaf_of(node(slot))).collect();
        let own_pool = |slot: &usize| {
            let host = host_of(node(slot))?;
            let leaf = self.index.leaves.get(&(self.index.leaf_of(node(slot)), seeker.spec.node_type))?;
            self.index.pools.get(&(Some(host), *leaf)).copied()
        };
        let mut search = SeatSearch {
            seeker,
            size: seeker.job.block.max(1) as usize,
            needs: vec![0; space.steps.len() + 1],
            on_leaves,
            in_pools,
            own: leaves.into_iter().flatten().collect(),
            own_pools: kept.iter().filter_map(own_pool).collect(),
            spent: BTreeSet::new(),
            above: None,
        };
        seats.iter().for_each(|steps| search.needs[*steps] += 1);
        for leaf in search.own.clone() {
            search.choose_leaf(&self.index.switch_path(Some(leaf)));
        }
        search
    }

    /// Takes of a pool what it has for a job's seats; whether that is anything.
    fn fill_from_pool(
        &mut self,
        space: &DecisionSpace<'_>,
        search: &mut SeatSearch<'_>,
        pool: usize,
        found: &mut Vec<NodeSlots>,
    ) -> bool {
        let before = found.len();
        if search.size > 1 {
            for (need, node) in self.match_blocks(space, search, pool) {
                self.take_block(space, pool, &node, need);
                search.needs[need] -= 1;
                found.push(node);
            }
        } else {
            for (need, lasts, count) in self.matched_in_pool(search, pool) {
                let given = self.take_slots(space, search.seeker, pool, (need, lasts), count);
                search.needs[need] -= given.len();
                found.extend(given.into_iter().map(|slot| vec![slot]));
            }
        }
        search.own_pools.insert(pool);
        found.len() > before
    }

    /// Takes what lasts longest, for a seat that got none so far.
    fn take_longest(
        &mut self,
        space: &DecisionSpace<'_>,
        search: &SeatSearch<'_>,
        need: usize,
    ) -> Option<NodeSlots> {
        let seeker = search.seeker;
        let of_type = |pool: &SlotPool| self.leaves[pool.leaf].node_type == seeker.spec.node_type;
        let pools = self.pools.iter().enumerate().filter(|(_, pool)| of_type(pool));
        if search.size > 1 {
            let last = |(at, pool): (usize, &SlotPool)| {
                let (lasts, node) = pool.last_block(space, seeker, search.size)?;
                Some((lasts, std::cmp::Reverse(pool.rank), at, node))
            };
            let (.., at, node) =
                pools.filter_map(last).max_by_key(|(lasts, rank, at, _)| (*lasts, *rank, *at))?;
            self.take_block(space, at, &node, need);
            return Some(node);
        }
        let of_pool = |(at, pool): (usize, &SlotPool)| {
            let classes = 0..pool.by_lasts.len();
            let lasts = classes.rev().find(|lasts| {
                pool.by_lasts[*lasts].iter().any(|number: &usize| seeker.may_use_slot(&space.slots[*number]))
            })?;
            Some((lasts, std::cmp::Reverse(pool.rank), at))
        };
        let (lasts, _, at) = pools.filter_map(of_pool).max()?;
        self.take_slots(space, seeker, at, (need.min(lasts), lasts), 1).pop().map(|slot| vec![slot])
    }

    /// How many free slots of each class the job must avoid, by leaf and by pool.
    fn count_avoided(
        &self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
    ) -> (AvoidedCounts, AvoidedCounts) {
        let parts = seeker.job.lead_node.iter().flat_map(NodeName::single_places);
        let nodes = seeker.job.excluded.iter().cloned().chain(parts);
        let avoids = |number: &usize| !seeker.may_use_slot(&space.slots[*number]);
        let slots: BTreeSet<usize> = nodes.filter_map(|node| space.slot_at(&node)).filter(avoids).collect();
        let mut on_leaves = AvoidedCounts::default();
        let mut in_pools = AvoidedCounts::default();
        for number in slots {
            if let Some(pool) = self.pool_of[number] {
                let lasts = space.slots[number].lasts;
                *in_pools.entry((pool, lasts)).or_insert(0) += 1;
                *on_leaves.entry((self.pools[pool].leaf, lasts)).or_insert(0) += 1;
            }
        }
        (on_leaves, in_pools)
    }

    /// The leaf that is best for some of a job's seats: one that it is on already, else the tightest that
    /// takes all, else the smallest with which no more leaves are needed than with the largest; of equal ones
    /// the nearest, then the most stable. Last come slots that hang on no switch that is known.
    fn best_leaf(&self, search: &SeatSearch<'_>) -> Option<usize> {
        let wanted = search.seats_wanted();
        if wanted == 0 {
            return None;
        }
        let takes = |at: usize| self.leaf_takes(search, at);
        let node_type = search.seeker.spec.node_type;
        let own =
            search.own.iter().filter_map(|leaf| self.index.leaves.get(&(Some(*leaf), node_type)).copied());
        let own = own.map(|at| (takes(at), std::cmp::Reverse(at))).max().filter(|(takes, _)| *takes > 0);
        if let Some((_, std::cmp::Reverse(at))) = own {
            return Some(at);
        }
        let leaves = &self.by_size[node_type];
        let least = || min_seats_each(leaves, CANDIDATES, wanted, takes);
        self.tightest_leaf(search, wanted, &takes)
            .or_else(|| self.tightest_leaf(search, least()?, &takes))
            .or_else(|| self.index.leaves.get(&(None, node_type)).copied().filter(|at| takes(*at) > 0))
    }

    /// The smallest leaf that takes so many; of several of that size the nearest, then the most stable.
    fn tightest_leaf(
        &self,
        search: &SeatSearch<'_>,
        least: usize,
        takes: &impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let by_size = &self.by_size[search.seeker.spec.node_type];
        let mut found: Option<(usize, usize, usize)> = None;
        for (free, _, at) in by_size.range((least * search.size, 0, 0)..).take(CANDIDATES) {
            if found.is_some_and(|(size, ..)| *free > size) {
                break;
            }
            let near = search.nearness(&self.leaves[*at].path);
            if takes(*at) >= least && found.is_none_or(|(_, nearest, _)| near > nearest) {
                found = Some((*free, near, *at));
            }
        }
        found.map(|(.., at)| at)
    }

    /// How many of a job's seats a leaf takes; of blocks, how many at the most.
    fn leaf_takes(&self, search: &SeatSearch<'_>, at: usize) -> usize {
        if search.spent.contains(&at) {
            return 0;
        }
        let leaf = &self.leaves[at];
        if search.size > 1 {
            let level = self.index.levels.iter().position(|level| *level as usize == search.size);
            return level.map_or(0, |level| leaf.blocks[level]).min(search.seats_wanted());
        }
        let avoided = |lasts: usize| search.on_leaves.get(&(at, lasts)).copied().unwrap_or(0);
        count_matched(&match_seats(&self.slack[leaf.node_type], &search.needs, |lasts: usize| {
            leaf.by_lasts[lasts].saturating_sub(avoided(lasts))
        }))
    }

    /// The pool of a leaf that is best for some of a job's seats: a host that it is on already, else one
    /// that takes all that the leaf does, else the smallest with which no more hosts are needed than with
    /// the largest; of equal ones the one where the fewest larger blocks break up, then the tightest,
    /// then the most stable. `None` where none takes any.
    fn best_pool(&self, space: &DecisionSpace<'_>, search: &SeatSearch<'_>, at: usize) -> Option<usize> {
        let pools = &self.leaves[at].pools;
        let takes = |pool: usize| match search.size {
            1 => count_matched(&self.matched_in_pool(search, pool)),
            _ => self.match_blocks(space, search, pool).len(),
        };
        if pools.len() < 2 {
            return pools.first().map(|(.., pool)| *pool).filter(|pool| takes(*pool) > 0);
        }
        let own = search.own_pools.iter().copied().filter(|pool| self.pools[*pool].leaf == at);
        let own =
            own.map(|pool| (takes(pool), std::cmp::Reverse(pool))).max().filter(|(takes, _)| *takes > 0);
        if let Some((_, std::cmp::Reverse(pool))) = own {
            return Some(pool);
        }
        let tightest = |least: usize| {
            let taken = least.max(1) * search.size;
            let sizes = sizes_by_harm(pools, &self.index.levels, search.size, taken);
            let mut candidates = sizes
                .into_iter()
                .flat_map(|free: usize| pools.range((free, 0, 0)..(free + 1, 0, 0)).take(CANDIDATES))
                .map(|(.., pool)| *pool);
            candidates.find(|pool| takes(*pool) >= least.max(1))
        };
        let wanted = self.leaf_takes(search, at);
        tightest(wanted).or_else(|| tightest(min_seats_each(pools, CANDIDATES, wanted, takes)?))
    }

    fn matched_in_pool(&self, search: &SeatSearch<'_>, number: usize) -> SeatMatches {
        let pool = &self.pools[number];
        let avoided = |lasts: usize| search.in_pools.get(&(number, lasts)).copied().unwrap_or(0);
        match_seats(&self.slack[self.leaves[pool.leaf].node_type], &search.needs, |lasts: usize| {
            pool.by_lasts[lasts].len().saturating_sub(avoided(lasts))
        })
    }

    /// The blocks of a host that a job's seats get: for each its need, and its slots.
    fn match_blocks(
        &self,
        space: &DecisionSpace<'_>,
        search: &SeatSearch<'_>,
        pool: usize,
    ) -> Vec<(usize, NodeSlots)> {
        self.pools[pool].find_blocks(space, search.seeker, search.size, &search.needs)
    }

    /// Takes the most stable slots of a class.
    fn take_slots(
        &mut self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        pool: usize,
        (need, lasts): (usize, usize),
        count: usize,
    ) -> Vec<usize> {
        let given =
            self.pools[pool].take_stable(lasts, count, |number| seeker.may_use_slot(&space.slots[number]));
        self.record_taken(space, pool, &given, need);
        given
    }

    fn take_block(&mut self, space: &DecisionSpace<'_>, pool: usize, node: &NodeSlots, need: usize) {
        self.pools[pool].remove_slots(node);
        self.record_taken(space, pool, node, need);
    }

    /// Counts slots of a pool that are free no more, and that are needed through so many steps.
    fn record_taken(&mut self, space: &DecisionSpace<'_>, number: usize, given: &[usize], need: usize) {
        let pool = &mut self.pools[number];
        let at = pool.leaf;
        let before = pool.free;
        pool.free -= given.len();
        let leaf = &mut self.leaves[at];
        leaf.pools.remove(&(before, pool.rank, number));
        if pool.free > 0 {
            leaf.pools.insert((pool.free, pool.rank, number));
        }
        for (blocks, level) in leaf.blocks.iter_mut().zip(&self.index.levels) {
            let level = *level as usize;
            *blocks -= pool.blocks_in(before, level) - pool.blocks_in(pool.free, level);
        }
        let by_size = &mut self.by_size[leaf.node_type];
        by_size.remove(&(leaf.free, leaf.rank, at));
        leaf.free -= given.len();
        if leaf.free > 0 && !leaf.path.is_empty() {
            by_size.insert((leaf.free, leaf.rank, at));
        }
        for slot in given {
            self.pool_of[*slot] = None;
            let lasts = space.slots[*slot].lasts;
            leaf.by_lasts[lasts] -= 1;
            let slack = &mut self.slack[leaf.node_type];
            slack.iter_mut().take(lasts + 1).skip(need + 1).for_each(|slack| *slack -= 1);
        }
    }
}
