//! Free slots by switch and by host. The seats of a job go where it spans the fewest leaf switches, and on
//! these the fewest hosts, where places of nodes are lent.
//!
//! A seat needed through `q` steps may take a slot that lasts through more steps. It may do so only while
//! enough such slots stay for seats that need them. For each number of steps, the slack is what is free less
//! what is still wanted. Because windows are nested, every seat that could have a slot still gets one, in
//! whatever order jobs come. Blocks come before all seats of fewer slots and ignore the slack, as where
//! nearness does not matter.

mod topology_index;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::near_slot_pool::{
    BySize, NearSlotPool, SeatMatches, count_matched, match_seats, min_seats_each, sizes_by_harm,
};
use super::placement_request::{NodeSlots, PlacementRequest};
use crate::plan::space::decision::DecisionSpace;
use infill_model::{NodeName, SwitchId};
use topology_index::{LeafSlots, TopologyIndex};

/// The largest number of leaves or hosts of one kind that are considered for some seats. If there are more,
/// one that is as good is among these.
const CANDIDATES: usize = 24;

/// All free slots on which jobs may start.
#[derive(Clone, Debug)]
pub(crate) struct TopologySlots<'t> {
    index: Rc<TopologyIndex<'t>>,
    leaves: Vec<LeafSlots>,
    pools: Vec<NearSlotPool>,
    /// Leaves with free slots, by type.
    by_size: Vec<BySize>,
    /// The pool of each free slot.
    pool_of: Vec<Option<usize>>,
    /// The slack, by type and number of steps.
    slack: Vec<Vec<i64>>,
}

/// The number of free slots of a class that a job must avoid: (leaf or pool, lasts) → count.
type AvoidedCounts = FxHashMap<(usize, usize), usize>;

/// The search for the seats of one job.
struct SeatSearch<'s> {
    request: PlacementRequest<'s>,
    /// Number of slots of one host that each of its seats takes.
    size: usize,
    /// Its seats that have no slot yet, by the number of steps through which they are needed.
    needs: Vec<usize>,
    on_leaves: AvoidedCounts,
    in_pools: AvoidedCounts,
    /// Leaf switches that the job is on and that were not tried yet.
    own: BTreeSet<SwitchId>,
    /// Pools of hosts that it is on.
    own_pools: BTreeSet<usize>,
    /// Leaves that were tried and gave nothing.
    spent: BTreeSet<usize>,
    /// The switches that are above all of its leaves, the topmost first; `None` while it has no leaf.
    above: Option<Vec<SwitchId>>,
}

impl SeatSearch<'_> {
    fn seats_wanted(&self) -> usize {
        self.needs.iter().sum()
    }

    /// Records that the job is on the leaf at the end of this path.
    fn choose_leaf(&mut self, path: &[SwitchId]) {
        if !path.is_empty() {
            let shared = self.nearness(path);
            self.above = Some(path[..shared].to_vec());
        }
    }

    /// How near a leaf is: the number of switches above it that are also above all of the job's leaves.
    fn nearness(&self, path: &[SwitchId]) -> usize {
        let above = self.above.as_deref().unwrap_or(path);
        above.iter().zip(path).take_while(|(a, b)| a == b).count()
    }
}

