//! What a worker does without the daemon, and at the end of its time.

use std::time::Duration;

use tokio::time::Instant;

use infill_model::{CommandExit, GenerationMember};

use super::super::time_limit::{self, DAEMON_SILENCE, LimitAction, TimeLimit};
use super::super::train_alone::{self, AloneState, AloneTerms};
use super::super::worker_event::{SilenceGuard, WorkerEvent};
use super::super::yield_to_main;
use super::leaving::LeaveReason;
use super::{StartupTimes, Worker, WorkerConfig};

/// What is kept free at the end of a job, for Slurm to requeue it: so much, or half of what is left.
const REQUEUE_TIME: Duration = Duration::from_secs(5);

/// What is done about a daemon that is away.
pub(super) struct DaemonAbsence {
    /// Training alone.
    pub(super) alone: AloneState,
    /// Failures of the command that trained alone.
    failures: u32,
    /// The end of the job's time.
    pub(super) limit: TimeLimit,
    /// When we began, until it was looked whether we are in the way.
    began: Option<Instant>,
    /// After how long an absence it is said (again) that we wait.
    next_word: Duration,
}

impl DaemonAbsence {
    /// Of a worker that says something after so long, and whose job has this limit.
    pub(super) fn new(patience: Duration, limit: TimeLimit) -> DaemonAbsence {
        DaemonAbsence {
            alone: AloneState::No,
            failures: 0,
            limit,
            began: Some(Instant::now()),
            next_word: patience,
        }
    }
}

impl Worker {
    pub(super) fn begin_alone(&mut self, solitude: Option<SilenceGuard>) {
        let solitude = solitude.filter(|_| self.running.is_none() && !self.is_leaving());
        let Some(solitude) = solitude else {
            self.absence.alone = AloneState::No;
            return;
        };
        self.absence.alone = AloneState::Yes(solitude);
        self.start_command(&self.alone_member(), false);
    }

    fn alone_member(&self) -> GenerationMember {
        let WorkerConfig { node, own, common, .. } = &self.config;
        train_alone::alone_member(node, own, common.first_plan())
    }

    /// The command that trained alone has ended. The daemon never hears of it.
    pub(super) fn handle_alone_end(&mut self, exit: CommandExit) {
        self.opening = StartupTimes { stopped: None, idle_since: Instant::now(), next: None };
        self.absence.failures += u32::from(!exit.asked && exit.code != 0);
        let most = self.config.alone.unwrap_or_default();
        match exit {
            CommandExit { asked: true, .. } => {
                // The door opens.
                self.absence.alone = AloneState::No;
                self.finish_leave();
                self.apply_directive(false);
            }
            CommandExit { code: 0, .. } => self.exit = Some(0),
            CommandExit { code, .. } if self.absence.failures > most => self.exit = Some(code),
            CommandExit { .. } => self.start_command(&self.alone_member(), false),
        }
    }

    /// Whoever has just begun and hears nothing looks once whether a main job waits. One of the main queue is
    /// in nobody's way.
    pub(super) fn check_main_queue(&mut self) {
        let Some(began) = self.absence.began else { return };
        let partition = self.config.partition.clone().filter(|_| self.config.own.is_empty());
        let Some(partition) = partition.filter(|_| self.assignment.is_none() && self.ended.is_none()) else {
            self.absence.began = None;
            return;
        };
        if began.elapsed() < yield_to_main::FIRST_DIRECTIVE_WAIT {
            return;
        }
        self.absence.began = None;
        let link = self.link.clone();
        let programs = self.config.programs.clone();
        let tell = self.news.0.clone();
        self.tasks.spawn(async move {
            if yield_to_main::blocks_main_job(&link, &programs, &partition).await {
                // A worker that has ended wants to know nothing more.
                tell.send(WorkerEvent::InTheWay).await.ok();
            }
        });
    }

    /// Gives the node back on which there is nothing to do.
    pub(super) fn yield_node(&mut self) {
        if self.running.is_none() && self.assignment.is_none() && !self.is_leaving() {
            tracing::info!("no word from the daemon, and a main job waits: giving the node back");
            self.begin_leave(LeaveReason::ForOthers, Duration::ZERO);
        }
    }

    /// With nothing running and nobody to say what comes next, a wing gives its node back after a while; a
    /// lead waits, or trains alone.
    pub(super) fn handle_absence(&mut self) {
        let away = self.link.away_duration();
        let patience = self.config.patience;
        if away <= patience {
            self.absence.next_word = patience;
            return;
        }
        match &self.ended {
            _ if !self.is_lead() => self.exit = Some(0),
            Some((_, _, exit)) if !exit.asked && exit.code == 0 => self.exit = Some(0),
            // Of a failure nobody can say whether it was the command's own, or the echo of a lost worker.
            _ if self.config.alone.is_some() => {
                if matches!(self.absence.alone, AloneState::No) {
                    // What is a main job's own it has whatever infill says.
                    let for_good = !self.config.own.is_empty() && self.link.is_refused();
                    match for_good {
                        true => tracing::warn!("the daemon refuses this job: it trains on what is its own"),
                        false => {
                            tracing::warn!(
                                away_secs = away.as_secs(),
                                "the daemon stays away: training alone"
                            );
                        }
                    }
                    let terms = AloneTerms { patience, for_good };
                    self.absence.alone = AloneState::Preparing;
                    let link = self.link.clone();
                    let tell = self.news.0.clone();
                    let programs = self.config.programs.clone();
                    let job = self.config.job;
                    self.tasks.spawn(train_alone::prepare_alone(link, programs, job, terms, tell));
                }
                return;
            }
            _ if away > self.absence.next_word => {
                tracing::warn!(away_secs = away.as_secs(), "the daemon stays away: waiting for it");
                self.absence.next_word = away * 2;
                return;
            }
            _ => return,
        }
        tracing::warn!(code = self.exit, "the daemon stays away; leaving");
    }

    /// Sees to it that the job does not meet its time limit. In time, the daemon calls a wing back itself.
    pub(super) fn watch_limit(&mut self) {
        let away = self.link.away_duration();
        let now = Instant::now();
        // What a main job's limit is, its owner has said.
        if (!self.is_lead() && away < DAEMON_SILENCE) || !self.config.own.is_empty() {
            return;
        }
        match self.absence.limit.next_action(self.config.grace, away, now) {
            LimitAction::Nothing => {}
            LimitAction::Look => {
                self.absence.limit.record_query(now);
                let look = time_limit::query_time_left(self.config.programs.clone(), self.config.job);
                let tell = self.news.0.clone();
                // A worker that has ended wants to know nothing more.
                self.tasks.spawn(async move {
                    tell.send(WorkerEvent::Looked(look.await)).await.unwrap_or_default()
                });
            }
            LimitAction::Leave => {
                let left = self.absence.limit.remaining_time(now).unwrap_or_default();
                tracing::warn!(
                    left_secs = left.as_secs(),
                    "the job's time limit is near: saving and leaving"
                );
                self.begin_leave(
                    LeaveReason::ForLimit,
                    self.config.grace.min(left - REQUEUE_TIME.min(left / 2)),
                );
            }
        }
    }
}
