//! What a machine wants done, and what a step led to.

use infill_model::words;
use infill_model::{GenerationStop, JobId, LiveChange, NodeName};

/// Something to do at Slurm for this job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Pin the held lead to a node, limit it, release it.
    Launch {
        /// The lead.
        job: JobId,
        /// Where.
        node: NodeName,
        /// Time limit in minutes.
        limit_mins: u32,
    },
    /// Hold the pending lead: only the planner starts it.
    Hold {
        /// The lead.
        job: JobId,
    },
    /// Unpin the lead that waits, held, from the node that it was last launched on. A job that is pinned to
    /// a node is lost once that is taken out of Slurm's configuration.
    Unpin {
        /// The lead.
        job: JobId,
    },
    /// Requeue the running lead, held.
    RequeueHold {
        /// The lead.
        job: JobId,
    },
    /// Set the time limit of a lead or wing, in minutes from its start.
    SetLimit {
        /// Lead or wing.
        job: JobId,
        /// Minutes.
        limit_mins: u32,
    },
    /// Shrink a wing to these nodes.
    ShrinkWing {
        /// The wing.
        job: JobId,
        /// Nodes to keep; its batch host is among them.
        keep: Vec<NodeName>,
    },
    /// Cancel a wing.
    CancelWing {
        /// The wing.
        job: JobId,
    },
}

impl Effect {
    /// The Slurm job that it touches.
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

    /// Whether it takes nodes (and must wait when we may not grow), rather than giving some back.
    pub fn takes_nodes(&self) -> bool {
        matches!(self, Effect::Launch { .. })
    }

    /// Whether it gives nodes back that a main job may be about to want: it waits for nothing else.
    pub fn returns_nodes(&self) -> bool {
        matches!(self, Effect::RequeueHold { .. } | Effect::ShrinkWing { .. } | Effect::CancelWing { .. })
    }

    /// Whether its Slurm job is given up by it: what was asked for before is out of date.
    pub fn abandons_job(&self) -> bool {
        matches!(self, Effect::RequeueHold { .. } | Effect::CancelWing { .. })
    }

    /// What kind of effect it is.
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
    /// A kind of [`Effect`], as it is counted.
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

/// What a command did not fit into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOverflow {
    /// On how many nodes it ran.
    pub nodes: u32,
    /// The lead's, if it was known then.
    pub lead: Option<NodeName>,
}

/// What a step led to.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "effects must be carried out"]
pub struct StepOutcome {
    /// To do at Slurm, in order.
    pub effects: Vec<Effect>,
    /// A generation that began with this step, as (number, nodes by rank, why).
    pub started: Option<(u64, Vec<NodeName>, String)>,
    /// What happened, for the log, once each.
    pub notes: Vec<String>,
    /// Nodes on which a start died, with how: strikes for the circuit breaker.
    pub strikes: Vec<(NodeName, String)>,
    /// How commands came to their end that were asked to save and exit.
    pub stops: Vec<GenerationStop>,
    /// That the command has run out of memory with the present execution plan.
    pub overflowed: Option<MemoryOverflow>,
    /// A change of size that the command lived through.
    pub lived_through: Option<LiveChange>,
    /// Nodes whose agents said hello for the first time, with the seconds since they were ordered.
    pub arrived: Vec<(NodeName, f64)>,
    /// The command fails elsewhere, too: its strikes say nothing of nodes.
    pub acquitted: bool,
}
