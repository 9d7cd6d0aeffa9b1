//! Idle nodes that are left alone, so that Slurm can switch them off.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use infill_model::{GapRefusal, GapSet, NodeName, WindowEnd};

/// The idle nodes that are left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleReserve {
    /// The nodes that were left alone in the last round, and have been idle since.
    pub nodes: FxHashSet<NodeName>,
}

impl IdleReserve {
    /// The reserve that a search for gaps has left alone.
    pub fn from_gaps(found: &GapSet) -> IdleReserve {
        let kept = found.refused.iter().filter(|(_, refusal)| matches!(refusal, GapRefusal::KeptIdle { .. }));
        IdleReserve { nodes: kept.map(|(node, _)| node.clone()).collect() }
    }

    /// Refuses free gaps, so that `nodes` idle nodes are left alone, the `off` switched-off ones included.
    /// The order: nodes that sleep, nodes that were left alone before, nodes without a planned end. Among
    /// these, those that have been idle for longest come first. Nodes that a job holds are never refused.
    pub(super) fn reserve_nodes(
        &self,
        found: &mut GapSet,
        asleep: &FxHashSet<NodeName>,
        off: usize,
        nodes: usize,
    ) {
        let spare = nodes.saturating_sub(off);
        if spare == 0 {
            return;
        }
        let free = found.gaps.iter().filter(|gap| gap.holder.is_none());
        let mut ranked: Vec<_> = free
            .map(|gap| {
                let sleeps = asleep.contains(&gap.node);
                let was_reserved = self.nodes.contains(&gap.node);
                let is_planned = gap.end != WindowEnd::Unknown;
                (Reverse(sleeps), Reverse(was_reserved), is_planned, gap.since, gap.node.clone())
            })
            .collect();
        ranked.sort();
        let chosen: FxHashSet<NodeName> = ranked.into_iter().take(spare).map(|rank| rank.4).collect();
        let refused = &mut found.refused;
        found.gaps.retain(|gap| {
            let stays = !chosen.contains(&gap.node);
            if !stays {
                refused.push((gap.node.clone(), GapRefusal::KeptIdle { nodes }));
            }
            stays
        });
    }
}
