//! Why a round gave a job its nodes. The values become sentences only when someone reads them.

use std::cmp::Ordering;
use std::fmt;

use super::ExecPlan;
use super::duration;
use super::host_shortage::HostShortage;
use super::ids::NodeName;
use super::probe::Probe;
use super::sentence::sentence;
use super::start_blocker::StartBlocker;
use super::time::UnixTime;
use super::turn_state::QueuePosition;
use crate::words;

/// Most nodes that a sentence names. With more, it names the first and their number.
const MOST_NAMED: usize = 4;

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
    Barred {
        /// The reason.
        bar: StartBlocker,
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
    StartsAnew {
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
        least: u32,
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
        Barred = "barred",
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
        StartsAnew = "starts_anew",
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
    /// The rate in samples a second.
    pub rate: f64,
}

/// The nodes that a job must leave now. Empty in most rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeavingNodes(pub Vec<NodeName>);

/// The nodes that a job needs to start, and those that are available.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeShortage {
    /// Nodes of its smallest size.
    pub least: u32,
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
            JobReason::Barred { .. } => Kind::Barred,
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
            JobReason::StartsAnew { .. } => Kind::StartsAnew,
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

    /// Formats the reason of a job that holds nodes and does not start: it keeps, gains or loses nodes.
    fn fmt_holder(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobReason::Stays { size, secs } => {
                write!(f, "{size}: it was rescaled a moment ago and stays for {secs:.0} s more")
            }
            JobReason::AtMaximum(size) => write!(f, "{size}: that is its maximum"),
            JobReason::MayNotGrow(size) => write!(f, "{size}: growth is paused"),
            JobReason::Settled(size) => write!(f, "{size}: no change would gain more than it costs"),
            JobReason::LeftAsItIs(size) => write!(f, "{size}: nothing was planned in this round"),
            JobReason::Grows { had, gets, before, secs, leaving } => {
                write!(
                    f,
                    "grows from {had} to {} because {:.2} samples/s",
                    NodeCountText(gets.nodes),
                    gets.rate
                )?;
                write!(f, " instead of {before:.2} are worth {secs:.0} s without samples{leaving}")
            }
            JobReason::GivesUp { had, gets, before, taken, secs } => {
                write!(f, "shrinks from {had} to {}", NodeCountText(gets.nodes))?;
                if *taken > 0 {
                    write!(f, ": other jobs make more of {} than the {secs:.0} s", NodeCountText(*taken))?;
                    f.write_str(" without samples cost")
                } else if gets.rate > *before {
                    write!(f, " because {:.2} samples/s instead of {before:.2}", gets.rate)?;
                    write!(f, " are worth {secs:.0} s without samples")
                } else {
                    f.write_str(": later steps of the plan are worth more with fewer nodes now")
                }
            }
            JobReason::Shrinks { had, gets, leaving } => {
                write!(f, "shrinks from {had} to {}{leaving}", NodeCountText(*gets))
            }
            JobReason::Swaps { gets, moves, plan, leaving } => {
                f.write_str(if *moves { "moves to other nodes" } else { "keeps its nodes" })?;
                if let Some(plan) = plan {
                    write!(f, " and changes to execution plan {}", plan.0)?;
                }
                write!(f, ": {} at {:.2} samples/s{leaving}", NodeCountText(gets.nodes), gets.rate)
            }
            JobReason::Probes { had, gets, secs, leaving, probe } => {
                match had.cmp(gets) {
                    _ if *had == 0 => write!(f, "starts on {}", NodeCountText(*gets))?,
                    Ordering::Less => write!(f, "grows from {had} to {}", NodeCountText(*gets))?,
                    Ordering::Equal => write!(f, "keeps its size of {}", NodeCountText(*gets))?,
                    Ordering::Greater => write!(f, "shrinks from {had} to {}", NodeCountText(*gets))?,
                }
                write!(f, ": {probe}")?;
                if *secs > 0.0 {
                    write!(f, "; {secs:.0} s without samples")?;
                }
                write!(f, "{leaving}")
            }
            JobReason::Outbid { had, taken: 0 } => {
                write!(f, "is parked: its {} would soon cost", NodeCountText(*had))?;
                f.write_str(" more in changes than it gains on them")
            }
            JobReason::Outbid { had, taken } => {
                write!(f, "is parked: other jobs make more of {}", TakenText { had: *had, taken: *taken })
            }
            JobReason::TurnEnds { had, taken } => {
                write!(f, "is parked: its turn has ended, and other jobs get")?;
                write!(f, " {}", TakenText { had: *had, taken: *taken })
            }
            JobReason::Parked { leaving, shortage } => write!(f, "is parked{leaving}; {shortage}"),
            _ => Ok(()),
        }
    }

    /// Formats the reason of a job that holds no nodes and gets none.
    fn fmt_waiting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobReason::WaitsForResume => f.write_str("waits: starting is paused"),
            JobReason::WaitsForPlan => f.write_str("waits: nothing was planned in this round"),
            JobReason::WaitsForNodes(shortage) => write!(f, "waits: {shortage}"),
            JobReason::WaitsForRate => f.write_str("waits: no rate is known on the node types that are free"),
            JobReason::WaitsForHosts(shortage) => write!(f, "waits: {shortage}"),
            JobReason::WaitsForBudget { most } => {
                let s = if *most == 1 { "" } else { "s" };
                write!(
                    f,
                    "waits for the next round: this one may make {most} change{s}, and has made them all"
                )
            }
            JobReason::WaitsForWindows { free, all, start_secs } => {
                let are = if *all == 1 { "is" } else { "are" };
                write!(f, "waits: {free} of {} {are} free, but not for long", NodeCountText(*all))?;
                write!(f, " enough to earn back a start of {start_secs:.0} s")
            }
            JobReason::WaitsForOthers { least, taken, all, window_secs } => {
                write!(
                    f,
                    "waits: needs at least {}; other jobs make more of",
                    NodeCountText(*least as usize)
                )?;
                write!(f, " {taken} of the {all} that are free for longer than {window_secs:.0} s")
            }
            JobReason::WaitsForTurn(QueuePosition { position, of, secs }) => {
                write!(f, "waits for its turn: it is number {position} of {of} in line, about")?;
                write!(f, " {} from now", duration::format_duration(*secs))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for JobReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobReason::Busy { nodes } => {
                write!(f, "is in the middle of a change; keeps {} until that is done", NodeCountText(*nodes))
            }
            JobReason::Drained => f.write_str("is parked: an administrator drains infill"),
            JobReason::BacksOff { secs } => {
                write!(f, "backs off for {secs:.0} s more after a preemption or failure")
            }
            JobReason::Barred { bar, at } => f.write_str(&bar.describe_at(*at)),
            JobReason::Starts { gets, secs } => {
                write!(
                    f,
                    "starts on {} at {:.2} samples/s after {secs:.0} s",
                    NodeCountText(gets.nodes),
                    gets.rate
                )
            }
            JobReason::StartsAnew { gets, secs, leaving } => {
                write!(f, "starts again on {} with its lead on another node, ", NodeCountText(gets.nodes))?;
                write!(f, "{:.2} samples/s after {secs:.0} s{leaving}", gets.rate)
            }
            JobReason::Said(sentence) => f.write_str(sentence),
            JobReason::WaitsForResume
            | JobReason::WaitsForPlan
            | JobReason::WaitsForNodes(_)
            | JobReason::WaitsForRate
            | JobReason::WaitsForHosts(_)
            | JobReason::WaitsForBudget { .. }
            | JobReason::WaitsForWindows { .. }
            | JobReason::WaitsForOthers { .. }
            | JobReason::WaitsForTurn(_) => self.fmt_waiting(f),
            _ => self.fmt_holder(f),
        }
    }
}

