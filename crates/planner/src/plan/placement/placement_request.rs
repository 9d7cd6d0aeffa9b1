//! A job that needs nodes, and the slots of one of its nodes.

use super::worker_reservation::WorkerReservation;
use crate::plan::space::{
    decision::DecisionSpace,
    job_option::{JobOption, OptionFamily},
    slots::{self, NodeSlot},
};
use infill_model::MalleableJob;

/// The slots of one node of a job; several where its nodes are blocks.
pub(crate) type NodeSlots = Vec<usize>;

/// A job that needs nodes, with its option.
#[derive(Clone, Copy)]
pub(crate) struct PlacementRequest<'a> {
    /// The job that needs nodes.
    pub job: &'a MalleableJob,
    /// Its option in the first step.
    pub spec: &'a JobOption,
    /// Whether it must do without what it needs beyond the share of its places, because its hosts lack it.
    pub denied: bool,
}

impl PlacementRequest<'_> {
    /// What a worker of the job takes on these slots; `None` where that is not counted.
    pub(crate) fn worker_reservation(
        self,
        space: &DecisionSpace<'_>,
        node: &NodeSlots,
    ) -> Option<WorkerReservation> {
        let worker = space.worker_on(node)?;
        // A worker that the job gave up and takes again is still there.
        let stays = space.are_held(self.job, node);
        if self.denied {
            return Some(WorkerReservation { takes: worker.backed_share(), backed: worker.backed_share() });
        }
        Some(if stays {
            WorkerReservation::for_kept_worker(space, self.job, self.spec, &worker)
        } else {
            WorkerReservation::for_new_worker(space, self.job, self.spec, &worker)
        })
    }

    /// Whether the job may take a free slot of its type that it does not keep.
    pub(crate) fn may_use_slot(self, slot: &NodeSlot<'_>) -> bool {
        let node = &slot.gap.node;
        // A job that starts elsewhere leaves its old lead's node: with that node it would not be a new start.
        let is_old_lead =
            self.spec.family == OptionFamily::Fresh
                && self.job.lead_node.as_ref().is_some_and(|lead| {
                    lead == node || (lead.is_block() && lead.single_places().contains(node))
                });
        // A block that it gives up is still occupied when the new one begins.
        let is_own = self.job.places_per_node > 1 && slot.gap.holder == Some(self.job.id);
        !is_old_lead && !is_own && !slots::job_excludes(self.job, node)
    }
}