impl<'t> TopologySlots<'t> {
    /// The startable slots that are not taken; `None` where nearness makes no difference. That is the case if
    /// all nodes are whole and they hang on one leaf, or no topology is known.
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
            leaf.free += 1;
            leaf.rank = rank;
            pools[pool].add_slot(*number, slot.lasts, rank);
            pool_of[*number] = Some(pool);
            slack[slot.node_type][..=slot.lasts].iter_mut().for_each(|slack| *slack += 1);
        }
        let makes_difference = (topology.is_some() && leaves.len() > 1) || pools.len() > leaves.len();
        let mut by_size = vec![BySize::new(); types];
        for (at, leaf) in leaves.iter().enumerate().filter(|(_, leaf)| !leaf.path.is_empty()) {
            by_size[leaf.node_type].insert((leaf.free, leaf.rank, at));
        }
        for (number, pool) in pools.iter().enumerate() {
            let leaf = &mut leaves[pool.leaf];
            leaf.pools.insert((pool.free, pool.rank, number));
            for (blocks, level) in leaf.blocks.iter_mut().zip(&index.levels) {
                *blocks += pool.blocks_in(pool.free, *level as usize);
            }
        }
        let index = Rc::new(index);
        makes_difference.then_some(TopologySlots { index, leaves, pools, by_size, pool_of, slack })
    }

    /// Records that a seat of `size` slots through `steps` steps will be searched for.
    pub(crate) fn expect_seat(&mut self, node_type: usize, size: u32, steps: usize) {
        self.slack[node_type][..=steps].iter_mut().for_each(|slack| *slack -= i64::from(size));
    }

    /// Takes nodes for the seats of a job. `seats` holds for each seat the number of steps through which it
    /// is needed, `kept` the slots that the job has. Returns fewer nodes where the job must avoid too many.
    pub fn take_seats(
        &mut self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        seats: &[usize],
        kept: &[usize],
    ) -> Vec<NodeSlots> {
        let mut search = self.start_search(space, request, seats, kept);
        let mut found: Vec<NodeSlots> = Vec::with_capacity(seats.len());
        while let Some(at) = self.best_leaf(&search) {
            let before = found.len();
            while let Some(pool) = self.best_pool(space, &search, at) {
                if !self.fill_from_pool(space, &mut search, pool, &mut found) {
                    break;
                }
            }
            // A leaf that has given all that it could is not tried again.
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
        request: PlacementRequest<'s>,
        seats: &[usize],
        kept: &[usize],
    ) -> SeatSearch<'s> {
        let (on_leaves, in_pools) = self.count_avoided(space, request);
        let mut own = BTreeSet::new();
        let mut own_pools = BTreeSet::new();
        for slot in kept {
            let node = &space.slots[*slot].gap.node;
            own.extend(self.index.leaf_of(node));
            own_pools.extend(self.index.host_pool(node, request.spec.node_type));
        }
        let mut search = SeatSearch {
            request,
            size: request.job.places_per_node.max(1) as usize,
            needs: vec![0; space.steps.len() + 1],
            on_leaves,
            in_pools,
            own,
            own_pools,
            spent: BTreeSet::new(),
            above: None,
        };
        seats.iter().for_each(|steps| search.needs[*steps] += 1);
        for leaf in search.own.clone() {
            search.choose_leaf(&self.index.switch_path(Some(leaf)));
        }
        search
    }

    /// Takes what a pool has for a job's seats. Returns whether that is anything.
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
                let given = self.take_slots(space, search.request, pool, need, lasts, count);
                search.needs[need] -= given.len();
                found.extend(given.into_iter().map(|slot| vec![slot]));
            }
        }
        search.own_pools.insert(pool);
        found.len() > before
    }

    /// Takes what lasts longest, for a seat that has got nothing so far.
    fn take_longest(
        &mut self,
        space: &DecisionSpace<'_>,
        search: &SeatSearch<'_>,
        need: usize,
    ) -> Option<NodeSlots> {
        let request = search.request;
        let node_type = request.spec.node_type;
        let pools =
            self.pools.iter().enumerate().filter(|(_, pool)| self.leaves[pool.leaf].node_type == node_type);
        if search.size > 1 {
            let (.., at, node) = pools
                .filter_map(|(at, pool)| {
                    let (lasts, node) = pool.last_block(space, request, search.size)?;
                    Some((lasts, Reverse(pool.rank), at, node))
                })
                .max_by_key(|(lasts, rank, at, _)| (*lasts, *rank, *at))?;
            self.take_block(space, at, &node, need);
            return Some(node);
        }
        let (lasts, _, at) = pools
            .filter_map(|(at, pool)| {
                let lasts = pool
                    .by_lasts
                    .iter()
                    .rposition(|class| class.iter().any(|slot| request.may_use_slot(&space.slots[*slot])))?;
                Some((lasts, Reverse(pool.rank), at))
            })
            .max()?;
        self.take_slots(space, request, at, need.min(lasts), lasts, 1).pop().map(|slot| vec![slot])
    }

    /// Counts the free slots of each class that the job must avoid, by leaf and by pool.
    fn count_avoided(
        &self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
    ) -> (AvoidedCounts, AvoidedCounts) {
        let lead_places = request.job.lead_node.iter().flat_map(NodeName::single_places);
        let nodes = request.job.excluded.iter().cloned().chain(lead_places);
        let slots: BTreeSet<usize> = nodes
            .filter_map(|node| space.slot_at(&node))
            .filter(|number| !request.may_use_slot(&space.slots[*number]))
            .collect();
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

    /// The leaf that is best for some of a job's seats. First choice is a leaf that the job is on already,
    /// then the tightest that takes all seats. Third is the smallest with which no more leaves are needed
    /// than with the largest. Among equal leaves the nearest wins, then the most stable. Slots without a
    /// known switch come last.
    fn best_leaf(&self, search: &SeatSearch<'_>) -> Option<usize> {
        let wanted = search.seats_wanted();
        if wanted == 0 {
            return None;
        }
        let node_type = search.request.spec.node_type;
        let own = search
            .own
            .iter()
            .filter_map(|leaf| self.index.leaves.get(&(Some(*leaf), node_type)).copied())
            .map(|at| (self.leaf_takes(search, at), Reverse(at)))
            .max()
            .filter(|(takes, _)| *takes > 0);
        if let Some((_, Reverse(at))) = own {
            return Some(at);
        }
        if let Some(at) = self.tightest_leaf(search, wanted) {
            return Some(at);
        }
        let leaves = &self.by_size[node_type];
        let smallest = min_seats_each(leaves, CANDIDATES, wanted, |at| self.leaf_takes(search, at));
        if let Some(at) = smallest.and_then(|smallest| self.tightest_leaf(search, smallest)) {
            return Some(at);
        }
        let without_switch = self.index.leaves.get(&(None, node_type)).copied();
        without_switch.filter(|at| self.leaf_takes(search, *at) > 0)
    }

    /// The smallest leaf that takes at least `least` seats. Among several of that size the nearest wins, then
    /// the most stable.
    fn tightest_leaf(&self, search: &SeatSearch<'_>, least: usize) -> Option<usize> {
        let by_size = &self.by_size[search.request.spec.node_type];
        let mut found: Option<(usize, usize, usize)> = None;
        for (free, _, at) in by_size.range((least * search.size, 0, 0)..).take(CANDIDATES) {
            if found.is_some_and(|(size, ..)| *free > size) {
                break;
            }
            let near = search.nearness(&self.leaves[*at].path);
            if self.leaf_takes(search, *at) >= least && found.is_none_or(|(_, nearest, _)| near > nearest) {
                found = Some((*free, near, *at));
            }
        }
        found.map(|(.., at)| at)
    }

    /// The number of a job's seats that a leaf takes; for blocks an upper limit of it.
    fn leaf_takes(&self, search: &SeatSearch<'_>, at: usize) -> usize {
        if search.spent.contains(&at) {
            return 0;
        }
        let leaf = &self.leaves[at];
        if search.size > 1 {
            let level = self.index.levels.iter().position(|level| *level as usize == search.size);
            return level.map_or(0, |level| leaf.blocks[level]).min(search.seats_wanted());
        }
        count_matched(&match_seats(&self.slack[leaf.node_type], &search.needs, |lasts: usize| {
            let avoided = search.on_leaves.get(&(at, lasts)).copied().unwrap_or(0);
            leaf.by_lasts[lasts].saturating_sub(avoided)
        }))
    }

    /// The pool of a leaf that is best for some of a job's seats. First choice is a host that the job is on
    /// already, then one that takes all that the leaf does. Third is the smallest with which no more hosts
    /// are needed than with the largest. Among equal hosts the one wins where the fewest larger blocks break
    /// up, then the tightest, then the most stable. `None` where no pool takes any seat.
    fn best_pool(&self, space: &DecisionSpace<'_>, search: &SeatSearch<'_>, at: usize) -> Option<usize> {
        let pools = &self.leaves[at].pools;
        if pools.len() < 2 {
            let only = pools.first().map(|(.., pool)| *pool);
            return only.filter(|pool| self.pool_takes(space, search, *pool) > 0);
        }
        let own = search
            .own_pools
            .iter()
            .copied()
            .filter(|pool| self.pools[*pool].leaf == at)
            .map(|pool| (self.pool_takes(space, search, pool), Reverse(pool)))
            .max()
            .filter(|(takes, _)| *takes > 0);
        if let Some((_, Reverse(pool))) = own {
            return Some(pool);
        }
        let wanted = self.leaf_takes(search, at);
        if let Some(pool) = self.tightest_pool(space, search, pools, wanted) {
            return Some(pool);
        }
        let smallest =
            min_seats_each(pools, CANDIDATES, wanted, |pool| self.pool_takes(space, search, pool))?;
        self.tightest_pool(space, search, pools, smallest)
    }

    /// Among the pools that take at least `least` seats, the one where these break up the fewest larger
    /// blocks, then the tightest.
    fn tightest_pool(
        &self,
        space: &DecisionSpace<'_>,
        search: &SeatSearch<'_>,
        pools: &BySize,
        least: usize,
    ) -> Option<usize> {
        let least = least.max(1);
        let sizes = sizes_by_harm(pools, &self.index.levels, search.size, least * search.size);
        sizes
            .into_iter()
            .flat_map(|free| pools.range((free, 0, 0)..(free + 1, 0, 0)).take(CANDIDATES))
            .map(|(.., pool)| *pool)
            .find(|pool| self.pool_takes(space, search, *pool) >= least)
    }

    /// The number of a job's seats that a pool takes.
    fn pool_takes(&self, space: &DecisionSpace<'_>, search: &SeatSearch<'_>, pool: usize) -> usize {
        if search.size == 1 {
            count_matched(&self.matched_in_pool(search, pool))
        } else {
            self.match_blocks(space, search, pool).len()
        }
    }

    fn matched_in_pool(&self, search: &SeatSearch<'_>, number: usize) -> SeatMatches {
        let pool = &self.pools[number];
        match_seats(&self.slack[self.leaves[pool.leaf].node_type], &search.needs, |lasts: usize| {
            let avoided = search.in_pools.get(&(number, lasts)).copied().unwrap_or(0);
            pool.by_lasts[lasts].len().saturating_sub(avoided)
        })
    }

    /// The blocks of a host that a job's seats get: pairs of need and slots.
    fn match_blocks(
        &self,
        space: &DecisionSpace<'_>,
        search: &SeatSearch<'_>,
        pool: usize,
    ) -> Vec<(usize, NodeSlots)> {
        self.pools[pool].find_blocks(space, search.request, search.size, &search.needs)
    }

    /// Takes the `count` most stable slots that last through `lasts` steps, for seats that need `need` steps.
    fn take_slots(
        &mut self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        pool: usize,
        need: usize,
        lasts: usize,
        count: usize,
    ) -> Vec<usize> {
        let slots = &mut self.pools[pool];
        let given = slots.take_stable(lasts, count, |number| request.may_use_slot(&space.slots[number]));
        self.record_taken(space, pool, &given, need);
        given
    }

    fn take_block(&mut self, space: &DecisionSpace<'_>, pool: usize, node: &NodeSlots, need: usize) {
        self.pools[pool].remove_slots(node);
        self.record_taken(space, pool, node, need);
    }

    /// Records that slots of a pool are taken by seats that need `need` steps.
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
