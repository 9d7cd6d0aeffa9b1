//! Finds a node for each seat of a schedule.
//!
//! A job first keeps what its option says it keeps. The rest are seats, each needed through some number of
//! steps. Seats and free nodes are both sorted by how long, and matched in order: windows being nested, that
//! fills every seat if any matching does. Nodes that end together are neighbours in that order and so are
//! seats of one job, so a block goes to as few jobs as possible; among seats needed equally long, the most
//! stable nodes go to jobs that lose most by a rescale.
//!
//! Where nodes of jobs are blocks of several slots of one node, the largest are seated first (see `ground`).

use super::ground::Ground;
use crate::model::{MalleableJob, NodeName};
use crate::plan::space::cost::Change;
use crate::plan::space::decision::{Schedule, Space};
use crate::plan::space::slots::{self, Slot};
use crate::plan::space::spec::{Family, Spec};

/// The slots of one node of a job: several where its nodes are blocks.
pub type Node = Vec<usize>;

/// A node to be found for a job.
struct Seat {
    job: usize,
    /// Number of slots on one node that it takes.
    size: u32,
    /// Number of steps it is needed through.
    steps: usize,
    /// Weighted samples that the job loses when it must be rescaled because the node leaves.
    loss: f64,
}

/// The nodes of each job in the first step: those it keeps, in kept order, then its seats.
pub fn seat_all(space: &Space<'_>, schedule: &Schedule, favoured: &[usize]) -> Vec<Vec<Node>> {
    let mut nodes: Vec<Vec<Node>> = Vec::with_capacity(space.jobs.len());
    let mut taken = vec![false; space.slots.len()];
    let mut seats = Vec::new();
    for (number, (job, path)) in space.jobs.iter().zip(schedule).enumerate() {
        let specs: Vec<&Spec> = path.iter().filter_map(|o| job.options.get(*o)).collect();
        let kept = specs.first().map_or(0, |s| s.kept as usize);
        let kept: Vec<Node> = job.kept_order.iter().take(kept).map(|k| k.slots.clone()).collect();
        kept.iter().flatten().for_each(|slot| taken[*slot] = true);
        nodes.push(kept);
        seats.extend(seats_of(number, job.job, &specs));
    }
    if seats.is_empty() {
        return nodes;
    }
    seats.sort_by(|a, b| {
        let later = |seat: &Seat| !favoured.contains(&seat.job);
        let by_need = b.size.cmp(&a.size).then(b.steps.cmp(&a.steps)).then(b.loss.total_cmp(&a.loss));
        later(a).cmp(&later(b)).then(by_need).then(a.job.cmp(&b.job))
    });
    let spec = |job: usize| schedule[job].first().and_then(|o| space.jobs[job].options.get(*o));
    if space.blocks.are_any() {
        let mut ground = Ground::new(space, &taken);
        for seat in seats {
            let seeker = spec(seat.job).map(|spec| Seeker { job: space.jobs[seat.job].job, spec });
            nodes[seat.job].extend(seeker.and_then(|s| ground.take(space, s, seat.size, seat.steps)));
        }
        return nodes;
    }
    let mut pools = Pools::new(space, taken);
    for seat in seats {
        let seeker = spec(seat.job).map(|spec| Seeker { job: space.jobs[seat.job].job, spec });
        nodes[seat.job].extend(seeker.and_then(|s| pools.take(space, s)).map(|slot| vec![slot]));
    }
    nodes
}

/// A job that looks for nodes, and what it does with them.
#[derive(Clone, Copy)]
pub struct Seeker<'a> {
    /// The job.
    pub job: &'a MalleableJob,
    /// Its option in the first step.
    pub spec: &'a Spec,
}

impl Seeker<'_> {
    /// Whether the job may take a free slot of its type that it does not keep.
    pub fn may_sit(self, slot: &Slot<'_>) -> bool {
        let node = &slot.gap.node;
        // A job that starts anew elsewhere leaves its old lead's node: with that node it would be no new
        // start.
        let is_lead = |lead: &NodeName| lead == node || (lead.is_block() && lead.parts().contains(node));
        let old_lead = self.spec.family == Family::Fresh && self.job.lead_node.as_ref().is_some_and(is_lead);
        // A block that it gives up is still there when the new one begins.
        let own = self.job.block > 1 && slot.gap.holder == Some(self.job.id);
        !old_lead && !own && !slots::excludes(self.job, node)
    }
}

/// Free slots of each type on which jobs may start, the most stable first.
struct Pools {
    by_type: Vec<Vec<usize>>,
    /// In each pool the first slot that may still be free.
    first: Vec<usize>,
    taken: Vec<bool>,
}

impl Pools {
    fn new(space: &Space<'_>, taken: Vec<bool>) -> Self {
        let mut by_type = vec![Vec::new(); space.types.len()];
        for slot in space.by_stability().iter().filter(|i| space.slots[**i].startable && !taken[**i]) {
            by_type[space.slots[*slot].node_type].push(*slot);
        }
        Pools { first: vec![0; by_type.len()], by_type, taken }
    }

    /// Takes the most stable slot on which the job may sit.
    fn take(&mut self, space: &Space<'_>, seeker: Seeker<'_>) -> Option<usize> {
        let node_type = seeker.spec.node_type;
        let pool = self.by_type.get(node_type)?;
        let first = &mut self.first[node_type];
        while pool.get(*first).is_some_and(|slot| self.taken[*slot]) {
            *first += 1;
        }
        let mut free = pool[*first..].iter().filter(|slot| !self.taken[**slot]);
        let found = *free.find(|slot| seeker.may_sit(&space.slots[**slot]))?;
        self.taken[found] = true;
        Some(found)
    }
}

/// The seats of one job. Seat i is needed as long as more than i nodes besides the kept ones are.
fn seats_of(number: usize, job: &MalleableJob, specs: &[&Spec]) -> Vec<Seat> {
    let Some(first) = specs.first() else { return Vec::new() };
    let change = Change::Shrink.loss(&job.costs, first.rate);
    let loss = change.max(Change::Start.loss(&job.costs, first.rate)) * job.weight;
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
    (0..seats).map(|seat| Seat { job: number, size, steps: steps(seat), loss }).collect()
}
