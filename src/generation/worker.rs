//! The parts of a malleable job: agents that are here, and wings that were ordered.

use crate::model::{Exit, JobId, NodeName, UnixTime, WingOrder};

use super::settings::Settings;

/// An agent that has said hello.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// The Slurm job (lead or wing) in which it runs.
    pub slurm_job: JobId,
    /// Host at which other nodes reach it.
    pub address: String,
    /// A port that was free when it last spoke.
    pub port: u16,
    /// Last sign of life.
    pub last_seen: UnixTime,
    /// When it last told of progress in the present generation.
    pub progress_at: Option<UnixTime>,
    /// How the command of the present generation ended here, once it has.
    pub stopped: Option<Exit>,
    /// Whether Slurm wants the node now.
    pub leaving: bool,
}

impl Worker {
    /// Seconds without a sign of life.
    pub fn silent_secs(&self, now: UnixTime) -> f64 {
        now.secs_since(self.last_seen)
    }
}

/// A wing that was ordered.
#[derive(Clone, Debug, PartialEq)]
pub struct Wing {
    /// The order as the lead's agent gets it.
    pub order: WingOrder,
    /// When it was ordered.
    pub ordered_at: UnixTime,
    /// Slurm's job id, once submitted.
    pub job: Option<JobId>,
    /// The node on which its batch script runs, once known: the wing cannot shrink off it.
    pub batch_host: Option<NodeName>,
    /// Whether Slurm has shown it running.
    pub seen_running: bool,
    /// Whether its nodes were still being prepared for it when Slurm last showed it.
    pub configuring: bool,
}

impl Wing {
    /// Whether its agents should have said hello by now. What runs may be in its prolog.
    pub fn is_late(&self, settings: &Settings, now: UnixTime) -> bool {
        let starts = self.seen_running || self.configuring;
        let patience = if starts { settings.prolog_secs } else { settings.wing_start_secs };
        now.secs_since(self.ordered_at) > patience
    }
}
