//! Finds a node for each seat of a schedule.
//!
//! A job first keeps what its option says it keeps. The rest are seats, each needed through some number of
//! steps. Seats and free nodes are both sorted by how long, and matched in order. Because windows are nested,
//! this fills every seat if any matching does. Nodes that end together are neighbours in that order, and so
//! are seats of one job. So a block goes to as few jobs as possible. Among seats needed equally long, the
//! most stable nodes go to jobs that lose most by a rescale.
//!
//! Where switches are known, or places of nodes are lent, jobs come by size. Each goes where it spans the
//! fewest switches, and on these the fewest hosts (see [`super::topology_slots`]).
//!
//! Where nodes of jobs are blocks of several slots on one host, the largest are seated first (see
//! [`super::free_blocks`]). So are those that take most of a host's CPUs or memory.

use super::free_blocks::FreeBlocks;
use super::host_budget::HostBudget;
use super::network_spread::{NetworkSpread, nodes_spread};
use super::placement_request::{NodeSlots, PlacementRequest};
use super::topology_slots::TopologySlots;
use crate::plan::space::{
    decision::{DecisionSpace, Schedule},
    host_shares::HostShares,
    job_option::JobOption,
    worker_places::plan_needs,
};
use infill_model::{ChangeKind, MalleableJob};

/// What decides where a seat goes, besides counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementCriterion {
    /// How long nodes last.
    Windows,
    /// How long nodes last, on which switches they are, and which are places of one host. As `Windows` where
    /// switches and hosts make no difference.
    Nearness,
}

/// A node that a job still needs.
struct NodeSeat {
    job: usize,
    /// Number of slots on one host that it takes.
    size: u32,
    /// `size`, or the number of slots whose shares cover what it takes of its host, where that is more.
    bulk: u32,
    /// Number of steps through which it is needed.
    steps: usize,
    /// Weighted samples that the job loses in a rescale because the node leaves.
    loss: f64,
}

/// Where jobs are in the first step.
pub(crate) struct SeatedJobs {
    /// The nodes of each job: those it keeps, in kept order, then its seats.
    pub nodes: Vec<Vec<NodeSlots>>,
    /// For each job whether its hosts lack what its plan needs beyond what its workers have.
    pub denied: Vec<bool>,
}

/// Finds a node for each seat.
pub(crate) fn seat_jobs(
    space: &DecisionSpace<'_>,
    schedule: &Schedule,
    favoured: &[usize],
    criterion: PlacementCriterion,
) -> SeatedJobs {
    let mut nodes: Vec<Vec<NodeSlots>> = Vec::with_capacity(space.jobs.len());
    let mut taken = vec![false; space.slots.len()];
    let mut seats = Vec::new();
    for (number, (job, path)) in space.jobs.iter().zip(schedule).enumerate() {
        let specs: Vec<&JobOption> = path.iter().filter_map(|o| job.options.get(*o)).collect();
        let kept = specs.first().map_or(0, |s| s.kept as usize);
        let kept: Vec<NodeSlots> = job.kept_order.iter().take(kept).map(|k| k.slots.clone()).collect();
        kept.iter().flatten().for_each(|slot| taken[*slot] = true);
        nodes.push(kept);
        seats.extend(seats_of(space, number, job.job, &specs));
    }
    let mut budget = space.shares.as_ref().map(HostBudget::new);
    let specs = space.jobs.iter().zip(schedule).map(|(job, path)| job.options.get(*path.first()?));
    let specs: Vec<Option<&JobOption>> = specs.collect();
    let denied = budget.as_mut().map(|budget| budget.reserve_kept(space, &specs, &nodes, favoured));
    let denied = denied.unwrap_or_else(|| vec![false; nodes.len()]);
    if seats.is_empty() {
        return SeatedJobs { nodes, denied };
    }
    seats.sort_by(|a, b| {
        let by_need = b.bulk.cmp(&a.bulk).then(b.steps.cmp(&a.steps)).then(b.loss.total_cmp(&a.loss));
        let a_is_later = !favoured.contains(&a.job);
        let b_is_later = !favoured.contains(&b.job);
        a_is_later.cmp(&b_is_later).then(by_need).then(a.job.cmp(&b.job))
    });
    let mut requests: Vec<Option<PlacementRequest<'_>>> = Vec::with_capacity(specs.len());
    for (number, spec) in specs.iter().enumerate() {
        let job = space.jobs[number].job;
        requests.push(spec.map(|spec| PlacementRequest { job, spec, denied: denied[number] }));
    }
    if criterion == PlacementCriterion::Nearness
        && let Some(near) = TopologySlots::new(space, &taken)
    {
        seat_nearby(space, near, &seats, favoured, &requests, &mut nodes);
        return SeatedJobs { nodes, denied };
    }
    let mut free = FreeSlots::new(space, taken, budget);
    for seat in seats {
        let Some(request) = requests[seat.job] else { continue };
        nodes[seat.job].extend(free.take_seat(space, request, &seat));
    }
    SeatedJobs { nodes, denied }
}

