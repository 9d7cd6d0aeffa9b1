//! What a worker does while the daemon is away, and when the job's time is nearly up.

use std::time::Duration;

use tokio::time::Instant;

use infill_model::{CommandExit, GenerationMember};

use super::super::time_limit::{self, DAEMON_SILENCE, LimitAction, TimeLimit};
use super::super::train_alone::{self, AloneState, AloneTerms};
use super::super::worker_input::{SilenceGuard, WorkerInput};
use super::super::yield_to_main;
use super::leaving::LeaveReason;
use super::{StartupTimes, Worker, WorkerConfig};

/// Time that is kept free at the end of a job, for Slurm to requeue it: this, or half of the remaining time.
const REQUEUE_TIME: Duration = Duration::from_secs(5);

/// What a worker does about a daemon that is away.
pub(super) struct DaemonAbsence {
    /// Whether the worker trains alone.
    pub(super) alone: AloneState,
    /// Failures of the command that trained alone.
    failures: u32,
    /// The job's time limit.
    pub(super) limit: TimeLimit,
    /// When the worker started, until it has checked whether a main job waits for its node.
    unchecked_since: Option<Instant>,
    /// The length of the absence at which the worker next logs that it waits.
    next_warning: Duration,
}

impl DaemonAbsence {
    /// The state of a worker that first logs that it waits after `patience`, and whose job has this limit.
    pub(super) fn new(patience: Duration, limit: TimeLimit) -> DaemonAbsence {
        DaemonAbsence {
            alone: AloneState::No,
            failures: 0,
            limit,
            unchecked_since: Some(Instant::now()),
            next_warning: patience,
        }
    }
}

impl Worker {
    /// Starts the command alone, if preparing that gave a guard and nothing else has happened meanwhile.
    pub(super) fn begin_alone(&mut self, guard: Option<SilenceGuard>) {
        let Some(guard) = guard.filter(|_| self.running.is_none() && !self.is_leaving()) else {
            self.absence.alone = AloneState::No;
            return;
        };
        self.absence.alone = AloneState::Yes(guard);
        self.start_command(&self.alone_member(), false);
    }

    fn alone_member(&self) -> GenerationMember {
        let WorkerConfig { node, own, common, .. } = &self.config;
        train_alone::alone_member(node, own, common.first_plan())
    }

    /// Decides what follows the end of the command that trained alone. The daemon gets no report of it.
    pub(super) fn handle_alone_end(&mut self, exit: CommandExit) {
        self.startup = StartupTimes { stopped: None, idle_since: Instant::now(), next: None };
        self.absence.failures += u32::from(!exit.asked && exit.code != 0);
        let max_failures = self.config.alone.unwrap_or_default();
        match exit {
            CommandExit { asked: true, .. } => {
                // Dropping the guard lets requests to the daemon through again.
                self.absence.alone = AloneState::No;
                self.finish_leave();
                self.apply_directive(false);
            }
            CommandExit { code: 0, .. } => self.exit = Some(0),
            CommandExit { code, .. } if self.absence.failures > max_failures => self.exit = Some(code),
            CommandExit { .. } => self.start_command(&self.alone_member(), false),
        }
    }

    /// Checks once whether a main job waits, if the worker has just started and got no directive. A main job
    /// blocks no other, and does not check.
    pub(super) fn check_main_queue(&mut self) {
        let Some(since) = self.absence.unchecked_since else { return };
        let partition = self.config.partition.clone().filter(|_| self.config.own.is_empty());
        let Some(partition) = partition.filter(|_| self.assignment.is_none() && self.ended.is_none()) else {
            self.absence.unchecked_since = None;
            return;
        };
        if since.elapsed() < yield_to_main::FIRST_DIRECTIVE_WAIT {
            return;
        }
        self.absence.unchecked_since = None;
        let link = self.link.clone();
        let programs = self.config.programs.clone();
        let events = self.events.0.clone();
        self.tasks.spawn(async move {
            if yield_to_main::blocks_main_job(&link, &programs, &partition).await {
                // When the worker has ended, it does not receive this any more.
                events.send(WorkerInput::InTheWay).await.ok();
            }
        });
    }

