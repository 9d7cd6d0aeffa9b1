//! Where a malleable job is in its life, and what each stage has to remember.

use serde::{Deserialize, Serialize};

use infill_model::{MalleableState, NodeName, UnixTime};

/// How the next generation comes about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextGeneration {
    /// Why it is made, in words.
    pub why: String,
    /// It is a retry after a failure, no rescale.
    pub retry: bool,
    /// It is made because the last one lost a member: no plan has changed the job.
    pub lost: bool,
}

impl NextGeneration {
    /// A generation for this reason that is no retry.
    pub fn for_reason(why: impl Into<String>) -> Self {
        NextGeneration { why: why.into(), ..NextGeneration::default() }
    }

    /// The same for another reason.
    pub fn with_reason(self, why: impl Into<String>) -> Self {
        NextGeneration { why: why.into(), ..self }
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
pub struct RegroupState {
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
pub struct LeadAbsence {
    /// The node that it comes back to.
    pub place: NodeName,
    /// How far it has come.
    pub stage: AbsenceStage,
    /// Since when.
    pub since: UnixTime,
    /// Since when it is away.
    pub began: UnixTime,
}

/// How far a lead has come that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsenceStage {
    /// Slurm has not shown it in the queue yet.
    Leaving,
    /// It waits in the queue.
    Waiting,
    /// It was released to its place.
    Released,
}

/// Where the job is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// The lead waits, held.
    Queued {
        /// What it waits to make.
        next: NextGeneration,
    },
    /// The lead was released to this node (or runs there already), and its agent has not said hello.
    Launching {
        /// The node.
        node: NodeName,
        /// What it is launched to make.
        next: NextGeneration,
    },
    /// The lead's agent is here and no command runs.
    Idle {
        /// What is made once all are here.
        next: NextGeneration,
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
        next: NextGeneration,
    },
    /// The command stays alive, and changes from the members of the last generation to these.
    Regrouping {
        /// Nodes by rank.
        members: Vec<NodeName>,
        /// How.
        regroup: RegroupState,
        /// Why.
        next: NextGeneration,
    },
    /// The lead is to be requeued, held, to park it or to start it elsewhere.
    Requeueing {
        /// What is made after that.
        next: NextGeneration,
    },
    /// The agents have been told to finish; the lead with this code.
    Ending {
        /// Exit code of the malleable job.
        code: i32,
    },
    /// The lead's Slurm job has ended.
    Ended,
}

impl JobPhase {
    /// The word for it.
    pub fn malleable_state(&self) -> MalleableState {
        match self {
            JobPhase::Queued { .. } => MalleableState::Queued,
            JobPhase::Launching { .. } => MalleableState::Launching,
            JobPhase::Idle { .. } => MalleableState::Starting,
            JobPhase::Running { .. } => MalleableState::Running,
            JobPhase::Stopping { .. } => MalleableState::Rescaling,
            JobPhase::Regrouping { .. } => MalleableState::Regrouping,
            JobPhase::Requeueing { .. } => MalleableState::Parking,
            JobPhase::Ending { .. } => MalleableState::Ending,
            JobPhase::Ended => MalleableState::Ended,
        }
    }

    /// The next generation as far as it is known; nothing of it is while one runs or after the last.
    pub fn next_generation(&self) -> NextGeneration {
        match self {
            JobPhase::Queued { next }
            | JobPhase::Launching { next, .. }
            | JobPhase::Idle { next }
            | JobPhase::Stopping { next, .. }
            | JobPhase::Regrouping { next, .. }
            | JobPhase::Requeueing { next } => next.clone(),
            JobPhase::Running { .. } | JobPhase::Ending { .. } | JobPhase::Ended => NextGeneration::default(),
        }
    }

    /// Whether the lead waits in Slurm's queue.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self, JobPhase::Queued { .. })
    }

    /// Whether the lead is to be requeued.
    pub(crate) fn is_requeueing(&self) -> bool {
        matches!(self, JobPhase::Requeueing { .. })
    }

    /// Members of the generation that runs, is coming about, or is being stopped.
    pub fn members(&self) -> &[NodeName] {
        match self {
            JobPhase::Running { members }
            | JobPhase::Stopping { members, .. }
            | JobPhase::Regrouping { members, .. } => members,
            _ => &[],
        }
    }

    /// The same, and those that leave it.
    pub(crate) fn involved_nodes(&self) -> impl Iterator<Item = &NodeName> {
        let from: &[NodeName] = match self {
            JobPhase::Regrouping { regroup, .. } => &regroup.from,
            _ => &[],
        };
        self.members().iter().chain(from)
    }
}
