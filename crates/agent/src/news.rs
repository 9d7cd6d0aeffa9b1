//! What a worker gets to know from its own tasks.

use tokio::sync::OwnedRwLockWriteGuard;
use tokio::task::AbortHandle;

use infill_api::Assignment;
use infill_model::Secret;

use super::control::Heard;
use super::limit::Left;
use super::sealing::Sealed;

/// One thing that it gets to know.
pub(crate) enum News {
    /// The daemon's orders.
    Assigned(Assignment),
    /// What is left of the job; `None` if Slurm did not say.
    Looked(Option<Left>),
    /// Slurm takes the job's nodes back.
    Preempted,
    /// A main job waits for nodes, and no daemon says what to do with this one.
    InTheWay,
    /// Whether it may train alone, and the promise that the daemon hears nothing meanwhile.
    MayTrainAlone(Option<Solitude>),
    /// What a process of the command says.
    Heard(Heard),
    /// A secret for those who meet at this node's store, or why there is none.
    Sealed(Result<Sealed, String>),
    /// What another agent has sealed, and what came of opening it.
    Opened(Secret, Result<Secret, String>),
    /// There is a daemon again, which has not heard from us yet.
    DaemonIsBack,
}

impl From<Heard> for News {
    fn from(heard: Heard) -> News {
        News::Heard(heard)
    }
}

/// While it lasts, the daemon hears nothing from us.
pub(crate) struct Solitude {
    _door: OwnedRwLockWriteGuard<()>,
    knocking: AbortHandle,
}

impl Solitude {
    /// Behind this door, while that task looks for the daemon.
    pub fn new(door: OwnedRwLockWriteGuard<()>, knocking: AbortHandle) -> Solitude {
        Solitude { _door: door, knocking }
    }
}

impl Drop for Solitude {
    fn drop(&mut self) {
        self.knocking.abort();
    }
}
