//! Free places by host, for blocks: each block goes where it breaks up the fewest larger ones that would fit.
//!
//! Workers may take more of a host than their places come with. Then each goes where it fits and takes their
//! share from the fewest places. A host then has as many places as its remaining share makes.

use std::collections::BTreeSet;

use super::host_budget::HostBudget;
use super::near_slot_pool::broken_places;
use super::placement_request::{NodeSlots, PlacementRequest};
use crate::plan::space::{decision::DecisionSpace, resource::BlockSize};
use infill_model::{CpuMemory, JobId};

/// The free slots on one host. Those that last through the fewest steps come first, the most stable among
/// them first.
#[derive(Clone, Debug, Default)]
struct HostSlots(Vec<usize>);

/// The free slots on which jobs may start, by host.
#[derive(Debug)]
pub(crate) struct FreeBlocks<'a> {
    hosts: Vec<HostSlots>,
    /// Number of free slots and index of each host that has any.
    order: BTreeSet<(usize, usize)>,
    /// CPUs and memory taken of the hosts, where these are counted.
    budget: Option<HostBudget<'a>>,
    /// The hosts, the best first, for the seats of the same class as the last one.
    ranked: Option<(SeatClass, BTreeSet<(HostRank, usize)>)>,
}

impl<'a> FreeBlocks<'a> {
    /// All startable slots that are not taken.
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

    /// Takes `size` slots of one host that last through `steps` steps. If no host has such slots, takes those
    /// that last longest.
    pub fn take_block(
        &mut self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        size: u32,
        steps: usize,
    ) -> Option<NodeSlots> {
        let size = size as usize;
        if self.budget.is_some() {
            return self.take_within_budget(space, request, size, steps);
        }
        let mut best: Option<(usize, usize, NodeSlots)> = None;
        let by_harm = self.sizes_by_harm(&space.blocks.levels, size);
        let hosts = by_harm.into_iter().flat_map(|free| self.order.range((free, 0)..(free + 1, 0)));
        for (_, number) in hosts {
            let Some((lasts, node)) = self.hosts[*number].find_block(space, request, size, steps) else {
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

    /// As [`FreeBlocks::take_block`], where hosts have budgets. Seats of one class follow one another, so
    /// hosts are ranked once for all of them.
    fn take_within_budget(
        &mut self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        size: usize,
        steps: usize,
    ) -> Option<NodeSlots> {
        let class = (request.job.id, size, steps);
        let mut ranked = match self.ranked.take() {
            Some((ranked_class, ranked)) if ranked_class == class => ranked,
            _ => (0..self.hosts.len())
                .filter_map(|n| Some((self.rank_host(space, request, size, steps, n)?, n)))
                .collect(),
        };
        let first = ranked.pop_first();
        let node = first.and_then(|(_, number)| {
            let (_, node) = self.hosts[number].find_block(space, request, size, steps)?;
            let reservation = request.worker_reservation(space, &node);
            if let Some(budget) = &mut self.budget
                && let Some(reservation) = reservation
            {
                budget.reserve_worker(budget.host_of(node[0]), reservation);
            }
            let node = self.remove_slots(number, node);
            ranked.extend(self.rank_host(space, request, size, steps, number).map(|rank| (rank, number)));
            Some(node)
        });
        self.ranked = Some((class, ranked));
        node
    }

    /// How good a host is for a seat; `None` where the seat does not fit.
    fn rank_host(
        &self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        size: usize,
        steps: usize,
        number: usize,
    ) -> Option<HostRank> {
        let budget = self.budget.as_ref()?;
        let host = &self.hosts[number];
        let (lasts, node) = host.find_block(space, request, size, steps)?;
        let reservation = request.worker_reservation(space, &node);
        let at = budget.host_of(node[0]);
        let lasts = reservation.map_or(lasts, |worker| lasts.min(budget.fitting_steps(at, worker)));
        let own = node.first().and_then(|slot| space.slots[*slot].gap.share).map(|share| share.own);
        let levels = &space.blocks.levels;
        let free = host.0.len();
        let harm = match reservation.zip(own) {
            Some((worker, own)) => {
                let remaining = budget.remaining_share(at);
                placement_harm(levels, remaining, own, free, size, worker.takes)
            }
            None => (broken_places(levels, size, free, size), free),
        };
        (lasts > 0).then_some((std::cmp::Reverse(lasts), harm))
    }

    /// Takes these slots from a host.
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

    /// The numbers of free slots that hosts have, from `size` on. Sorted by how many slots of larger blocks
    /// `size` of them break up, then by the number itself.
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

/// Seats of one class have these in common: the job, the number of places and the number of steps.
type SeatClass = (JobId, usize, usize);

/// Rank of a host for a worker, the smallest is best: the number of steps through which it lasts (most
/// first), then what the worker breaks up, then the number of places left.
type HostRank = (std::cmp::Reverse<usize>, (usize, usize));

/// How many places a worker of `size` places breaks up on a host with `free` places. Also how many of these
/// have their share left. `remaining` is what the host has left, `own` what one place comes with.
fn placement_harm(
    levels: &[BlockSize],
    remaining: CpuMemory,
    own: CpuMemory,
    free: usize,
    size: usize,
    takes: CpuMemory,
) -> (usize, usize) {
    let before = shares_in(remaining, own).min(free);
    let after = shares_in(remaining.saturating_sub(takes), own).min(free - size).min(before);
    // Places without their share are lost to all jobs except those that need less.
    let lost = (before - after).saturating_sub(size);
    (lost + broken_places(levels, size, before, before - after), before)
}

/// The number of places whose share `own` fits into a portion.
fn shares_in(portion: CpuMemory, own: CpuMemory) -> usize {
    let by_cpus = u64::from(portion.cpus).checked_div(own.cpus.into()).unwrap_or(u64::MAX);
    let by_memory = portion.memory_mib.checked_div(own.memory_mib).unwrap_or(u64::MAX);
    usize::try_from(by_cpus.min(by_memory)).unwrap_or(usize::MAX)
}

impl HostSlots {
    /// The first slots to end of those that last through `steps` steps, else the last slots to end. Also the
    /// number of steps through which all of them last, at most `steps`.
    fn find_block(
        &self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        size: usize,
        steps: usize,
    ) -> Option<(usize, NodeSlots)> {
        let usable: Vec<usize> = self
            .0
            .iter()
            .filter(|slot| {
                let slot = &space.slots[**slot];
                slot.node_type == request.spec.node_type && request.may_use_slot(slot)
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
