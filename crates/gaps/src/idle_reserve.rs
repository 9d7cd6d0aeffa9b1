//! Idle nodes that are left alone, so that Slurm can switch them off.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use infill_model::{Gap, GapRefusal, GapSet, NodeName, WindowEnd};

/// Which nodes are left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleReserve {
    /// Those that were left alone at the last look: they have been idle since.
    pub before: FxHashSet<NodeName>,
}

impl IdleReserve {
    /// What gaps that were found say of it.
    pub fn from_gaps(found: &GapSet) -> IdleReserve {
        let kept = found.refused.iter().filter(|(_, why)| matches!(why, GapRefusal::Kept { .. }));
        IdleReserve { before: kept.map(|(node, _)| node.clone()).collect() }
    }

    /// Refuses as many gaps that nobody holds as shall be left alone, less those that are switched `off`:
    /// first those that sleep, then those that were left alone before,
    /// then those that nothing is planned on, and of these the ones that were idle for longest. Nothing is
    /// taken from a job.
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
        let rank = |gap: &Gap| {
            let planned = gap.end != WindowEnd::Unknown;
            let sleeps = asleep.contains(&gap.node);
            let stays = self.before.contains(&gap.node);
            (Reverse(sleeps), Reverse(stays), planned, gap.since, gap.node.clone())
        };
        let mut free: Vec<_> = found.gaps.iter().filter(|g| g.holder.is_none()).map(rank).collect();
        free.sort();
        let chosen: FxHashSet<NodeName> = free.into_iter().take(spare).map(|rank| rank.4).collect();
        let refused = &mut found.refused;
        found.gaps.retain(|gap| {
            let stays = !chosen.contains(&gap.node);
            if !stays {
                refused.push((gap.node.clone(), GapRefusal::Kept { nodes }));
            }
            stays
        });
    }
}
