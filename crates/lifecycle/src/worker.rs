//! The parts of a malleable job: its agents and its wings.

use infill_api::AgentDialect;
use infill_model::{CommandExit, GpuUse, JobId, NodeName, UnixTime, WingOrder};

use super::settings::LifecycleSettings;

/// The daemon's view of one worker: the agent of the lead or of a wing on one node, from its hello on.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerAgent {
    /// The Slurm job of the lead or wing in which the agent runs.
    pub slurm_job: JobId,
    /// Host name or IP address at which other nodes reach the agent.
    pub address: String,
    /// A port that was free at the agent's last report of one.
    pub port: u16,
    /// Time of the last sign of life.
    pub last_seen: UnixTime,
    /// Whether the agent gave a sign of life since the last roll call, or since the last urgent change began.
    pub answered: bool,
    /// When the agent last reported progress in the present generation.
    pub progress_at: Option<UnixTime>,
    /// How the command of the present generation ended here; `None` before its end.
    pub stopped: Option<CommandExit>,
    /// Whether Slurm takes the node back now.
    pub leaving: bool,
    /// State of a command that stays alive over changes.
    pub live: LiveState,
    /// How long the command stood still for the present change, seconds; `None` before its report.
    pub standstill_secs: Option<f64>,
    /// When the agent reported a failed step. A lost member may be the cause.
    pub step_failed_at: Option<UnixTime>,
    /// The messages that the agent understands.
    pub dialect: AgentDialect,
    /// How many of the GPUs that the job holds here the command uses; `None` before the first report.
    pub gpus: Option<GpuUse>,
}

/// State of a command that stays alive over changes, on one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveState {
    /// The command is not known to stay alive: changes stop it.
    #[default]
    No,
    /// The command is a newcomer and warms up.
    Warming {
        /// When it began to warm up.
        since: UnixTime,
    },
    /// The command is ready and waits to join a generation.
    Ready {
        /// Since when it is ready.
        since: UnixTime,
    },
    /// The command is a member of this generation.
    Member(u64),
}

impl LiveState {
    /// Restarts waiting times after a pause of the daemon, which is not the command's fault.
    pub(super) fn restart_clock(&mut self, now: UnixTime) {
        if let LiveState::Warming { since } | LiveState::Ready { since } = self {
            *since = now;
        }
    }

    /// Moves the time by `secs`.
    pub(super) fn shift_times(&mut self, secs: f64) {
        if let LiveState::Warming { since } | LiveState::Ready { since } = self {
            *since = since.plus_secs(secs);
        }
    }
}

impl WorkerAgent {
    /// Seconds since the last sign of life.
    pub(crate) fn silent_secs(&self, now: UnixTime) -> f64 {
        now.secs_since(self.last_seen)
    }
}

/// A wing that was ordered.
#[derive(Clone, Debug, PartialEq)]
pub struct Wing {
    /// The order as the lead's agent receives it.
    pub order: WingOrder,
    /// When infill ordered the wing.
    pub ordered_at: UnixTime,
    /// The wing's Slurm job; `None` before its submission.
    pub job: Option<JobId>,
    /// The node that runs the wing's batch script; `None` if unknown. The wing cannot shrink off this node.
    pub batch_host: Option<NodeName>,
    /// Whether a snapshot has shown the wing running.
    pub seen_running: bool,
    /// Whether Slurm was still preparing the wing's nodes in the last snapshot.
    pub configuring: bool,
}

impl Wing {
    /// Whether the wing's agents should have said hello by now. A wing that runs may be in its prolog, which
    /// takes longer. After that it may prepare its nodes for `setup_secs`.
    pub fn is_late(&self, settings: &LifecycleSettings, setup_secs: u32, now: UnixTime) -> bool {
        let has_started = self.seen_running || self.configuring;
        let max_secs =
            if has_started { settings.prolog_secs + f64::from(setup_secs) } else { settings.wing_start_secs };
        now.secs_since(self.ordered_at) > max_secs
    }
}
