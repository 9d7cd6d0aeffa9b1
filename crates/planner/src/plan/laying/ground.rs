//! Free places by node, for blocks: each goes where it breaks up the fewest larger ones that would fit.
//!
//! Where workers take more of a host than their places come with, each goes where it fits, there where it
//! takes the fewest places their share; a host has so many places as what is left of it makes.

use std::collections::BTreeSet;

use super::budget::Budget;
use super::seeker::{Node, Seeker};
use super::taking::Taking;
use crate::plan::space::{decision::Space, resource::Level};
use infill_model::{CpuMemory, JobId};

/// The free slots on one node: those that last through the fewest steps first, of these the most stable.
#[derive(Clone, Debug, Default)]
struct Host(Vec<usize>);

/// The free slots on which jobs may start, by node.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    hosts: Vec<Host>,
    /// Number of free slots of each node that has any, and the node; of equal ones as the slots of a node.
    order: BTreeSet<(usize, usize)>,
    /// What is taken of the hosts, where that is counted.
    budget: Option<Budget<'a>>,
    /// The hosts, the best first, for the seats that are like the last one.
    ranked: Option<(Alike, BTreeSet<(Rank, usize)>)>,
}

impl<'a> Ground<'a> {
    /// All that are not taken.
    pub fn new(space: &Space<'_>, taken: &[bool], budget: Option<Budget<'a>>) -> Ground<'a> {
        let mut hosts: Vec<Host> = Vec::new();
        let mut number_of = rustc_hash::FxHashMap::default();
        let mut slots = space.by_stability().to_vec();
        slots.sort_by_key(|slot| space.slots[*slot].lasts);
        for slot in &slots {
            if !taken[*slot] && space.slots[*slot].startable {
                let host = budget.as_ref().map_or_else(|| space.blocks.host[*slot], |b| b.host_of(*slot));
                let number = *number_of.entry(host).or_insert_with(|| {
                    hosts.push(Host::default());
                    hosts.len() - 1
                });
                hosts[number].0.push(*slot);
            }
        }
        let order = hosts.iter().enumerate().map(|(number, host)| (host.0.len(), number)).collect();
        Ground { hosts, order, budget, ranked: None }
    }

    /// Takes so many slots of one node that last through so many steps; where there are none, those that last
    /// longest.
    pub fn take(&mut self, space: &Space<'_>, seeker: Seeker<'_>, size: u32, steps: usize) -> Option<Node> {
        let size = size as usize;
        if self.budget.is_some() {
            return self.take_of_hosts(space, seeker, size, steps);
        }
        let mut best: Option<(usize, usize, Node)> = None;
        let by_harm = self.by_harm(&space.blocks.levels, size);
        let hosts = by_harm.into_iter().flat_map(|free| self.order.range((free, 0)..(free + 1, 0)));
        for (_, number) in hosts {
            let Some((lasts, node)) = self.hosts[*number].find(space, seeker, size, steps) else { continue };
            if best.as_ref().is_none_or(|(most, ..)| lasts > *most) {
                best = Some((lasts, *number, node));
            }
            if lasts >= steps {
                break;
            }
        }
        let (_, number, node) = best?;
        Some(self.remove(number, node))
    }

    /// The same where hosts have accounts. Seats that are alike come one after the other: hosts are ranked
    /// once for all of them.
    fn take_of_hosts(
        &mut self,
        space: &Space<'_>,
        seeker: Seeker<'_>,
        size: usize,
        steps: usize,
    ) -> Option<Node> {
        let alike = (seeker.job.id, size, steps);
        let mut ranked = match self.ranked.take() {
            Some((of, ranked)) if of == alike => ranked,
            _ => (0..self.hosts.len())
                .filter_map(|n| Some((self.rank(space, seeker, size, steps, n)?, n)))
                .collect(),
        };
        let first = ranked.pop_first();
        let node = first.and_then(|(_, number)| {
            let (_, node) = self.hosts[number].find(space, seeker, size, steps)?;
            if let (Some(budget), Some(taking)) = (&mut self.budget, seeker.taking(space, &node)) {
                budget.take(budget.host_of(node[0]), taking);
            }
            let node = self.remove(number, node);
            ranked.extend(self.rank(space, seeker, size, steps, number).map(|rank| (rank, number)));
            Some(node)
        });
        self.ranked = Some((alike, ranked));
        node
    }

    /// How good a host is for a seat; `None` where there is no room.
    fn rank(
        &self,
        space: &Space<'_>,
        seeker: Seeker<'_>,
        size: usize,
        steps: usize,
        number: usize,
    ) -> Option<Rank> {
        let (budget, host) = (self.budget.as_ref()?, &self.hosts[number]);
        let (lasts, node) = host.find(space, seeker, size, steps)?;
        let taking = seeker.taking(space, &node);
        let at = budget.host_of(node[0]);
        let lasts = taking.map_or(lasts, |taking| lasts.min(budget.fits(at, taking)));
        let harm = harm(space, budget, at, host.0.len(), (size, taking, &node));
        (lasts > 0).then_some((std::cmp::Reverse(lasts), harm))
    }

    /// Takes these slots of a host.
    fn remove(&mut self, number: usize, mut node: Node) -> Node {
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
    fn by_harm(&self, levels: &[Level], size: usize) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        while let Some((free, _)) = self.order.range((found.last().map_or(size, |free| free + 1), 0)..).next()
        {
            found.push(*free);
        }
        found.sort_by_key(|free| (broken(levels, size, *free, size), *free));
        found
    }
}

