//! Where a malleable job is in its life, and what each stage has to remember.

use serde::{Deserialize, Serialize};

use infill_model::{MalleableState, NodeName, UnixTime};

/// How the next generation comes about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Why it is made, in words.
    pub why: String,
    /// It is a retry after a failure, no rescale.
    pub retry: bool,
    /// It is made because the last one lost a member: no plan has changed the job.
    pub lost: bool,
}

impl Next {
    /// A generation for this reason that is no retry.
    pub fn because(why: impl Into<String>) -> Self {
        Next { why: why.into(), ..Next::default() }
    }

    /// The same for another reason.
    pub fn but(self, why: impl Into<String>) -> Self {
        Next { why: why.into(), ..self }
    }
}

/// Why a generation is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The planner wants it otherwise.
    Rescale,
    /// A member failed by itself with this code, the first that did.
    Failed {
        /// Its exit code.
        code: i32,
    },
    /// A member was lost: a failure of the others is its echo.
    Lost,
    /// The command may have ended by itself before anybody asked it to: then its end counts as its own.
    Untold {
        /// Whether a member was lost since.
        lost: bool,
    },
}

impl StopReason {
    /// The reason once a member was lost, too.
    pub(crate) fn with_loss(self) -> Self {
        match self {
            StopReason::Untold { .. } => StopReason::Untold { lost: true },
            _ => StopReason::Lost,
        }
    }

    /// Whether a member was lost.
    pub(crate) fn is_loss(self) -> bool {
        matches!(self, StopReason::Lost | StopReason::Untold { lost: true })
    }
}

/// A change of members of a command that stays alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regroup {
    /// Nodes of the generation before, by rank.
    pub from: Vec<NodeName>,
    /// Whether a member is lost, so that there is no step boundary to wait for.
    pub urgent: bool,
    /// What a restart in its place would be made for.
    pub reason: StopReason,
    /// Generations that were tried for it.
    pub tries: u32,
    /// When it began; the phase begins anew with each try.
    pub began: UnixTime,
}

/// A lead that is away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The node that it comes back to.
    pub place: NodeName,
    /// How far it has come.
    pub stage: Stage,
    /// Since when.
    pub since: UnixTime,
    /// Since when it is away.
    pub began: UnixTime,
}

/// How far a lead has come that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Slurm has not shown it in the queue yet.
    Leaving,
    /// It waits in the queue.
    Waiting,
    /// It was released to its place.
    Released,
}

/// Where the job is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The lead waits, held.
    Queued {
        /// What it waits to make.
        next: Next,
    },
    /// The lead was released to this node (or runs there already), and its agent has not said hello.
    Launching {
        /// The node.
        node: NodeName,
        /// What it is launched to make.
        next: Next,
    },
    /// The lead's agent is here and no command runs.
    Idle {
        /// What is made once all are here.
        next: Next,
    },
    /// The present generation's command runs on these nodes, by rank.
    Running {
        /// Nodes by rank.
        members: Vec<NodeName>,
    },
    /// The members of the present generation have been told to stop.
    Stopping {
        /// Nodes by rank.
        members: Vec<NodeName>,
        /// Why they are stopped.
        reason: StopReason,
        /// What is made once all have stopped.
        next: Next,
    },
    /// The command stays alive, and changes from the members of the last generation to these.
    Regrouping {
        /// Nodes by rank.
        members: Vec<NodeName>,
        /// How.
        regroup: Regroup,
        /// Why.
        next: Next,
    },
    /// The lead is to be requeued, held, to park it or to start it elsewhere.
    Requeueing {
        /// What is made after that.
        next: Next,
    },
    /// The agents have been told to finish; the lead with this code.
    Ending {
        /// Exit code of the malleable job.
        code: i32,
    },
    /// The lead's Slurm job has ended.
    Ended,
}

impl Phase {
    /// The word for it.
    pub fn state(&self) -> MalleableState {
        match self {
            Phase::Queued { .. } => MalleableState::Queued,
            Phase::Launching { .. } => MalleableState::Launching,
            Phase::Idle { .. } => MalleableState::Starting,
            Phase::Running { .. } => MalleableState::Running,
            Phase::Stopping { .. } => MalleableState::Rescaling,
            Phase::Regrouping { .. } => MalleableState::Regrouping,
            Phase::Requeueing { .. } => MalleableState::Parking,
            Phase::Ending { .. } => MalleableState::Ending,
            Phase::Ended => MalleableState::Ended,
        }
    }

    /// The next generation as far as it is known; nothing of it is while one runs or after the last.
    pub fn next(&self) -> Next {
        match self {
            Phase::Queued { next }
            | Phase::Launching { next, .. }
            | Phase::Idle { next }
            | Phase::Stopping { next, .. }
            | Phase::Regrouping { next, .. }
            | Phase::Requeueing { next } => next.clone(),
            Phase::Running { .. } | Phase::Ending { .. } | Phase::Ended => Next::default(),
        }
    }

    /// Whether the lead waits in Slurm's queue.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self, Phase::Queued { .. })
    }

    /// Whether the lead is to be requeued.
    pub(crate) fn is_requeueing(&self) -> bool {
        matches!(self, Phase::Requeueing { .. })
    }

    /// Members of the generation that runs, is coming about, or is being stopped.
    pub fn members(&self) -> &[NodeName] {
        match self {
            Phase::Running { members }
            | Phase::Stopping { members, .. }
            | Phase::Regrouping { members, .. } => members,
            _ => &[],
        }
    }

    /// The same, and those that leave it.
    pub(crate) fn involved(&self) -> impl Iterator<Item = &NodeName> {
        let from: &[NodeName] = match self {
            Phase::Regrouping { regroup, .. } => &regroup.from,
            _ => &[],
        };
        self.members().iter().chain(from)
    }
}
