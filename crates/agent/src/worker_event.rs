//! What a worker gets to know from its own tasks.

use tokio::sync::OwnedRwLockWriteGuard;
use tokio::task::AbortHandle;

use infill_api::AgentAssignment;
use infill_model::Secret;

use super::control::ReceivedMessage;
use super::sealing::SealedSecret;
use super::time_limit::TimeLeft;

/// One thing that it gets to know.
pub(crate) enum WorkerEvent {
    /// The daemon's orders.
    Assigned(AgentAssignment),
    /// What is left of the job; `None` if Slurm did not say.
    Looked(Option<TimeLeft>),
    /// Slurm takes the job's nodes back.
    Preempted,
    /// A main job waits for nodes, and no daemon says what to do with this one.
    InTheWay,
    /// Whether it may train alone, and the promise that the daemon hears nothing meanwhile.
    MayTrainAlone(Option<SilenceGuard>),
    /// What a process of the command says.
    Heard(ReceivedMessage),
    /// A secret for those who meet at this node's store, or why there is none.
    Sealed(Result<SealedSecret, String>),
    /// What another agent has sealed, and what came of opening it.
    Opened(Secret, Result<Secret, String>),
    /// There is a daemon again, which has not heard from us yet.
    DaemonIsBack,
}

impl From<ReceivedMessage> for WorkerEvent {
    fn from(heard: ReceivedMessage) -> WorkerEvent {
        WorkerEvent::Heard(heard)
    }
}

/// While it lasts, the daemon hears nothing from us.
pub(crate) struct SilenceGuard {
    _door: OwnedRwLockWriteGuard<()>,
    knocking: AbortHandle,
}

impl SilenceGuard {
    /// Behind this door, while that task looks for the daemon.
    pub fn new(door: OwnedRwLockWriteGuard<()>, knocking: AbortHandle) -> SilenceGuard {
        SilenceGuard { _door: door, knocking }
    }
}

impl Drop for SilenceGuard {
    fn drop(&mut self) {
        self.knocking.abort();
    }
}
