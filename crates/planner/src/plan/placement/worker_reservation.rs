//! What a worker is to take of its host's CPUs and memory.

use crate::plan::space::{
    decision::DecisionSpace,
    job_option::JobOption,
    worker_places::{WorkerPlaces, plan_needs},
};
use infill_model::{CpuMemory, MalleableJob};

/// What a worker is to take, and what its places come with or it has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerReservation {
    /// What it takes.
    pub takes: CpuMemory,
    /// What nobody else counts on.
    pub backed: CpuMemory,
}

impl WorkerReservation {
    /// Of a new worker of an option's plan on these places.
    pub fn for_new_worker(
        space: &DecisionSpace<'_>,
        job: &MalleableJob,
        spec: &JobOption,
        worker: &WorkerPlaces,
    ) -> WorkerReservation {
        let needs = plan_needs(job, &space.types[spec.node_type], &spec.exec_plan);
        WorkerReservation { takes: worker.share_for_new(needs), backed: worker.own }
    }

    /// Of a worker that stays there.
    pub fn for_kept_worker(
        space: &DecisionSpace<'_>,
        job: &MalleableJob,
        spec: &JobOption,
        worker: &WorkerPlaces,
    ) -> WorkerReservation {
        let needs = plan_needs(job, &space.types[spec.node_type], &spec.exec_plan);
        WorkerReservation { takes: worker.share_for_kept(needs), backed: worker.backed_share() }
    }

    /// Whether it is more.
    pub fn exceeds_backed(&self) -> bool {
        !self.takes.is_within(self.backed)
    }
}
