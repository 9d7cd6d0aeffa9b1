//! How a worker leaves: told by Slurm, before the job's time is up, or out of another's way.

use std::time::Duration;

use tokio::time::Instant;

use infill_model::AgentEvent;

use super::super::limit;
use super::super::news::News;
use super::super::signals::{TERMINATED, Told};
use super::Worker;

/// Why a worker is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The job's time limit is near.
    ForLimit,
    /// A main job waits, and there is nothing to do here.
    ForOthers,
    /// Slurm has told us to.
    Told,
}

/// A worker is on its way out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    /// The newest: Slurm may tell one that was leaving for its limit.
    pub reason: Reason,
    /// From the first of them on.
    pub since: Instant,
}

impl Worker {
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    pub(super) fn leaves(&self, reason: Reason) -> bool {
        self.leaving.is_some_and(|l| l.reason == reason)
    }

    /// Takes in a signal of Slurm's.
    pub(super) fn signalled(&mut self, told: Told) {
        match told {
            Told::Leave if self.leaves(Reason::Told) => {
                tracing::info!("told to leave again: killing the command");
                self.stop(Duration::ZERO);
            }
            Told::Leave => {
                tracing::info!("told to leave");
                self.leave(Reason::Told, self.link.leave_time());
            }
            Told::User(number) => {
                // The command saves and exits on this signal; without a note it would count as its own
                // decision.
                if number == self.config.common.signal.0 {
                    self.stop(self.config.grace);
                }
                self.ask_whether_preempted();
            }
        }
    }

    /// The node may be wanted, and what Slurm said of it missed, or a signal that users send too.
    pub(super) fn ask_whether_preempted(&mut self) {
        let (programs, job) = (self.config.programs.clone(), self.config.job);
        let tell = self.news.0.clone();
        self.tasks.spawn(async move {
            if limit::is_preempted(programs, job).await {
                // A worker that has ended wants to know nothing more.
                tell.send(News::Preempted).await.ok();
            }
        });
    }

    /// Begins to leave; the command may take `grace` to save.
    pub(super) fn leave(&mut self, reason: Reason, grace: Duration) {
        let since = self.leaving.map_or_else(Instant::now, |l| l.since);
        self.leaving = Some(Leaving { reason, since });
        self.outbox.push(AgentEvent::Leaving);
        if self.may_part() {
            self.leave_alive(grace);
            self.act_leaving();
        } else {
            self.stop(grace);
        }
        self.leave_if_done();
    }

    /// Ends the worker that is on its way out, unless its command runs still.
    pub(super) fn leave_if_done(&mut self) {
        if self.running.is_some() {
            return;
        }
        match self.leaving.map(|l| l.reason) {
            None => {}
            Some(Reason::ForLimit | Reason::ForOthers) if self.is_lead() => {
                // One that trains alone is not to wait for a daemon.
                let held = self.leaves(Reason::ForLimit) || self.config.alone.is_none();
                // Slurm ends us once it has requeued the job.
                self.tasks.spawn(limit::requeue(self.config.programs.clone(), self.config.job, held));
            }
            Some(Reason::ForLimit | Reason::ForOthers | Reason::Told) => {
                self.exit = Some(if self.is_lead() { TERMINATED } else { 0 });
            }
        }
    }
}