/// Seats each job where it spans few switches and few hosts. Tries three orders of jobs: by most seats, by
/// fewest seats, and by number. Takes the order with the smallest total span. The largest blocks always come
/// first.
fn seat_nearby(
    space: &DecisionSpace<'_>,
    mut near: TopologySlots<'_>,
    seats: &[NodeSeat],
    favoured: &[usize],
    requests: &[Option<PlacementRequest<'_>>],
    nodes: &mut Vec<Vec<NodeSlots>>,
) {
    let mut steps: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for seat in seats {
        let Some(request) = requests[seat.job] else { continue };
        near.expect_seat(request.spec.node_type, seat.size, seat.steps);
        steps[seat.job].push(seat.steps);
    }
    let mut jobs: Vec<(usize, Vec<usize>)> =
        steps.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()).collect();
    let mut best: Option<(NetworkSpread, Vec<Vec<NodeSlots>>)> = None;
    for order in [|seats: usize| -(seats as i64), |seats| seats as i64, |_| 0] {
        jobs.sort_by_key(|(job, steps)| {
            let block = space.jobs[*job].job.places_per_node.max(1);
            (!favoured.contains(job), std::cmp::Reverse(block), order(steps.len()), *job)
        });
        let mut near = near.clone();
        let mut seated = nodes.clone();
        let mut spread = (0, 0);
        for (job, steps) in &jobs {
            let Some(request) = requests[*job] else { continue };
            let kept: Vec<usize> = seated[*job].iter().flatten().copied().collect();
            let found = near.take_seats(space, request, steps, &kept);
            seated[*job].extend(found);
            let nodes = seated[*job].iter().flatten().map(|slot| &space.slots[*slot].gap.node);
            let (crossings, hosts) = nodes_spread(space.problem, nodes);
            spread = (spread.0 + crossings, spread.1 + hosts);
        }
        if best.as_ref().is_none_or(|(least, _)| spread < *least) {
            best = Some((spread, seated));
        }
    }
    if let Some((_, seated)) = best {
        *nodes = seated;
    }
}

/// Free slots on which seats are placed by how long these last.
enum FreeSlots<'a> {
    /// Where each node is one slot.
    Single(TypePools),
    /// Where some nodes are blocks of several slots, or take more of their hosts than their places come with.
    Blocks(FreeBlocks<'a>),
}

impl<'a> FreeSlots<'a> {
    fn new(space: &DecisionSpace<'_>, taken: Vec<bool>, budget: Option<HostBudget<'a>>) -> FreeSlots<'a> {
        if space.blocks.are_any() || budget.is_some() {
            FreeSlots::Blocks(FreeBlocks::new(space, &taken, budget))
        } else {
            FreeSlots::Single(TypePools::new(space, taken))
        }
    }

    fn take_seat(
        &mut self,
        space: &DecisionSpace<'_>,
        request: PlacementRequest<'_>,
        seat: &NodeSeat,
    ) -> Option<NodeSlots> {
        match self {
            FreeSlots::Single(pools) => pools.take_slot(space, request).map(|slot| vec![slot]),
            FreeSlots::Blocks(blocks) => blocks.take_block(space, request, seat.size, seat.steps),
        }
    }
}

/// Free slots of each type on which jobs may start, the most stable first.
struct TypePools {
    by_type: Vec<Vec<usize>>,
    /// For each type the index of the first slot that may still be free.
    first: Vec<usize>,
    taken: Vec<bool>,
}

impl TypePools {
    fn new(space: &DecisionSpace<'_>, taken: Vec<bool>) -> Self {
        let mut by_type = vec![Vec::new(); space.types.len()];
        for slot in space.by_stability().iter().filter(|i| space.slots[**i].startable && !taken[**i]) {
            by_type[space.slots[*slot].node_type].push(*slot);
        }
        TypePools { first: vec![0; by_type.len()], by_type, taken }
    }

    /// Takes the most stable slot that the job may use.
    fn take_slot(&mut self, space: &DecisionSpace<'_>, request: PlacementRequest<'_>) -> Option<usize> {
        let node_type = request.spec.node_type;
        let pool = self.by_type.get(node_type)?;
        let first = &mut self.first[node_type];
        while pool.get(*first).is_some_and(|slot| self.taken[*slot]) {
            *first += 1;
        }
        let mut free = pool[*first..].iter().filter(|slot| !self.taken[**slot]);
        let found = *free.find(|slot| request.may_use_slot(&space.slots[**slot]))?;
        self.taken[found] = true;
        Some(found)
    }
}

/// The seats of one job. Seat i is needed as long as the job has more than i nodes besides the kept ones.
fn seats_of(
    space: &DecisionSpace<'_>,
    number: usize,
    job: &MalleableJob,
    specs: &[&JobOption],
) -> Vec<NodeSeat> {
    let Some(first) = specs.first() else { return Vec::new() };
    let change = job.change_loss(ChangeKind::Shrink, first.rate);
    let loss = change.max(job.change_loss(ChangeKind::Start, first.rate)) * job.weight;
    let mut needed: Vec<u32> = Vec::new();
    for spec in specs {
        if !first.continues_as(spec) {
            break;
        }
        let fresh = spec.nodes - spec.kept;
        needed.push(needed.last().map_or(fresh, |before| fresh.min(*before)));
    }
    let seats = needed.first().copied().unwrap_or(0);
    let size = job.places_per_node.max(1);
    let bulk =
        space.shares.as_ref().map_or(size, |shares| size.max(places_needed(space, shares, job, first)));
    let mut found = Vec::with_capacity(seats as usize);
    for seat in 0..seats {
        let steps = needed.iter().filter(|count| **count > seat).count();
        found.push(NodeSeat { job: number, size, bulk, steps, loss });
    }
    found
}

/// The number of places whose shares cover what a worker of an option takes.
fn places_needed(
    space: &DecisionSpace<'_>,
    shares: &HostShares,
    job: &MalleableJob,
    spec: &JobOption,
) -> u32 {
    let own = shares.smallest_shares[spec.node_type];
    let needs = plan_needs(job, &space.types[spec.node_type], &spec.exec_plan);
    HostBudget::places_needed(needs.host_portion(own.scaled_by(job.places_per_node.max(1))), own)
}
