//! The phases of a malleable job's life, and the data of each phase.

use serde::{Deserialize, Serialize};

use infill_model::{MalleableState, NodeName, UnixTime};

/// The reason for the next generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextGeneration {
    /// The reason, as text.
    pub why: String,
    /// Whether it is a retry after a failure and not a rescale.
    pub retry: bool,
    /// Whether it begins because the last generation lost a member, and not because of a plan.
    pub lost: bool,
}

impl NextGeneration {
    /// A generation for this reason that is neither a retry nor due to a loss.
    pub fn for_reason(why: impl Into<String>) -> Self {
        NextGeneration { why: why.into(), ..NextGeneration::default() }
    }

    /// The same generation with another reason text.
    pub fn with_reason(self, why: impl Into<String>) -> Self {
        NextGeneration { why: why.into(), ..self }
    }
}

/// Why a generation is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The planner wants another membership or execution plan.
    Rescale,
    /// The command of a member failed by itself.
    Failed {
        /// Exit code of the first member that failed.
        code: i32,
    },
    /// A member was lost: failures of other members are consequences of that.
    Lost,
    /// The command may have ended by itself before an agent asked it to. If so, its exit code counts.
    UnknownEnd {
        /// Whether a member was lost since.
        lost: bool,
    },
}

impl StopReason {
    /// The reason after a member was lost, too.
    pub(crate) fn with_loss(self) -> Self {
        match self {
            StopReason::UnknownEnd { .. } => StopReason::UnknownEnd { lost: true },
            _ => StopReason::Lost,
        }
    }

    /// Whether a member was lost.
    pub(crate) fn is_loss(self) -> bool {
        matches!(self, StopReason::Lost | StopReason::UnknownEnd { lost: true })
    }
}

/// A change of membership during which the command stays alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegroupState {
    /// Members of the previous generation, by rank.
    pub from: Vec<NodeName>,
    /// Whether a member is lost, so that the others cannot finish their step first.
    pub urgent: bool,
    /// The reason for a restart, if one must replace the change.
    pub reason: StopReason,
    /// Number of generations that were tried for this change.
    pub tries: u32,
    /// When the change began. The phase restarts with each try.
    pub began: UnixTime,
}

/// The absence of a lead whose other members train on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadAbsence {
    /// The node on which the lead comes back.
    #[serde(rename = "place")]
    pub node: NodeName,
    /// The present stage.
    pub stage: AbsenceStage,
    /// When the present stage began.
    pub since: UnixTime,
    /// When the absence began.
    pub began: UnixTime,
}

/// The stages of a lead's absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsenceStage {
    /// Slurm does not show the lead in the queue yet.
    Leaving,
    /// The lead waits in the queue.
    Waiting,
    /// infill has launched the lead on its node.
    #[serde(rename = "released")]
    Launched,
}

/// A phase of a malleable job's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// The lead waits in Slurm's queue, held.
    Queued {
        /// The generation that it waits for.
        next: NextGeneration,
    },
    /// The lead was launched on this node or already runs there, and its agent has not said hello.
    Launching {
        /// The lead's node.
        node: NodeName,
        /// The generation to start after the agent's hello.
        next: NextGeneration,
    },
    /// The lead's agent has said hello, and no command runs: the members of the next generation assemble.
    Assembling {
        /// The generation to start once its members are ready.
        next: NextGeneration,
    },
    /// The command of the present generation runs on its members.
    Running {
        /// Members by rank.
        members: Vec<NodeName>,
    },
    /// The agents are asked to stop the command of the present generation.
    Stopping {
        /// Members by rank.
        members: Vec<NodeName>,
        /// Why the generation stops.
        reason: StopReason,
        /// The generation to start once all members have stopped.
        next: NextGeneration,
    },
    /// The command stays alive, and the membership changes from the last generation to this one.
    Regrouping {
        /// New members by rank.
        members: Vec<NodeName>,
        /// State of the change.
        regroup: RegroupState,
        /// Reason for the new generation.
        next: NextGeneration,
    },
    /// infill requeues the lead, held, to park it or to start it on another node.
    Requeueing {
        /// The generation to start after that.
        next: NextGeneration,
    },
    /// The agents are asked to finish.
    Ending {
        /// Exit code of the lead, and so of the malleable job.
        code: i32,
    },
    /// The lead's Slurm job has ended.
    Ended,
}

impl JobPhase {
    /// The state that infill shows for this phase.
    pub fn malleable_state(&self) -> MalleableState {
        match self {
            JobPhase::Queued { .. } => MalleableState::Queued,
            JobPhase::Launching { .. } => MalleableState::Launching,
            JobPhase::Assembling { .. } => MalleableState::Starting,
            JobPhase::Running { .. } => MalleableState::Running,
            JobPhase::Stopping { .. } => MalleableState::Rescaling,
            JobPhase::Regrouping { .. } => MalleableState::Regrouping,
            JobPhase::Requeueing { .. } => MalleableState::Parking,
            JobPhase::Ending { .. } => MalleableState::Ending,
            JobPhase::Ended => MalleableState::Ended,
        }
    }

    /// The next generation; empty while a generation runs and after the last one.
    pub fn next_generation(&self) -> NextGeneration {
        match self {
            JobPhase::Queued { next }
            | JobPhase::Launching { next, .. }
            | JobPhase::Assembling { next }
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

    /// Whether infill is requeueing the lead.
    pub(crate) fn is_requeueing(&self) -> bool {
        matches!(self, JobPhase::Requeueing { .. })
    }

    /// Members of the generation that runs, is being formed, or is being stopped.
    pub fn members(&self) -> &[NodeName] {
        match self {
            JobPhase::Running { members }
            | JobPhase::Stopping { members, .. }
            | JobPhase::Regrouping { members, .. } => members,
            _ => &[],
        }
    }

    /// The members, and those of the previous generation that a regroup leaves out.
    pub(crate) fn involved_nodes(&self) -> impl Iterator<Item = &NodeName> {
        let from: &[NodeName] = match self {
            JobPhase::Regrouping { regroup, .. } => &regroup.from,
            _ => &[],
        };
        self.members().iter().chain(from)
    }
}
