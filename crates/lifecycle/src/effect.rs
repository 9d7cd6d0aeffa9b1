//! Effects on Slurm, and the outcome of a step.

use infill_model::words;
use infill_model::{GenerationStop, JobId, LiveChange, NodeName};

/// Something to do at Slurm for this job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Pin the held lead to a node, set its time limit, and release it.
    Launch {
        /// The lead's Slurm job.
        job: JobId,
        /// The node to start on.
        node: NodeName,
        /// Time limit in minutes.
        limit_mins: u32,
    },
    /// Hold the pending lead: only the planner starts it.
    Hold {
        /// The lead's Slurm job.
        job: JobId,
    },
    /// Unpin the lead, which waits held, from the node of its last launch. A job that is pinned to a node is
    /// lost when an administrator removes the node from Slurm's configuration.
    Unpin {
        /// The lead's Slurm job.
        job: JobId,
    },
    /// Requeue the running lead, held.
    RequeueHold {
        /// The lead's Slurm job.
        job: JobId,
    },
    /// Set the time limit of a lead or wing, in minutes from its start.
    SetLimit {
        /// The Slurm job of the lead or wing.
        job: JobId,
        /// Time limit in minutes.
        limit_mins: u32,
    },
    /// Shrink a wing to fewer nodes.
    ShrinkWing {
        /// The wing's Slurm job.
        job: JobId,
        /// Nodes to keep, the wing's batch host included.
        keep: Vec<NodeName>,
    },
    /// Cancel a wing.
    CancelWing {
        /// The wing's Slurm job.
        job: JobId,
    },
}

impl Effect {
    /// The Slurm job that the effect changes.
    pub fn job(&self) -> JobId {
        match self {
            Effect::Launch { job, .. }
            | Effect::Hold { job }
            | Effect::Unpin { job }
            | Effect::RequeueHold { job }
            | Effect::SetLimit { job, .. }
            | Effect::ShrinkWing { job, .. }
            | Effect::CancelWing { job } => *job,
        }
    }

    /// Whether it takes nodes. Such an effect must wait while infill may not grow.
    pub fn takes_nodes(&self) -> bool {
        matches!(self, Effect::Launch { .. })
    }

    /// Whether it gives nodes back, which a main job may want soon. Such an effect does not wait for others.
    pub fn returns_nodes(&self) -> bool {
        matches!(self, Effect::RequeueHold { .. } | Effect::ShrinkWing { .. } | Effect::CancelWing { .. })
    }

    /// Whether it gives its Slurm job up, so that earlier effects on that job are out of date.
    pub fn abandons_job(&self) -> bool {
        matches!(self, Effect::RequeueHold { .. } | Effect::CancelWing { .. })
    }

    /// The kind of the effect, without its parameters.
    pub fn kind(&self) -> EffectKind {
        match self {
            Effect::Launch { .. } => EffectKind::Launch,
            Effect::Hold { .. } => EffectKind::Hold,
            Effect::Unpin { .. } => EffectKind::Unpin,
            Effect::RequeueHold { .. } => EffectKind::RequeueHold,
            Effect::SetLimit { .. } => EffectKind::SetLimit,
            Effect::ShrinkWing { .. } => EffectKind::ShrinkWing,
            Effect::CancelWing { .. } => EffectKind::CancelWing,
        }
    }
}

words! {
    /// A kind of [`Effect`], for metrics.
    pub enum EffectKind {
        /// [`Effect::Launch`].
        Launch = "launch",
        /// [`Effect::Hold`].
        Hold = "hold",
        /// [`Effect::Unpin`].
        Unpin = "unpin",
        /// [`Effect::RequeueHold`].
        RequeueHold = "requeue_hold",
        /// [`Effect::SetLimit`].
        SetLimit = "set_limit",
        /// [`Effect::ShrinkWing`].
        ShrinkWing = "shrink_wing",
        /// [`Effect::CancelWing`].
        CancelWing = "cancel_wing",
    }
}

/// A command that did not fit into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOverflow {
    /// Number of nodes that the command ran on.
    pub nodes: u32,
    /// The lead's node; `None` if it was unknown at that time.
    pub lead: Option<NodeName>,
}

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "effects must be carried out"]
pub struct StepOutcome {
    /// Effects on Slurm, in order.
    pub effects: Vec<Effect>,
    /// A generation that began with this step, as (number, nodes by rank, why).
    pub started: Option<(u64, Vec<NodeName>, String)>,
    /// Sentences for the log.
    pub notes: Vec<String>,
    /// Nodes on which a start failed, each with the reason: strikes for the circuit breaker.
    pub strikes: Vec<(NodeName, String)>,
    /// How commands ended that were asked to save and exit.
    pub stops: Vec<GenerationStop>,
    /// Set if the command has run out of memory with the present execution plan.
    pub out_of_memory: Option<MemoryOverflow>,
    /// A change of size that the command lived through.
    pub live_change: Option<LiveChange>,
    /// Nodes whose agents said hello for the first time, with the seconds since they were ordered.
    pub arrived: Vec<(NodeName, f64)>,
    /// Whether the command also fails elsewhere, so that its strikes are not the nodes' fault.
    pub acquitted: bool,
}
