//! Why a round gave a job its nodes. The values become sentences only when someone reads them.

use super::ExecPlan;
use super::host_shortage::HostShortage;
use super::ids::NodeName;
use super::probe::Probe;
use super::sentence::sentence;
use super::start_blocker::StartBlocker;
use super::time::UnixTime;
use super::turn_state::QueuePosition;
use crate::words;

mod sentences;

/// Most nodes that a sentence names. With more, it names the first and their number.
const MAX_NAMED: usize = 4;

/// Why a job got its nodes. In JSON it is a sentence, which is read back as [`JobReason::Said`]. Rates are in
/// samples a second.
#[derive(Clone, Debug, PartialEq)]
pub enum JobReason {
    /// It is in the middle of a change.
    Busy {
        /// Nodes that it keeps.
        nodes: usize,
    },
    /// All jobs are parked.
    Drained,
    /// It may not be started yet, after a preemption or failure.
    BacksOff {
        /// Seconds until it may be started.
        secs: f64,
    },
    /// It must not be started.
    Blocked {
        /// The reason.
        blocker: StartBlocker,
        /// The moment of the round.
        at: UnixTime,
    },
    /// It was rescaled a moment ago.
    Stays {
        /// The nodes that it keeps, and their rate.
        size: RatedSize,
        /// Seconds for which it stays.
        secs: f64,
    },
    /// It has all nodes that it may have.
    AtMaximum(RatedSize),
    /// Growth is paused.
    MayNotGrow(RatedSize),
    /// No change would gain more than it costs.
    Settled(RatedSize),
    /// Nothing was planned in this round.
    LeftAsItIs(RatedSize),
    /// It gets more nodes.
    Grows {
        /// Nodes before.
        had: usize,
        /// The nodes that it gets, and their rate.
        gets: RatedSize,
        /// Rate before.
        before: f64,
        /// Seconds without samples.
        secs: f64,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// It gives up nodes that it could keep.
    GivesUp {
        /// Nodes before.
        had: usize,
        /// Nodes and rate from now on.
        gets: RatedSize,
        /// Rate before.
        before: f64,
        /// How many of its nodes other jobs get.
        taken: usize,
        /// Seconds without samples.
        secs: f64,
    },
    /// It must give up nodes.
    Shrinks {
        /// Nodes before.
        had: usize,
        /// Nodes from now on.
        gets: usize,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// It keeps its number of nodes, but gets other nodes or another execution plan.
    Swaps {
        /// Nodes and rate from now on.
        gets: RatedSize,
        /// Whether it gets other nodes.
        moves: bool,
        /// The execution plan that it changes to; `None` if it keeps its plan.
        plan: Option<ExecPlan>,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// It is brought to a size, or stays there, so that its rate is measured.
    Probes {
        /// Nodes before.
        had: usize,
        /// Nodes from now on.
        gets: usize,
        /// Seconds without samples.
        secs: f64,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
        /// The size that is measured.
        probe: Probe,
    },
    /// It held no nodes, and starts.
    Starts {
        /// The nodes that it gets, and their rate.
        gets: RatedSize,
        /// Seconds without samples.
        secs: f64,
    },
    /// Its lead moves to another node, so that it starts again.
    StartsAgain {
        /// The nodes that it gets, and their rate.
        gets: RatedSize,
        /// Seconds without samples.
        secs: f64,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// It is parked because its nodes are worth more without it.
    Outbid {
        /// Nodes before.
        had: usize,
        /// How many of them other jobs get.
        taken: usize,
    },
    /// It is parked because its turn has ended.
    TurnEnds {
        /// Nodes before.
        had: usize,
        /// How many of them other jobs get.
        taken: usize,
    },
    /// It must leave its nodes, and there are not enough others.
    Parked {
        /// Nodes that it must leave.
        leaving: LeavingNodes,
        /// The nodes that it would need.
        shortage: NodeShortage,
    },
    /// It waits: starting is paused.
    WaitsForResume,
    /// It waits: nothing was planned in this round.
    WaitsForPlan,
    /// It waits: there are too few nodes for its smallest size.
    WaitsForNodes(NodeShortage),
    /// It waits: its rate is unknown on all free node types.
    WaitsForRate,
    /// It waits: there are places, but their hosts have too few CPUs or too little memory.
    WaitsForHosts(HostShortage),
    /// It waits: the round has no changes left.
    WaitsForBudget {
        /// Most changes in a round.
        most: u32,
    },
    /// It waits: windows are too short to earn back a start.
    WaitsForWindows {
        /// Nodes that are free.
        free: usize,
        /// Nodes on which it could start if no other job had them.
        all: usize,
        /// Seconds that a start takes.
        start_secs: f64,
    },
    /// It waits: other jobs make more on the free nodes.
    WaitsForOthers {
        /// Nodes of its smallest size.
        min_nodes: u32,
        /// Nodes that other jobs get, out of those on which it could start.
        taken: usize,
        /// All nodes on which it could start.
        all: usize,
        /// Shortest window that is worth starting in, seconds.
        window_secs: f64,
    },
    /// It waits: others come before it.
    WaitsForTurn(QueuePosition),
    /// A sentence that was read back from JSON.
    Said(String),
}

words! {
    /// The kind of a [`JobReason`].
    pub enum JobReasonKind {
        /// It is in the middle of a change.
        Busy = "busy",
        /// All jobs are parked.
        Drained = "drained",
        /// It may not be started yet, after a preemption or failure.
        BacksOff = "backs_off",
        /// It must not be started.
        Blocked = "barred",
        /// It was rescaled a moment ago.
        Stays = "stays",
        /// It has all nodes that it may have.
        AtMaximum = "at_maximum",
        /// Growth is paused.
        MayNotGrow = "may_not_grow",
        /// No change would gain more than it costs.
        Settled = "settled",
        /// Nothing was planned in this round.
        LeftAsItIs = "left_as_it_is",
        /// It gets more nodes.
        Grows = "grows",
        /// It gives up nodes for other jobs.
        GivesUp = "gives_up",
        /// It must give up nodes.
        Shrinks = "shrinks",
        /// It gets other nodes or another execution plan.
        Swaps = "swaps",
        /// It is brought to a size that is measured.
        Probes = "probes",
        /// It starts from nothing.
        Starts = "starts",
        /// It starts again with its lead on another node.
        StartsAgain = "starts_anew",
        /// It is parked because other jobs make more on its nodes.
        Outbid = "outbid",
        /// It is parked because its turn has ended.
        TurnEnds = "turn_ends",
        /// It must leave its nodes, and there are not enough others.
        Parked = "parked",
        /// It waits: starting is paused.
        WaitsForResume = "waits_for_resume",
        /// It waits: nothing was planned in this round.
        WaitsForPlan = "waits_for_plan",
        /// It waits: there are too few nodes.
        WaitsForNodes = "waits_for_nodes",
        /// It waits: its rate is unknown on all free node types.
        WaitsForRate = "waits_for_rate",
        /// It waits: hosts have too few CPUs or too little memory.
        WaitsForHosts = "waits_for_hosts",
        /// It waits: the round has no changes left.
        WaitsForBudget = "waits_for_budget",
        /// It waits: windows are too short.
        WaitsForWindows = "waits_for_windows",
        /// It waits: other jobs make more on the free nodes.
        WaitsForOthers = "waits_for_others",
        /// It waits: others come before it.
        WaitsForTurn = "waits_for_turn",
        /// A sentence that was read back from JSON.
        Said = "said",
    }
}

/// A number of nodes, with the rate on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatedSize {
    /// Number of nodes.
    pub nodes: usize,
    /// The rate in samples a second; `None` where nothing is known of the job's rates.
    pub rate: Option<f64>,
}

/// The nodes that a job must leave now. Empty in most rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeavingNodes(pub Vec<NodeName>);

/// The nodes that a job needs to start, and those that are available.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeShortage {
    /// Nodes of its smallest size.
    pub min_nodes: u32,
    /// Nodes on which it could start if no other job had them.
    pub free: usize,
    /// Shortest window that is worth starting in, seconds.
    pub window_secs: f64,
}

impl JobReason {
    /// The kind of this reason.
    pub fn kind(&self) -> JobReasonKind {
        use JobReasonKind as Kind;
        match self {
            JobReason::Busy { .. } => Kind::Busy,
            JobReason::Drained => Kind::Drained,
            JobReason::BacksOff { .. } => Kind::BacksOff,
            JobReason::Blocked { .. } => Kind::Blocked,
            JobReason::Stays { .. } => Kind::Stays,
            JobReason::AtMaximum(_) => Kind::AtMaximum,
            JobReason::MayNotGrow(_) => Kind::MayNotGrow,
            JobReason::Settled(_) => Kind::Settled,
            JobReason::LeftAsItIs(_) => Kind::LeftAsItIs,
            JobReason::Grows { .. } => Kind::Grows,
            JobReason::GivesUp { .. } => Kind::GivesUp,
            JobReason::Shrinks { .. } => Kind::Shrinks,
            JobReason::Swaps { .. } => Kind::Swaps,
            JobReason::Probes { .. } => Kind::Probes,
            JobReason::Starts { .. } => Kind::Starts,
            JobReason::StartsAgain { .. } => Kind::StartsAgain,
            JobReason::Outbid { .. } => Kind::Outbid,
            JobReason::TurnEnds { .. } => Kind::TurnEnds,
            JobReason::Parked { .. } => Kind::Parked,
            JobReason::WaitsForResume => Kind::WaitsForResume,
            JobReason::WaitsForPlan => Kind::WaitsForPlan,
            JobReason::WaitsForNodes(_) => Kind::WaitsForNodes,
            JobReason::WaitsForRate => Kind::WaitsForRate,
            JobReason::WaitsForHosts(_) => Kind::WaitsForHosts,
            JobReason::WaitsForBudget { .. } => Kind::WaitsForBudget,
            JobReason::WaitsForWindows { .. } => Kind::WaitsForWindows,
            JobReason::WaitsForOthers { .. } => Kind::WaitsForOthers,
            JobReason::WaitsForTurn(_) => Kind::WaitsForTurn,
            JobReason::Said(_) => Kind::Said,
        }
    }
}

sentence!(JobReason: "Why a job got its nodes, as the end of a sentence that begins with the job.");

#[cfg(test)]
mod tests;
