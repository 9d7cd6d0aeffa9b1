//! Free slots that are as near each other as can be: on one host, where parts of nodes are lent.

use std::collections::BTreeSet;

use super::placement_request::{NodeSlots, PlacementRequest};
use crate::plan::space::{decision::DecisionSpace, resource::BlockSize};
use infill_model::NodeName;

/// Leaves or pools by how many slots are free there, and how stable these are: (free, rank, leaf or pool).
pub(super) type BySize = BTreeSet<(usize, usize, usize)>;

/// How many slots of each class go to how many seats of each: (need, lasts, count).
pub(super) type SeatMatches = Vec<(usize, usize, usize)>;

/// Free slots of one type on one host; or all whole nodes that hang on one leaf.
#[derive(Clone, Debug)]
pub(super) struct SlotPool {
    /// The leaf that it is on.
    pub leaf: usize,
    /// Whether they are parts of one host.
    pub is_host: bool,
    /// Free slots by the number of steps that they last through, the least stable first.
    pub by_lasts: Vec<Vec<usize>>,
    /// How many these are.
    pub free: usize,
    /// The place of its most stable slot among all.
    pub rank: usize,
}

/// The host of a place; of a whole node none.
pub(super) fn host_of(node: &NodeName) -> Option<&str> {
    node.as_str().split_once(':').map(|(host, _)| host)
}

impl SlotPool {
    /// One in which nothing is free yet, for slots of so many classes.
    pub fn new(leaf: usize, is_host: bool, classes: usize) -> SlotPool {
        SlotPool { leaf, is_host, by_lasts: vec![Vec::new(); classes], free: 0, rank: 0 }
    }

    /// Adds a slot that is more stable than all before, by its place among all.
    pub fn add_slot(&mut self, slot: usize, lasts: usize, rank: usize) {
        self.by_lasts[lasts].push(slot);
        (self.free, self.rank) = (self.free + 1, rank);
    }

    /// How many blocks of `size` slots so many free ones make, windows apart.
    pub fn blocks_in(&self, free: usize, size: usize) -> usize {
        if self.is_host { free / size } else { 0 }
    }

    /// Takes the `count` most stable slots of a class of those that may be taken.
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

    /// Takes these slots.
    pub fn remove_slots(&mut self, slots: &[usize]) {
        self.by_lasts.iter_mut().for_each(|class| class.retain(|slot| !slots.contains(slot)));
    }

    /// Blocks of `size` slots for seats that are needed through so many steps, as many as there are: (need,
    /// slots). The longest needs come first, and each gets the first to end of the slots that last so long.
    pub fn find_blocks(
        &self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        size: usize,
        needs: &[usize],
    ) -> Vec<(usize, NodeSlots)> {
        let mut usable = self.usable_slots(space, seeker, size);
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

    /// The block of `size` slots that lasts longest, and through how many steps.
    pub fn last_block(
        &self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        size: usize,
    ) -> Option<(usize, NodeSlots)> {
        let mut usable = self.usable_slots(space, seeker, size);
        let node = usable.split_off(usable.len().checked_sub(size)?);
        Some((space.slots[*node.first()?].lasts, sorted_slots(node)))
    }

    /// The slots of a host that a job may take as parts of a block, the first to end first, of these the most
    /// stable; none where they are too few.
    fn usable_slots(
        &self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        size: usize,
    ) -> Vec<usize> {
        if !self.is_host || self.free < size {
            return Vec::new();
        }
        let slots = self.by_lasts.iter().flat_map(|class| class.iter().rev().copied());
        slots.filter(|slot| seeker.may_use_slot(&space.slots[*slot])).collect()
    }
}

fn sorted_slots(mut node: NodeSlots) -> NodeSlots {
    node.sort_unstable();
    node
}

/// Which seats get which of the free slots of each class: each the first to end of those that may go to it.
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
            // Seats of these very steps are part of the slack; longer ones must spare the slot.
            let spare =
                slack[need + 1..=lasts].iter().min().map_or(usize::MAX, |least| (*least).max(0) as usize);
            let count = wanted.min(free).min(spare);
            if count > 0 {
                slack[need + 1..=lasts].iter_mut().for_each(|slack| *slack -= count as i64);
                (used[lasts], wanted) = (used[lasts] + count, wanted - count);
                matched.push((need, lasts, count));
            }
        }
    }
    matched
}

/// How many seats get a slot.
pub(super) fn count_matched(matched: &SeatMatches) -> usize {
    matched.iter().map(|(.., count)| count).sum()
}

/// The fewest seats that one of these must take so that no more of them are needed than with the largest
/// first, of which `looked_at` are looked at: as many as the largest takes, where more are needed than that;
/// one, where not all seats find a place. `None` where none takes any.
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

/// The numbers of free slots that hosts have, at least `taken`: first those where that many of them break up
/// the fewest slots that blocks larger than `size` could have, then the fewest.
pub(super) fn sizes_by_harm(pools: &BySize, levels: &[BlockSize], size: usize, taken: usize) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    while let Some((free, ..)) =
        pools.range((found.last().map_or(taken, |free| free + 1), 0, 0)..).next().copied()
    {
        found.push(free);
    }
    let larger = || levels.iter().map(|level| *level as usize).filter(|level| *level > size);
    let harm = |free: usize| larger().map(|d| d * (free / d - (free - taken) / d)).sum::<usize>();
    found.sort_by_key(|free| (harm(*free), *free));
    found
}
