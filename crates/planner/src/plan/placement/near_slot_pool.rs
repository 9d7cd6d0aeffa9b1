//! Free slots that are as near each other as possible: on one host, where places of nodes are lent.

use std::collections::BTreeSet;

use super::placement_request::{NodeSlots, PlacementRequest};
use crate::plan::space::{decision::DecisionSpace, resource::BlockSize};
use infill_model::NodeName;

/// Leaves or pools by the number of free slots there and by stability: (free, rank, leaf or pool).
pub(super) type BySize = BTreeSet<(usize, usize, usize)>;

/// How many slots of each class go to seats of each need: (need, lasts, count).
pub(super) type SeatMatches = Vec<(usize, usize, usize)>;

/// Free slots of one type on one host, or all whole nodes at one leaf switch.
#[derive(Clone, Debug)]
pub(super) struct NearSlotPool {
    /// Index of the leaf that it is on.
    pub leaf: usize,
    /// Whether the slots are places of one host.
    pub is_host: bool,
    /// Free slots by the number of steps through which they last, the least stable first.
    pub by_lasts: Vec<Vec<usize>>,
    /// Number of free slots.
    pub free: usize,
    /// The rank of its most stable slot among all slots.
    pub rank: usize,
}

/// The host of a place; `None` for a whole node.
pub(super) fn host_of(node: &NodeName) -> Option<&str> {
    node.as_str().split_once(':').map(|(host, _)| host)
}

impl NearSlotPool {
    /// A pool without free slots, for slots of this number of classes.
    pub fn new(leaf: usize, is_host: bool, classes: usize) -> NearSlotPool {
        NearSlotPool { leaf, is_host, by_lasts: vec![Vec::new(); classes], free: 0, rank: 0 }
    }

    /// Adds a slot that is more stable than all before. `rank` is its rank among all slots.
    pub fn add_slot(&mut self, slot: usize, lasts: usize, rank: usize) {
        self.by_lasts[lasts].push(slot);
        self.free += 1;
        self.rank = rank;
    }

    /// The number of blocks of `size` slots that `free` slots make, whatever their windows.
    pub fn blocks_in(&self, free: usize, size: usize) -> usize {
        if self.is_host { free / size } else { 0 }
    }

    /// Takes the `count` most stable slots of a class for which `may_sit` holds.
    pub fn take_stable(&mut self, lasts: usize, count: usize, may_sit: impl Fn(usize) -> bool) -> Vec<usize> {
        let class = &mut self.by_lasts[lasts];
        let mut given = Vec::with_capacity(count);
        let mut passed = Vec::new();
        while given.len() < count
            && let Some(number) = class.pop()
        {
            if may_sit(number) { given.push(number) } else { passed.push(number) }
        }
        class.extend(passed.into_iter().rev());
        given
    }

    /// Removes these slots.
    pub fn remove_slots(&mut self, slots: &[usize]) {
        self.by_lasts.iter_mut().for_each(|class| class.retain(|slot| !slots.contains(slot)));
    }

    /// Blocks of `size` slots for seats, as many as the pool has: pairs of need and slots. `needs` is the
    /// number of seats for each number of steps. The longest needs come first, and each gets the slots that
    /// end first among those that last long enough.
    pub fn find_blocks(
        &self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        size: usize,
        needs: &[usize],
    ) -> Vec<(usize, NodeSlots)> {
        let mut usable = self.usable_slots(space, request, size);
        let mut found = Vec::new();
        for need in (0..needs.len()).rev() {
            for _ in 0..needs[need] {
                let from = usable.partition_point(|slot| space.slots[*slot].lasts < need);
                if usable.len() < from + size {
                    break;
                }
                found.push((need, sorted_slots(usable.drain(from..from + size).collect())));
            }
        }
        found
    }

