//! Counts the gaps that each job could use.

use infill_model::{GapSet, JobFacts};
use rustc_hash::FxHashMap;

/// Nodes or places that a job could use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UsableCount {
    /// Those on which it could be if no other job had them.
    pub all: u32,
    /// Those that no job holds.
    pub free: u32,
}

/// Counts the gaps that each job could use. Jobs with the same wishes share one count.
pub(super) struct UsableGaps<'g> {
    gaps: &'g GapSet,
    /// By the identity of the list of excluded nodes, and by whether the job runs on CPUs.
    counts: FxHashMap<(usize, bool), UsableCount>,
}

impl<'g> UsableGaps<'g> {
    pub(super) fn new(gaps: &'g GapSet) -> UsableGaps<'g> {
        UsableGaps { gaps, counts: FxHashMap::default() }
    }

    /// The nodes or places that this job could use.
    pub(super) fn count_for(&mut self, facts: &JobFacts) -> UsableCount {
        let gaps = &self.gaps.gaps;
        let excluded = &facts.excluded;
        let on_cpus = facts.program.on_cpus;
        *self.counts.entry((excluded.list_id(), on_cpus)).or_insert_with(|| {
            let mut count = UsableCount::default();
            for gap in gaps {
                // Places with GPUs are for jobs that ask for GPUs, other places for the other jobs.
                let is_of_kind = !gap.node.is_place() || gap.node_type.has_gpus() != on_cpus;
                if is_of_kind && !excluded.contains(&gap.node) {
                    count.all += 1;
                    count.free += u32::from(gap.holder.is_none());
                }
            }
            count
        })
    }
}
