//! How a worker leaves: because Slurm asks for its node, the job's time is nearly up, or a main job waits.

use std::time::Duration;

use tokio::time::Instant;

use infill_model::AgentEvent;

use super::super::signals::{AgentSignal, EXIT_TERMINATED};
use super::super::time_limit;
use super::super::worker_input::WorkerInput;
use super::Worker;

/// Why a worker is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaveReason {
    /// The job's time limit is near.
    ForLimit,
    /// A main job waits, and there is nothing to do here.
    ForOthers,
    /// Slurm has asked us to.
    Preempted,
}

/// The state of a worker that is on its way out.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingLeave {
    /// The newest reason: Slurm may ask a worker that is leaving for its limit.
    pub reason: LeaveReason,
    /// When the worker began to leave, for its first reason.
    pub since: Instant,
}

impl Worker {
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    pub(super) fn leaves_for(&self, reason: LeaveReason) -> bool {
        self.leaving.is_some_and(|l| l.reason == reason)
    }

    /// Takes in a signal of Slurm's.
    pub(super) fn handle_signal(&mut self, signal: AgentSignal) {
        match signal {
            AgentSignal::Leave if self.leaves_for(LeaveReason::Preempted) => {
                tracing::info!("asked to leave again: killing the command");
                self.stop_command(Duration::ZERO);
            }
            AgentSignal::Leave => {
                tracing::info!("asked to leave");
                self.begin_leave(LeaveReason::Preempted, self.link.leave_time());
            }
            AgentSignal::User(number) => {
                // The command saves and exits on this signal. Without this call its end would count as its
                // own decision.
                if number == self.config.common.signal.0 {
                    self.stop_command(self.config.grace);
                }
                self.check_preemption();
            }
        }
    }

    /// Asks Slurm whether the node is wanted. We may have missed Slurm's signal, or it may be one that users
    /// send too.
    pub(super) fn check_preemption(&mut self) {
        let programs = self.config.programs.clone();
        let job = self.config.job;
        let events = self.events.0.clone();
        self.tasks.spawn(async move {
            if time_limit::is_preempted(programs, job).await {
                // When the worker has ended, it does not receive this any more.
                events.send(WorkerInput::Preempted).await.ok();
            }
        });
    }

    /// Begins to leave; the command may take `grace` to save.
    pub(super) fn begin_leave(&mut self, reason: LeaveReason, grace: Duration) {
        let since = self.leaving.map_or_else(Instant::now, |l| l.since);
        self.leaving = Some(PendingLeave { reason, since });
        self.outbox.push(AgentEvent::Leaving);
        if self.can_leave_live() {
            self.begin_live_leave(grace);
            self.apply_leaving_directive();
        } else {
            self.stop_command(grace);
        }
        self.finish_leave();
    }

    /// Ends a worker that is on its way out, unless its command still runs.
    pub(super) fn finish_leave(&mut self) {
        if self.running.is_some() {
            return;
        }
        match self.leaving.map(|l| l.reason) {
            None => {}
            Some(LeaveReason::ForLimit | LeaveReason::ForOthers) if self.is_lead() => {
                // A lead that may train alone must not wait for a daemon.
                let held = self.leaves_for(LeaveReason::ForLimit) || self.config.alone.is_none();
                // Slurm ends us once it has requeued the job.
                self.tasks.spawn(time_limit::requeue_job(
                    self.config.programs.clone(),
                    self.config.job,
                    held,
                ));
            }
            Some(LeaveReason::ForLimit | LeaveReason::ForOthers | LeaveReason::Preempted) => {
                self.exit = Some(if self.is_lead() { EXIT_TERMINATED } else { 0 });
            }
        }
    }
}