    /// The block of `size` slots that lasts longest, and the number of steps through which it lasts.
    pub fn last_block(
        &self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        size: usize,
    ) -> Option<(usize, NodeSlots)> {
        let mut usable = self.usable_slots(space, request, size);
        let node = usable.split_off(usable.len().checked_sub(size)?);
        Some((space.slots[*node.first()?].lasts, sorted_slots(node)))
    }

    /// The slots of a host that a job may take as parts of a block: the first to end come first, the most
    /// stable among them first. Empty where there are too few.
    fn usable_slots(
        &self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        size: usize,
    ) -> Vec<usize> {
        if !self.is_host || self.free < size {
            return Vec::new();
        }
        let slots = self.by_lasts.iter().flat_map(|class| class.iter().rev().copied());
        slots.filter(|slot| request.may_use_slot(&space.slots[*slot])).collect()
    }
}

fn sorted_slots(mut node: NodeSlots) -> NodeSlots {
    node.sort_unstable();
    node
}

/// Matches seats with the free slots of each class. Each seat gets the slot that ends first among those that
/// it may take.
pub(super) fn match_seats(slack: &[i64], needs: &[usize], free: impl Fn(usize) -> usize) -> SeatMatches {
    let mut slack = slack.to_vec();
    let mut used = vec![0; slack.len()];
    let mut matched = Vec::new();
    for need in (0..needs.len()).rev().filter(|need| needs[*need] > 0) {
        let mut wanted = needs[need];
        for lasts in need..slack.len() {
            let free = free(lasts).saturating_sub(used[lasts]);
            if free == 0 || wanted == 0 {
                continue;
            }
            // Seats that need exactly this class are part of the slack; seats with longer needs must spare
            // it.
            let spare =
                slack[need + 1..=lasts].iter().min().map_or(usize::MAX, |least| (*least).max(0) as usize);
            let count = wanted.min(free).min(spare);
            if count > 0 {
                slack[need + 1..=lasts].iter_mut().for_each(|slack| *slack -= count as i64);
                used[lasts] += count;
                wanted -= count;
                matched.push((need, lasts, count));
            }
        }
    }
    matched
}

/// The number of seats that get a slot.
pub(super) fn count_matched(matched: &SeatMatches) -> usize {
    matched.iter().map(|(.., count)| count).sum()
}

/// The smallest number of seats that a leaf or pool must take. With it, no more leaves or pools are needed
/// than with the largest first. Only the `looked_at` largest are considered. If more than that are needed,
/// the number that the largest takes. If not all seats find a place, 1. `None` where none takes any seat.
pub(super) fn min_seats_each(
    by_size: &BySize,
    looked_at: usize,
    wanted: usize,
    takes: impl Fn(usize) -> usize,
) -> Option<usize> {
    let mut most: Vec<usize> = by_size.iter().rev().take(looked_at).map(|(.., at)| takes(*at)).collect();
    most.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = wanted;
    let largest = most.first().copied().filter(|takes| *takes > 0)?;
    for takes in most {
        if takes >= left {
            return Some(left);
        }
        left -= takes;
    }
    Some(if by_size.len() > looked_at { largest } else { 1 })
}

/// The numbers of free slots that hosts have, from `taken` on. Sorted by how many slots of blocks larger than
/// `size` are lost when `taken` of them go, then by the number itself.
pub(super) fn sizes_by_harm(pools: &BySize, levels: &[BlockSize], size: usize, taken: usize) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    while let Some((free, ..)) =
        pools.range((found.last().map_or(taken, |free| free + 1), 0, 0)..).next().copied()
    {
        found.push(free);
    }
    found.sort_by_key(|free| (broken_places(levels, size, *free, taken), *free));
    found
}

/// The number of places in blocks larger than `size` that are lost where `takes` of the `free` ones go.
pub(super) fn broken_places(levels: &[BlockSize], size: usize, free: usize, takes: usize) -> usize {
    let larger = levels.iter().map(|level| *level as usize).filter(|level| *level > size);
    larger.map(|level| level * (free / level - free.saturating_sub(takes) / level)).sum()
}
