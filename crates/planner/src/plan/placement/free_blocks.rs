//! Free places by node, for blocks: each goes where it breaks up the fewest larger ones that would fit.
//!
//! Where workers take more of a host than their places come with, each goes where it fits, there where it
//! takes the fewest places their share; a host has so many places as what is left of it makes.

use std::collections::BTreeSet;

use super::host_budget::HostBudget;
use super::placement_request::{NodeSlots, PlacementRequest};
use super::worker_reservation::WorkerReservation;
use crate::plan::space::{decision::DecisionSpace, resource::BlockSize};
use infill_model::{CpuMemory, JobId};

/// The free slots on one node: those that last through the fewest steps first, of these the most stable.
#[derive(Clone, Debug, Default)]
struct HostSlots(Vec<usize>);

/// The free slots on which jobs may start, by node.
#[derive(Debug)]
pub(crate) struct FreeBlocks<'a> {
    hosts: Vec<HostSlots>,
    /// Number of free slots of each node that has any, and the node; of equal ones as the slots of a node.
    order: BTreeSet<(usize, usize)>,
    /// What is taken of the hosts, where that is counted.
    budget: Option<HostBudget<'a>>,
    /// The hosts, the best first, for the seats that are like the last one.
    ranked: Option<(SeatClass, BTreeSet<(HostRank, usize)>)>,
}

impl<'a> FreeBlocks<'a> {
    /// All that are not taken.
    pub fn new(space: &DecisionSpace<'_>, taken: &[bool], budget: Option<HostBudget<'a>>) -> FreeBlocks<'a> {
        let mut hosts: Vec<HostSlots> = Vec::new();
        let mut number_of = rustc_hash::FxHashMap::default();
        let mut slots = space.by_stability().to_vec();
        slots.sort_by_key(|slot| space.slots[*slot].lasts);
        for slot in &slots {
            if !taken[*slot] && space.slots[*slot].startable {
                let host = budget.as_ref().map_or_else(|| space.blocks.host[*slot], |b| b.host_of(*slot));
                let number = *number_of.entry(host).or_insert_with(|| {
                    hosts.push(HostSlots::default());
                    hosts.len() - 1
                });
                hosts[number].0.push(*slot);
            }
        }
        let order = hosts.iter().enumerate().map(|(number, host)| (host.0.len(), number)).collect();
        FreeBlocks { hosts, order, budget, ranked: None }
    }

    /// Takes so many slots of one node that last through so many steps; where there are none, those that last
    /// longest.
    pub fn take_block(
        &mut self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        size: u32,
        steps: usize,
    ) -> Option<NodeSlots> {
        let size = size as usize;
        if self.budget.is_some() {
            return self.take_within_budget(space, seeker, size, steps);
        }
        let mut best: Option<(usize, usize, NodeSlots)> = None;
        let by_harm = self.sizes_by_harm(&space.blocks.levels, size);
        let hosts = by_harm.into_iter().flat_map(|free| self.order.range((free, 0)..(free + 1, 0)));
        for (_, number) in hosts {
            let Some((lasts, node)) = self.hosts[*number].find_block(space, seeker, size, steps) else {
                continue;
            };
            if best.as_ref().is_none_or(|(most, ..)| lasts > *most) {
                best = Some((lasts, *number, node));
            }
            if lasts >= steps {
                break;
            }
        }
        let (_, number, node) = best?;
        Some(self.remove_slots(number, node))
    }

    /// The same where hosts have accounts. Seats that are alike come one after the other: hosts are ranked
    /// once for all of them.
    fn take_within_budget(
        &mut self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        size: usize,
        steps: usize,
    ) -> Option<NodeSlots> {
        let alike = (seeker.job.id, size, steps);
        let mut ranked = match self.ranked.take() {
            Some((of, ranked)) if of == alike => ranked,
            _ => (0..self.hosts.len())
                .filter_map(|n| Some((self.rank_host(space, seeker, size, steps, n)?, n)))
                .collect(),
        };
        let first = ranked.pop_first();
        let node = first.and_then(|(_, number)| {
            let (_, node) = self.hosts[number].find_block(space, seeker, size, steps)?;
            if let (Some(budget), Some(taking)) = (&mut self.budget, seeker.worker_reservation(space, &node))
            {
                budget.reserve_worker(budget.host_of(node[0]), taking);
            }
            let node = self.remove_slots(number, node);
            ranked.extend(self.rank_host(space, seeker, size, steps, number).map(|rank| (rank, number)));
            Some(node)
        });
        self.ranked = Some((alike, ranked));
        node
    }

    /// How good a host is for a seat; `None` where there is no room.
    fn rank_host(
        &self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        size: usize,
        steps: usize,
        number: usize,
    ) -> Option<HostRank> {
        let budget = self.budget.as_ref()?;
        let host = &self.hosts[number];
        let (lasts, node) = host.find_block(space, seeker, size, steps)?;
        let taking = seeker.worker_reservation(space, &node);
        let at = budget.host_of(node[0]);
        let lasts = taking.map_or(lasts, |taking| lasts.min(budget.fitting_steps(at, taking)));
        let harm = placement_harm(space, budget, at, host.0.len(), (size, taking, &node));
        (lasts > 0).then_some((std::cmp::Reverse(lasts), harm))
    }

    /// Takes these slots of a host.
    fn remove_slots(&mut self, number: usize, mut node: NodeSlots) -> NodeSlots {
        let host = &mut self.hosts[number].0;
        self.order.remove(&(host.len(), number));
        host.retain(|slot| !node.contains(slot));
        if !host.is_empty() {
            self.order.insert((host.len(), number));
        }
        node.sort_unstable();
        node
    }

    /// The numbers of free slots that nodes have, at least `size`: first those where `size` of them break up
    /// the fewest slots that larger blocks could have, then the fewest.
    fn sizes_by_harm(&self, levels: &[BlockSize], size: usize) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        while let Some((free, _)) = self.order.range((found.last().map_or(size, |free| free + 1), 0)..).next()
        {
            found.push(*free);
        }
        found.sort_by_key(|free| (broken_places(levels, size, *free, size), *free));
        found
    }
}

