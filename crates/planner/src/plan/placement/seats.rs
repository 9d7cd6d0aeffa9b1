//! Finds a node for each seat of a schedule.
//!
//! A job first keeps what its option says it keeps. The rest are seats, each needed through some number of
//! steps. Seats and free nodes are both sorted by how long, and matched in order: windows being nested, that
//! fills every seat if any matching does. Nodes that end together are neighbours in that order and so are
//! seats of one job, so a block goes to as few jobs as possible; among seats needed equally long, the most
//! stable nodes go to jobs that lose most by a rescale.
//!
//! Where switches are known, or parts of nodes are lent, jobs come by size, and each goes where it spans the
//! fewest switches, and on these the fewest hosts (see `near`).
//!
//! Where nodes of jobs are blocks of several slots of one node, the largest are seated first (see `ground`);
//! and so are those that take most of a host's CPUs or memory.

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

/// What a plan is laid by, besides counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementCriterion {
    /// How long nodes last.
    Windows,
    /// How long they last, on which switches they hang, and which are parts of one host. As `Windows` where
    /// that is of no use.
    Nearness,
}

/// A node to be found for a job.
struct NodeSeat {
    job: usize,
    /// Number of slots on one node that it takes.
    size: u32,
    /// The same, or how many slots come with what it takes of its host where that is more.
    bulk: u32,
    /// Number of steps it is needed through.
    steps: usize,
    /// Weighted samples that the job loses when it must be rescaled because the node leaves.
    loss: f64,
}

/// Where jobs are in the first step.
pub(crate) struct SeatedJobs {
    /// The nodes of each job: those it keeps, in kept order, then its seats.
    pub nodes: Vec<Vec<NodeSlots>>,
    /// Whether each job does without what its plan needs beyond what its workers have: their hosts lack it.
    pub denied: Vec<bool>,
}

/// Finds a node for each seat.
pub(crate) fn seat_jobs(
    space: &DecisionSpace<'_>,
    schedule: &Schedule,
    favoured: &[usize],
    regard: PlacementCriterion,
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
        let later = |seat: &NodeSeat| !favoured.contains(&seat.job);
        let by_need = b.bulk.cmp(&a.bulk).then(b.steps.cmp(&a.steps)).then(b.loss.total_cmp(&a.loss));
        later(a).cmp(&later(b)).then(by_need).then(a.job.cmp(&b.job))
    });
    let seeker = |number: usize| {
        let job = &space.jobs[number];
        Some(PlacementRequest { job: job.job, spec: specs[number]?, denied: denied[number] })
    };
    if regard == PlacementCriterion::Nearness
        && let Some(near) = TopologySlots::new(space, &taken)
    {
        seat_nearby(space, near, &seats, favoured, seeker, &mut nodes);
        return SeatedJobs { nodes, denied };
    }
    let mut free = FreeSlots::new(space, taken, budget);
    for seat in seats {
        let Some(seeker) = seeker(seat.job) else { continue };
        nodes[seat.job].extend(free.take_seat(space, seeker, &seat));
    }
    SeatedJobs { nodes, denied }
}

/// Seats each job where it spans few switches and few hosts: those that want most nodes first, or those that
/// want fewest, or as they come, whatever spans the fewest in all. The largest blocks always come first.
fn seat_nearby<'s>(
    space: &DecisionSpace<'_>,
    mut near: TopologySlots<'_>,
    seats: &[NodeSeat],
    favoured: &[usize],
    seeker: impl Fn(usize) -> Option<PlacementRequest<'s>>,
    nodes: &mut Vec<Vec<NodeSlots>>,
) {
    let mut steps: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for seat in seats {
        let Some(seeker) = seeker(seat.job) else { continue };
        near.expect_seat(seeker.spec.node_type, seat.size, seat.steps);
        steps[seat.job].push(seat.steps);
    }
    let mut jobs: Vec<(usize, Vec<usize>)> =
        steps.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()).collect();
    let block = |job: usize| std::cmp::Reverse(space.jobs[job].job.block.max(1));
    let mut best: Option<(NetworkSpread, Vec<Vec<NodeSlots>>)> = None;
    for order in [|seats: usize| -(seats as i64), |seats| seats as i64, |_| 0] {
        jobs.sort_by_key(|(job, steps)| (!favoured.contains(job), block(*job), order(steps.len()), *job));
        let mut near = near.clone();
        let mut seated = nodes.clone();
        let mut spread = (0, 0);
        for (job, steps) in &jobs {
            let Some(seeker) = seeker(*job) else { continue };
            let kept: Vec<usize> = seated[*job].iter().flatten().copied().collect();
            let found = near.take_seats(space, seeker, steps, &kept);
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

/// Slots that are free.
enum FreeSlots<'a> {
    /// Where each node is one slot.
    Single(TypePools),
    /// Where some are blocks of several, or take more of their hosts than comes with them.
    Blocks(FreeBlocks<'a>),
}

impl<'a> FreeSlots<'a> {
    fn new(space: &DecisionSpace<'_>, taken: Vec<bool>, budget: Option<HostBudget<'a>>) -> FreeSlots<'a> {
        match space.blocks.are_any() || budget.is_some() {
            true => FreeSlots::Blocks(FreeBlocks::new(space, &taken, budget)),
            false => FreeSlots::Single(TypePools::new(space, taken)),
        }
    }

    fn take_seat(
        &mut self,
        space: &DecisionSpace<'_>,
        seeker: PlacementRequest<'_>,
        seat: &NodeSeat,
    ) -> Option<NodeSlots> {
        match self {
            FreeSlots::Single(pools) => pools.take_slot(space, seeker).map(|slot| vec![slot]),
            FreeSlots::Blocks(ground) => ground.take_block(space, seeker, seat.size, seat.steps),
        }
    }
}

/// Free slots of each type on which jobs may start, the most stable first.
struct TypePools {
    by_type: Vec<Vec<usize>>,
    /// In each pool the first slot that may still be free.
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

    /// Takes the most stable slot on which the job may sit.
    fn take_slot(&mut self, space: &DecisionSpace<'_>, seeker: PlacementRequest<'_>) -> Option<usize> {
        let node_type = seeker.spec.node_type;
        let pool = self.by_type.get(node_type)?;
        let first = &mut self.first[node_type];
        while pool.get(*first).is_some_and(|slot| self.taken[*slot]) {
            *first += 1;
        }
        let mut free = pool[*first..].iter().filter(|slot| !self.taken[**slot]);
        let found = *free.find(|slot| seeker.may_use_slot(&space.slots[**slot]))?;
        self.taken[found] = true;
        Some(found)
    }
}

/// The seats of one job. Seat i is needed as long as more than i nodes besides the kept ones are.
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
    let steps = |seat: u32| needed.iter().filter(|n| **n > seat).count();
    let size = job.block.max(1);
    let bulk =
        space.shares.as_ref().map_or(size, |shares| size.max(places_needed(space, shares, job, first)));
    (0..seats).map(|seat| NodeSeat { job: number, size, bulk, steps: steps(seat), loss }).collect()
}

/// How many places come with what a worker of an option takes.
fn places_needed(
    space: &DecisionSpace<'_>,
    shares: &HostShares,
    job: &MalleableJob,
    spec: &JobOption,
) -> u32 {
    let own = shares.least[spec.node_type];
    let needs = plan_needs(job, &space.types[spec.node_type], &spec.exec_plan);
    HostBudget::places_needed(needs.host_portion(own.scaled_by(job.block.max(1))), own)
}
