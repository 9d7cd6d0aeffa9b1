//! What Slurm shows of one malleable job.

use infill_model::{Job, UnixTime};

/// What Slurm shows of one malleable job in one trusted snapshot.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    /// The lead, if Slurm still knows it.
    pub lead: Option<&'a Job>,
    /// Jobs of the same user in the malleable partition that call themselves wings of this lead, and have not
    /// ended.
    pub wings: Vec<&'a Job>,
    /// When the reading began, by our own clock: what happened since is not in it.
    pub read_at: UnixTime,
}
