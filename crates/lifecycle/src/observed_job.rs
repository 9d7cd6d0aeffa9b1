//! One malleable job as a snapshot shows it.

use infill_model::{Job, JobId, UnixTime};

/// One malleable job as a trusted snapshot shows it.
#[derive(Clone, Debug, Default)]
pub struct ObservedJob<'a> {
    /// The lead; `None` if Slurm no longer has it.
    pub lead: Option<&'a Job>,
    /// Wings that have not ended: jobs of the same user in the malleable partition whose comments name this
    /// lead.
    pub wings: Vec<&'a Job>,
    /// Wings that Slurm has ended because they used too much memory.
    pub out_of_memory: Vec<JobId>,
    /// When the snapshot began, by the daemon's clock. It does not show later changes.
    pub read_at: UnixTime,
    /// Signs of whether Slurm will start the lead; set if the lead was launched on a node and waits.
    pub start: Option<StartConditions>,
}

/// Signs of whether Slurm will start a lead that waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartConditions {
    /// Whether the lead's node is idle.
    pub is_idle: bool,
    /// When a reservation of the node by backfill, for a main job, begins; `None` if none is known.
    pub kept_from: Option<UnixTime>,
    /// When backfill began its last cycle, if that cycle has ended and covered the whole queue.
    pub looked_at: Option<UnixTime>,
}