    /// Gives the node back if there is nothing to do on it.
    pub(super) fn yield_node(&mut self) {
        if self.running.is_none() && self.assignment.is_none() && !self.is_leaving() {
            tracing::info!("no directive from the daemon, and a main job waits: giving the node back");
            self.begin_leave(LeaveReason::ForOthers, Duration::ZERO);
        }
    }

    /// Reacts when nothing runs and the daemon stays away longer than `patience`. A wing gives its node back;
    /// a lead waits, or trains alone.
    pub(super) fn handle_absence(&mut self) {
        let away = self.link.away_duration();
        let patience = self.config.patience;
        if away <= patience {
            self.absence.next_warning = patience;
            return;
        }
        match &self.ended {
            _ if !self.is_lead() => self.exit = Some(0),
            // Ranks that save together all leave if one of them is asked to. So a save is not the end of the
            // training.
            Some((_, _, exit)) if !exit.asked && exit.code == 0 && self.tally.saved_at().is_none() => {
                self.exit = Some(0);
            }
            // A failure may be the command's own, or the consequence of a lost worker.
            _ if self.config.alone.is_some() => {
                if matches!(self.absence.alone, AloneState::No) {
                    self.prepare_alone(away);
                }
                return;
            }
            _ if away > self.absence.next_warning => {
                tracing::warn!(away_secs = away.as_secs(), "the daemon stays away: waiting for it");
                self.absence.next_warning = away * 2;
                return;
            }
            _ => return,
        }
        tracing::warn!(code = self.exit, "the daemon stays away; leaving");
    }

    /// Prepares to train alone. `away`: for how long the daemon has been away.
    fn prepare_alone(&mut self, away: Duration) {
        // A main job keeps its own nodes even if the daemon refuses it.
        let for_good = !self.config.own.is_empty() && self.link.is_refused();
        if for_good {
            tracing::warn!("the daemon refuses this job: it trains on its own nodes");
        } else {
            tracing::warn!(away_secs = away.as_secs(), "the daemon stays away: training alone");
        }
        let terms = AloneTerms { patience: self.config.patience, for_good };
        self.absence.alone = AloneState::Preparing;
        let link = self.link.clone();
        let events = self.events.0.clone();
        let programs = self.config.programs.clone();
        self.tasks.spawn(train_alone::prepare_alone(link, programs, self.config.job, terms, events));
    }

    /// Makes sure that the job does not reach its time limit. While the daemon is there, it calls a wing back
    /// in time itself.
    pub(super) fn watch_limit(&mut self) {
        let away = self.link.away_duration();
        let now = Instant::now();
        // The limit of a main job is its owner's choice.
        if (!self.is_lead() && away < DAEMON_SILENCE) || !self.config.own.is_empty() {
            return;
        }
        match self.absence.limit.next_action(self.config.grace, away, now) {
            LimitAction::Nothing => {}
            LimitAction::Look => {
                self.absence.limit.record_query(now);
                let query = time_limit::query_time_left(self.config.programs.clone(), self.config.job);
                let events = self.events.0.clone();
                // When the worker has ended, it does not receive this any more.
                self.tasks.spawn(async move {
                    events.send(WorkerInput::Looked(query.await)).await.unwrap_or_default()
                });
            }
            LimitAction::Leave => {
                let left = self.absence.limit.remaining_time(now).unwrap_or_default();
                tracing::warn!(
                    left_secs = left.as_secs(),
                    "the job's time limit is near: saving and leaving"
                );
                let grace = self.config.grace.min(left - REQUEUE_TIME.min(left / 2));
                self.begin_leave(LeaveReason::ForLimit, grace);
            }
        }
    }
}