/// What seats are alike that have this in common: the job, the number of places and that of steps.
type SeatClass = (JobId, usize, usize);

/// How good a host is for a worker, the better the less: through how many steps it lasts, then what it
/// breaks up, then how many places are left.
type HostRank = (std::cmp::Reverse<usize>, (usize, usize));

/// How many places of blocks larger than `size` are lost where `takes` of the free ones go.
fn broken_places(levels: &[BlockSize], size: usize, free: usize, takes: usize) -> usize {
    let larger = levels.iter().map(|level| *level as usize).filter(|level| *level > size);
    larger.map(|d| d * (free / d - free.saturating_sub(takes) / d)).sum()
}

/// What a worker of `size` places breaks up on a host with so many free places, and how many of these have
/// their share left.
fn placement_harm(
    space: &DecisionSpace<'_>,
    budget: &HostBudget<'_>,
    host: usize,
    free: usize,
    (size, taking, node): (usize, Option<WorkerReservation>, &NodeSlots),
) -> (usize, usize) {
    let levels = &space.blocks.levels;
    let one = node.first().and_then(|slot| space.slots[*slot].gap.share).map(|share| share.own);
    let (Some(taking), Some(own)) = (taking, one) else {
        return (broken_places(levels, size, free, size), free);
    };
    let makes = |left: u64, own: u64| left.checked_div(own).unwrap_or(u64::MAX);
    let shares = |left: CpuMemory| {
        let least = makes(left.cpus.into(), own.cpus.into()).min(makes(left.memory_mib, own.memory_mib));
        usize::try_from(least).unwrap_or(usize::MAX)
    };
    let left = budget.remaining_share(host);
    let now = shares(left).min(free);
    let then = shares(left.saturating_sub(taking.takes)).min(free - size);
    // Places without their share are lost to all but those who need less.
    let lost = (now - then.min(now)).saturating_sub(size);
    (lost + broken_places(levels, size, now, now - then.min(now)), now)
}

impl HostSlots {
    /// The first to end of those that last through `steps`, else the last to end; and how many steps all of
    /// them last through, at most `steps`.
    fn find_block(
        &self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        size: usize,
        steps: usize,
    ) -> Option<(usize, NodeSlots)> {
        let usable: Vec<usize> = self
            .0
            .iter()
            .filter(|slot: &&usize| {
                let slot = &space.slots[**slot];
                slot.node_type == seeker.spec.node_type && seeker.may_use_slot(slot)
            })
            .copied()
            .collect();
        let from = usable.len().checked_sub(size)?;
        let enough = usable.iter().position(|slot| space.slots[*slot].lasts >= steps).unwrap_or(from);
        let node = usable[enough.min(from)..][..size].to_vec();
        let lasts = node.iter().map(|slot| space.slots[*slot].lasts).min().unwrap_or(0);
        Some((lasts.min(steps), node))
    }
}
