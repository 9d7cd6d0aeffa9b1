//! CPUs and memory that a plan reserves for a worker on its host.

use crate::plan::space::{
    decision::DecisionSpace,
    job_option::JobOption,
    worker_places::{WorkerPlaces, plan_needs},
};
use infill_model::{CpuMemory, MalleableJob};

/// CPUs and memory that a plan reserves for a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerReservation {
    /// What the worker takes.
    pub takes: CpuMemory,
    /// What its places come with, or what it has. No other worker may use this.
    pub backed: CpuMemory,
}

impl WorkerReservation {
    /// For a new worker with an option's plan on these places.
    pub fn for_new_worker(
        space: &DecisionSpace<'_>,
        job: &MalleableJob,
        spec: &JobOption,
        worker: &WorkerPlaces,
    ) -> WorkerReservation {
        let needs = plan_needs(job, &space.types[spec.node_type], &spec.exec_plan);
        WorkerReservation { takes: worker.share_for_new(needs), backed: worker.own }
    }

    /// For a worker that its job keeps on these places.
    pub fn for_kept_worker(
        space: &DecisionSpace<'_>,
        job: &MalleableJob,
        spec: &JobOption,
        worker: &WorkerPlaces,
    ) -> WorkerReservation {
        let needs = plan_needs(job, &space.types[spec.node_type], &spec.exec_plan);
        WorkerReservation { takes: worker.share_for_kept(needs), backed: worker.backed_share() }
    }

    /// Whether the worker takes more than its places come with and than it has.
    pub fn exceeds_backed(&self) -> bool {
        !self.takes.is_within(self.backed)
    }
}
