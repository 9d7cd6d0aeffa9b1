//! Why a round gave a job what it got: values that become a sentence only when somebody reads it.

use std::cmp::Ordering;
use std::fmt;

use super::duration;
use super::host_shortage::HostShortage;
use super::ids::NodeName;
use super::probe::Probe;
use super::sentence::sentence;
use super::start_blocker::StartBlocker;
use super::time::UnixTime;
use super::turn_state::QueuePosition;
use crate::words;

/// Most nodes that a sentence names; of more only the first, and how many there are.
const MOST_NAMED: usize = 4;

/// Why a job got what it got. In JSON it is the sentence, and is read back as [`JobReason::Said`]. Rates are
/// in samples a second.
#[derive(Clone, Debug, PartialEq)]
pub enum JobReason {
    /// It is in the middle of a change.
    Busy {
        /// Nodes that it keeps.
        nodes: usize,
    },
    /// All jobs are parked.
    Drained,
    /// It may not be started yet.
    BacksOff {
        /// For so many seconds.
        secs: f64,
    },
    /// It must not be started.
    Barred {
        /// Why not.
        bar: StartBlocker,
        /// The moment of the round.
        at: UnixTime,
    },
    /// It was rescaled a moment ago.
    Stays {
        /// What it keeps.
        size: RatedSize,
        /// Seconds for which it stays.
        secs: f64,
    },
    /// It has all that it may have.
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
        /// What it gets.
        gets: RatedSize,
        /// Rate before.
        before: f64,
        /// Seconds without samples.
        secs: f64,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// It gives up nodes of which others make more.
    GivesUp {
        /// Nodes before.
        had: usize,
        /// Nodes from now on.
        gets: usize,
        /// Seconds without samples.
        secs: f64,
    },
    /// It must do with fewer nodes.
    Shrinks {
        /// Nodes before.
        had: usize,
        /// Nodes from now on.
        gets: usize,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// As many nodes, but other ones or another execution plan.
    Swaps {
        /// What it gets.
        gets: RatedSize,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// It comes to a size, or stays there, so that this is measured.
    Probes {
        /// Nodes before.
        had: usize,
        /// Nodes from now on.
        gets: usize,
        /// Seconds without samples.
        secs: f64,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
        /// What is measured.
        probe: Probe,
    },
    /// It held nothing.
    Starts {
        /// What it gets.
        gets: RatedSize,
        /// Seconds without samples.
        secs: f64,
    },
    /// Its lead goes to another node.
    StartsAnew {
        /// What it gets.
        gets: RatedSize,
        /// Seconds without samples.
        secs: f64,
        /// Nodes that it must leave.
        leaving: LeavingNodes,
    },
    /// It is parked for others, who make more of its nodes.
    Outbid {
        /// Nodes before.
        had: usize,
    },
    /// It is parked: its turn has ended, and another job is to have its nodes.
    TurnEnds {
        /// Nodes before.
        had: usize,
    },
    /// It must leave, and there is nothing else for it.
    Parked {
        /// Nodes that it must leave.
        leaving: LeavingNodes,
        /// What it would need.
        shortage: NodeShortage,
    },
    /// It waits: starting is paused.
    WaitsForResume,
    /// It waits: nothing was planned in this round.
    WaitsForPlan,
    /// It waits: there are too few nodes for its smallest size.
    WaitsForNodes(NodeShortage),
    /// It waits: nobody knows how fast it is on what is free.
    WaitsForRate,
    /// It waits: there are places, but their hosts have too few CPUs or too little memory.
    WaitsForHosts(HostShortage),
    /// It waits: the round's changes are used up.
    WaitsForBudget {
        /// Changes of a round.
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
    /// It waits: others make more of what is free.
    WaitsForOthers {
        /// Nodes of its smallest size.
        least: u32,
        /// Nodes that others get, of those on which it could start.
        taken: usize,
        /// All of those.
        all: usize,
        /// Shortest window that is worth starting in, seconds.
        window_secs: f64,
    },
    /// It waits: others come before it.
    WaitsForTurn(QueuePosition),
    /// In the words of another round.
    Said(String),
}

words! {
    /// What kind of reason a [`JobReason`] is.
    pub enum JobReasonKind {
        /// In the middle of a change.
        Busy = "busy",
        /// All jobs are parked.
        Drained = "drained",
        /// After a preemption or failure.
        BacksOff = "backs_off",
        /// Not to be started.
        Barred = "barred",
        /// Minimum stay.
        Stays = "stays",
        /// Largest size.
        AtMaximum = "at_maximum",
        /// Growth is paused.
        MayNotGrow = "may_not_grow",
        /// Nothing gains.
        Settled = "settled",
        /// Nothing was planned.
        LeftAsItIs = "left_as_it_is",
        /// More nodes.
        Grows = "grows",
        /// Fewer, for others.
        GivesUp = "gives_up",
        /// Fewer, of necessity.
        Shrinks = "shrinks",
        /// As many, but others.
        Swaps = "swaps",
        /// To measure a size.
        Probes = "probes",
        /// From nothing.
        Starts = "starts",
        /// With its lead elsewhere.
        StartsAnew = "starts_anew",
        /// Parked for others.
        Outbid = "outbid",
        /// Parked because its turn has ended.
        TurnEnds = "turn_ends",
        /// Parked of necessity.
        Parked = "parked",
        /// Starting is paused.
        WaitsForResume = "waits_for_resume",
        /// Nothing was planned.
        WaitsForPlan = "waits_for_plan",
        /// Too few nodes.
        WaitsForNodes = "waits_for_nodes",
        /// No known rate.
        WaitsForRate = "waits_for_rate",
        /// Too little of hosts.
        WaitsForHosts = "waits_for_hosts",
        /// No change left in this round.
        WaitsForBudget = "waits_for_budget",
        /// Windows too short.
        WaitsForWindows = "waits_for_windows",
        /// Others make more of it.
        WaitsForOthers = "waits_for_others",
        /// Others come before it.
        WaitsForTurn = "waits_for_turn",
        /// In the words of another round.
        Said = "said",
    }
}

/// Nodes with the rate on them, samples a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatedSize {
    /// Number of nodes.
    pub nodes: usize,
    /// The rate.
    pub rate: f64,
}

/// Nodes that a job must leave now; none in most rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeavingNodes(pub Vec<NodeName>);

/// What a job would need to start, and what there is.
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
    /// What kind of reason it is.
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

    /// The words of a job that holds nodes, and does not start: it keeps, gains or loses some.
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
            JobReason::GivesUp { had, gets, secs } => {
                write!(f, "shrinks from {had} to {}: others make more of what it", NodeCountText(*gets))?;
                write!(f, " gives up than the {secs:.0} s cost")
            }
            JobReason::Shrinks { had, gets, leaving } => {
                write!(f, "shrinks from {had} to {}{leaving}", NodeCountText(*gets))
            }
            JobReason::Swaps { gets, leaving } => {
                write!(f, "keeps its size of {} on other nodes or with", NodeCountText(gets.nodes))?;
                write!(f, " another execution plan, {:.2} samples/s{leaving}", gets.rate)
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
            JobReason::Outbid { had } => {
                write!(f, "is parked: other jobs make more of its {}", NodeCountText(*had))
            }
            JobReason::TurnEnds { had } => {
                write!(f, "is parked: its turn has ended, and another job gets its {}", NodeCountText(*had))
            }
            JobReason::Parked { leaving, shortage } => write!(f, "is parked{leaving}; {shortage}"),
            _ => Ok(()),
        }
    }