/// What seats are alike that have this in common: the job, the number of places and that of steps.
type Alike = (JobId, usize, usize);

/// How good a host is for a worker, the better the less: through how many steps it lasts, then what it
/// breaks up, then how many places are left.
type Rank = (std::cmp::Reverse<usize>, (usize, usize));

/// How many places of blocks larger than `size` are lost where `takes` of the free ones go.
fn broken(levels: &[Level], size: usize, free: usize, takes: usize) -> usize {
    let larger = levels.iter().map(|level| *level as usize).filter(|level| *level > size);
    larger.map(|d| d * (free / d - free.saturating_sub(takes) / d)).sum()
}

/// What a worker of `size` places breaks up on a host with so many free places, and how many of these have
/// their share left.
fn harm(
    space: &Space<'_>,
    budget: &Budget<'_>,
    host: usize,
    free: usize,
    (size, taking, node): (usize, Option<Taking>, &Node),
) -> (usize, usize) {
    let levels = &space.blocks.levels;
    let one = node.first().and_then(|slot| space.slots[*slot].gap.share).map(|share| share.own);
    let (Some(taking), Some(own)) = (taking, one) else { return (broken(levels, size, free, size), free) };
    let makes = |left: u64, own: u64| left.checked_div(own).unwrap_or(u64::MAX);
    let shares = |left: CpuMemory| {
        let least = makes(left.cpus.into(), own.cpus.into()).min(makes(left.memory_mib, own.memory_mib));
        usize::try_from(least).unwrap_or(usize::MAX)
    };
    let left = budget.left(host);
    let (now, then) = (shares(left).min(free), shares(left.saturating_sub(taking.takes)).min(free - size));
    // Places without their share are lost to all but those who need less.
    let lost = (now - then.min(now)).saturating_sub(size);
    (lost + broken(levels, size, now, now - then.min(now)), now)
}

impl Host {
    /// The first to end of those that last through `steps`, else the last to end; and how many steps all of
    /// them last through, at most `steps`.
    fn find(
        &self,
        space: &Space<'_>,
        seeker: Seeker<'_>,
        size: usize,
        steps: usize,
    ) -> Option<(usize, Node)> {
        let fits = |slot: &&usize| {
            let slot = &space.slots[**slot];
            slot.node_type == seeker.spec.node_type && seeker.may_sit(slot)
        };
        let usable: Vec<usize> = self.0.iter().filter(fits).copied().collect();
        let from = usable.len().checked_sub(size)?;
        let enough = usable.iter().position(|slot| space.slots[*slot].lasts >= steps).unwrap_or(from);
        let node = usable[enough.min(from)..][..size].to_vec();
        let lasts = node.iter().map(|slot| space.slots[*slot].lasts).min().unwrap_or(0);
        Some((lasts.min(steps), node))
    }
}
