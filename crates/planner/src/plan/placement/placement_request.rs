//! A job that looks for nodes, and what a node of it is.

use super::worker_reservation::WorkerReservation;
use crate::plan::space::{
    decision::DecisionSpace,
    job_option::{JobOption, OptionFamily},
    slots::{self, NodeSlot},
};
use infill_model::{MalleableJob, NodeName};

/// The slots of one node of a job: several where its nodes are blocks.
pub(crate) type NodeSlots = Vec<usize>;

/// A job that looks for nodes, and what it does with them.
#[derive(Clone, Copy)]
pub(crate) struct PlacementRequest<'a> {
    /// The job.
    pub job: &'a MalleableJob,
    /// Its option in the first step.
    pub spec: &'a JobOption,
    /// Whether it does without what it needs beyond the share of its places: its hosts do not have it.
    pub denied: bool,
}

impl PlacementRequest<'_> {
    /// What a worker of it takes on these slots; `None` where that is not counted.
    pub(crate) fn worker_reservation(
        self,
        space: &DecisionSpace<'_>,
        node: &NodeSlots,
    ) -> Option<WorkerReservation> {
        let worker = space.worker_on(node)?;
        // One that it gave up and takes again is still there.
        let stays = space.are_held(self.job, node);
        Some(match (self.denied, stays) {
            (true, _) => WorkerReservation { takes: worker.backed_share(), backed: worker.backed_share() },
            (false, true) => WorkerReservation::for_kept_worker(space, self.job, self.spec, &worker),
            (false, false) => WorkerReservation::for_new_worker(space, self.job, self.spec, &worker),
        })
    }

    /// Whether the job may take a free slot of its type that it does not keep.
    pub(crate) fn may_use_slot(self, slot: &NodeSlot<'_>) -> bool {
        let node = &slot.gap.node;
        // A job that starts anew elsewhere leaves its old lead's node: with that node it would be no new
        // start.
        let is_lead =
            |lead: &NodeName| lead == node || (lead.is_block() && lead.single_places().contains(node));
        let old_lead =
            self.spec.family == OptionFamily::Fresh && self.job.lead_node.as_ref().is_some_and(is_lead);
        // A block that it gives up is still there when the new one begins.
        let own = self.job.block > 1 && slot.gap.holder == Some(self.job.id);
        !old_lead && !own && !slots::job_excludes(self.job, node)
    }
}