    /// The words of a job that holds nothing and gets nothing.
    fn fmt_waiting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobReason::WaitsForResume => f.write_str("waits: starting is paused"),
            JobReason::WaitsForPlan => f.write_str("waits: nothing was planned in this round"),
            JobReason::WaitsForNodes(shortage) => write!(f, "waits: {shortage}"),
            JobReason::WaitsForRate => f.write_str("waits: no rate is known on the node types that are free"),
            JobReason::WaitsForHosts(shortage) => write!(f, "waits: {shortage}"),
            JobReason::WaitsForBudget { most } => {
                write!(f, "waits for the next round: the {most} changes of this one are used up")
            }
            JobReason::WaitsForWindows { free, all, start_secs } => {
                write!(f, "waits: {free} of {} are free, but their windows are", NodeCountText(*all))?;
                write!(f, " too short to earn back a start of {start_secs:.0} s")
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
                write!(f, "starts anew on {} with its lead on another node, ", NodeCountText(gets.nodes))?;
                write!(f, "{:.2} samples/s after {secs:.0} s{leaving}", gets.rate)
            }
            JobReason::Said(why) => f.write_str(why),
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

/// `keeps its 3 nodes at 2.50 samples/s`.
impl fmt::Display for RatedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keeps its {} at {:.2} samples/s", NodeCountText(self.nodes), self.rate)
    }
}

/// As the end of a sentence; empty if there is none to leave.
impl fmt::Display for LeavingNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.0.split_first() else { return Ok(()) };
        write!(f, "; it must leave {first}")?;
        if self.0.len() > MOST_NAMED {
            return write!(f, " and {} more", others.len());
        }
        others.iter().try_for_each(|node| write!(f, ", {node}"))
    }
}

impl fmt::Display for NodeShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let are = if self.free == 1 { "is" } else { "are" };
        write!(f, "needs at least {}; {} {are} free", NodeCountText(self.least as usize), self.free)?;
        write!(f, " for longer than {:.0} s", self.window_secs)
    }
}

/// `1 node`, `3 nodes`.
struct NodeCountText(usize);

impl fmt::Display for NodeCountText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests;
