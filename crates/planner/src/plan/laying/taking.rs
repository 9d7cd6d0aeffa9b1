//! What a worker is to take of its host's CPUs and memory.

use crate::plan::space::{
    decision::Space,
    spec::Spec,
    worker::{Worker, needs_of},
};
use infill_model::{CpuMemory, MalleableJob};

/// What a worker is to take, and what its places come with or it has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taking {
    /// What it takes.
    pub takes: CpuMemory,
    /// What nobody else counts on.
    pub backed: CpuMemory,
}

impl Taking {
    /// Of a new worker of an option's plan on these places.
    pub fn fresh(space: &Space<'_>, job: &MalleableJob, spec: &Spec, worker: &Worker) -> Taking {
        let needs = needs_of(job, &space.types[spec.node_type], &spec.exec_plan);
        Taking { takes: worker.takes(needs), backed: worker.own }
    }

    /// Of a worker that stays there.
    pub fn kept(space: &Space<'_>, job: &MalleableJob, spec: &Spec, worker: &Worker) -> Taking {
        let needs = needs_of(job, &space.types[spec.node_type], &spec.exec_plan);
        Taking { takes: worker.keeps(needs), backed: worker.backed() }
    }

    /// Whether it is more.
    pub fn is_more(&self) -> bool {
        !self.takes.is_within(self.backed)
    }
}
