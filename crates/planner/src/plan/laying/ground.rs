//! Free places by node, for blocks: each goes where it breaks up the fewest larger ones that would fit.

use std::collections::BTreeSet;

use super::seeker::{Node, Seeker};
use crate::plan::space::{decision::Space, resource::Level};

/// The free slots on one node: those that last through the fewest steps first, of these the most stable.
#[derive(Clone, Debug, Default)]
struct Host(Vec<usize>);

/// The free slots on which jobs may start, by node.
#[derive(Debug)]
pub(crate) struct Ground {
    hosts: Vec<Host>,
    /// Number of free slots of each node that has any, and the node; of equal ones as the slots of a node.
    order: BTreeSet<(usize, usize)>,
}

impl Ground {
    /// All that are not taken.
    pub fn new(space: &Space<'_>, taken: &[bool]) -> Ground {
        let mut hosts: Vec<Host> = Vec::new();
        let mut number_of = rustc_hash::FxHashMap::default();
        let mut slots = space.by_stability().to_vec();
        slots.sort_by_key(|slot| space.slots[*slot].lasts);
        for slot in &slots {
            if !taken[*slot] && space.slots[*slot].startable {
                let number = *number_of.entry(space.blocks.host[*slot]).or_insert_with(|| {
                    hosts.push(Host::default());
                    hosts.len() - 1
                });
                hosts[number].0.push(*slot);
            }
        }
        let order = hosts.iter().enumerate().map(|(number, host)| (host.0.len(), number)).collect();
        Ground { hosts, order }
    }

    /// Takes so many slots of one node that last through so many steps; where there are none, those that last
    /// longest.
    pub fn take(&mut self, space: &Space<'_>, seeker: Seeker<'_>, size: u32, steps: usize) -> Option<Node> {
        let size = size as usize;
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
        let (_, number, mut node) = best?;
        let host = &mut self.hosts[number].0;
        self.order.remove(&(host.len(), number));
        host.retain(|slot| !node.contains(slot));
        if !host.is_empty() {
            self.order.insert((host.len(), number));
        }
        node.sort_unstable();
        Some(node)
    }

    /// The numbers of free slots that nodes have, at least `size`: first those where `size` of them break up
    /// the fewest slots that larger blocks could have, then the fewest.
    fn by_harm(&self, levels: &[Level], size: usize) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        while let Some((free, _)) = self.order.range((found.last().map_or(size, |free| free + 1), 0)..).next()
        {
            found.push(*free);
        }
        let larger = || levels.iter().map(|level| *level as usize).filter(|level| *level > size);
        let harm = |free: usize| larger().map(|d| d * (free / d - (free - size) / d)).sum::<usize>();
        found.sort_by_key(|free| (harm(*free), *free));
        found
    }
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
