//! The parts of a malleable job: agents that are here, and wings that were ordered.

use infill_api::AgentDialect;
use infill_model::{CommandExit, JobId, NodeName, UnixTime, WingOrder};

use super::settings::LifecycleSettings;

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
    /// Whether there was one since the roll was called, or since a change began that cannot wait.
    pub answered: bool,
    /// When it last told of progress in the present generation.
    pub progress_at: Option<UnixTime>,
    /// How the command of the present generation ended here, once it has.
    pub stopped: Option<CommandExit>,
    /// Whether Slurm wants the node now.
    pub leaving: bool,
    /// How far a command has come here that stays alive over changes.
    pub live: LiveState,
    /// How long it stood still for the change that is under way, seconds, once it said so.
    pub stood_secs: Option<f64>,
    /// When it said that a step failed, perhaps because a member was lost.
    pub doubt: Option<UnixTime>,
    /// What it understands.
    pub dialect: AgentDialect,
}

/// How far a command that stays alive over changes has come on a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveState {
    /// It is stopped at a change, as far as anybody knows.
    #[default]
    No,
    /// It is no member, and warms up.
    Warming {
        /// Since when.
        since: UnixTime,
    },
    /// It waits for a place.
    Ready {
        /// Since when.
        since: UnixTime,
    },
    /// It has its place in this generation.
    In(u64),
}

impl LiveState {
    /// Blames nobody for a pause of the daemon.
    pub(super) fn restart_clock(&mut self, now: UnixTime) {
        if let LiveState::Warming { since } | LiveState::Ready { since } = self {
            *since = now;
        }
    }

    /// Moves its time by these seconds.
    pub(super) fn shift_times(&mut self, secs: f64) {
        if let LiveState::Warming { since } | LiveState::Ready { since } = self {
            *since = since.plus_secs(secs);
        }
    }
}

impl Worker {
    /// Seconds without a sign of life.
    pub(crate) fn silent_secs(&self, now: UnixTime) -> f64 {
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
    pub fn is_late(&self, settings: &LifecycleSettings, now: UnixTime) -> bool {
        let starts = self.seen_running || self.configuring;
        let patience = if starts { settings.prolog_secs } else { settings.wing_start_secs };
        now.secs_since(self.ordered_at) > patience
    }
}