sentence!(JobReason);

/// Formats as `keeps its 3 nodes at 2.50 samples/s`.
impl fmt::Display for RatedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keeps its {} at {:.2} samples/s", NodeCountText(self.nodes), self.rate)
    }
}

/// Formats as the end of a sentence. Empty if there are no nodes to leave.
impl fmt::Display for LeavingNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.0.split_first() else { return Ok(()) };
        write!(f, "; it must leave {first}")?;
        if self.0.len() > MOST_NAMED {
            return write!(f, " and {} more", others.len());
        }
        for node in others {
            write!(f, ", {node}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.free == 1 { "is" } else { "are" };
        write!(f, "needs at least {}; {} {verb} free", NodeCountText(self.least as usize), self.free)?;
        write!(f, " for longer than {:.0} s", self.window_secs)
    }
}

/// Formats as `1 node` or `3 nodes`.
struct NodeCountText(usize);

impl fmt::Display for NodeCountText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// `its 3 nodes`, `2 of its 3 nodes`.
struct TakenText {
    had: usize,
    taken: usize,
}

impl fmt::Display for TakenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.taken < self.had {
            write!(f, "{} of ", self.taken)?;
        }
        write!(f, "its {}", NodeCountText(self.had))
    }
}

#[cfg(test)]
mod tests;
