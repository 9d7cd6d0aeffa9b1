//! Inputs that a worker gets from its own tasks.

use tokio::sync::OwnedRwLockWriteGuard;
use tokio::task::AbortHandle;

use infill_api::AgentAssignment;
use infill_model::Secret;

use super::control::ReceivedMessage;
use super::sealing::SealedSecret;
use super::time_limit::TimeLeft;

/// One input for the worker's loop.
pub(crate) enum WorkerInput {
    /// The daemon has sent an assignment.
    Assigned(AgentAssignment),
    /// Slurm was asked how much time the job has left; `None` if it gave no answer.
    Looked(Option<TimeLeft>),
    /// Slurm takes the job's nodes back.
    Preempted,
    /// A main job waits for nodes, and no daemon takes care of this worker.
    InTheWay,
    /// The worker may train alone while it keeps the guard; `None` if it may not.
    MayTrainAlone(Option<SilenceGuard>),
    /// A process of the command has sent a message.
    Heard(ReceivedMessage),
    /// A secret for the processes that meet at this node's store, or why there is none.
    Sealed(Result<SealedSecret, String>),
    /// The sealed secret of another agent, and the result of opening it.
    Opened(Secret, Result<Secret, String>),
    /// There is a daemon again, which has not received anything from us yet.
    DaemonIsBack,
}

impl From<ReceivedMessage> for WorkerInput {
    fn from(received: ReceivedMessage) -> WorkerInput {
        WorkerInput::Heard(received)
    }
}

/// Blocks all requests to the daemon until it is dropped.
pub(crate) struct SilenceGuard {
    _blocked_requests: OwnedRwLockWriteGuard<()>,
    health_checks: AbortHandle,
}

impl SilenceGuard {
    /// Holds the lock that blocks requests. The task of `health_checks` looks for the daemon meanwhile, and
    /// ends with the guard.
    pub fn new(blocked_requests: OwnedRwLockWriteGuard<()>, health_checks: AbortHandle) -> SilenceGuard {
        SilenceGuard { _blocked_requests: blocked_requests, health_checks }
    }
}

impl Drop for SilenceGuard {
    fn drop(&mut self) {
        self.health_checks.abort();
    }
}
