//! What Slurm shows of one malleable job.

use infill_model::{Job, JobId, UnixTime};

/// What Slurm shows of one malleable job in one trusted snapshot.
#[derive(Clone, Debug, Default)]
pub struct ObservedJob<'a> {
    /// The lead, if Slurm still knows it.
    pub lead: Option<&'a Job>,
    /// Jobs of the same user in the malleable partition that call themselves wings of this lead, and have not
    /// ended.
    pub wings: Vec<&'a Job>,
    /// Such jobs that Slurm has ended because they used more memory than they had.
    pub out_of_memory: Vec<JobId>,
    /// When the reading began, by our own clock: what happened since is not in it.
    pub read_at: UnixTime,
    /// Whether Slurm will start the lead, where it was released to a node and waits.
    pub start: Option<StartConditions>,
}

/// What shows whether Slurm will start a lead that waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartConditions {
    /// Whether its node is idle.
    pub is_idle: bool,
    /// From when on backfill keeps the node for a main job, if it does and that is known.
    pub kept_from: Option<UnixTime>,
    /// When backfill began its last look at the whole queue, if that has ended and nothing was left out.
    pub looked_at: Option<UnixTime>,
}
