//! The sentences of the reasons of jobs.

use std::cmp::Ordering;
use std::fmt;

use super::{JobReason, LeavingNodes, MAX_NAMED, NodeShortage, RatedSize};
use crate::NodeCount;
use crate::duration;
use crate::turn_state::QueuePosition;

impl JobReason {
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
                write!(f, "grows from {had} to {}", NodeCount(gets.nodes))?;
                match gets.rate {
                    Some(rate) => {
                        write!(f, " because {rate:.2} samples/s instead of {before:.2} are worth")?;
                        write!(f, " {secs:.0} s without samples{leaving}")
                    }
                    None => {
                        write!(f, " because that should be worth {secs:.0} s without samples")?;
                        write!(f, "; its rate is not known yet{leaving}")
                    }
                }
            }
            JobReason::GivesUp { had, gets, before, taken, secs } => {
                write!(f, "shrinks from {had} to {}", NodeCount(gets.nodes))?;
                if *taken > 0 {
                    write!(f, ": other jobs make more of {} than the {secs:.0} s", NodeCount(*taken))?;
                    f.write_str(" without samples cost")
                } else if let Some(rate) = gets.rate.filter(|rate| rate > before) {
                    write!(f, " because {rate:.2} samples/s instead of {before:.2}")?;
                    write!(f, " are worth {secs:.0} s without samples")
                } else {
                    f.write_str(": later steps of the plan are worth more with fewer nodes now")
                }
            }
            JobReason::Shrinks { had, gets, leaving } => {
                write!(f, "shrinks from {had} to {}{leaving}", NodeCount(*gets))
            }
            JobReason::Swaps { gets, moves, plan, leaving } => {
                f.write_str(if *moves { "moves to other nodes" } else { "keeps its nodes" })?;
                if let Some(plan) = plan {
                    write!(f, " and changes to execution plan {}", plan.0)?;
                }
                write!(f, ": {}{}{leaving}", NodeCount(gets.nodes), AtRate(gets.rate))
            }
            JobReason::Probes { had, gets, secs, leaving, probe } => {
                match had.cmp(gets) {
                    _ if *had == 0 => write!(f, "starts on {}", NodeCount(*gets))?,
                    Ordering::Less => write!(f, "grows from {had} to {}", NodeCount(*gets))?,
                    Ordering::Equal => write!(f, "keeps its size of {}", NodeCount(*gets))?,
                    Ordering::Greater => write!(f, "shrinks from {had} to {}", NodeCount(*gets))?,
                }
                write!(f, ": {probe}")?;
                if *secs > 0.0 {
                    write!(f, "; {secs:.0} s without samples")?;
                }
                write!(f, "{leaving}")
            }
            JobReason::Outbid { had, taken: 0 } => {
                write!(f, "is parked: its {} would soon cost", NodeCount(*had))?;
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
                write!(f, "waits: {free} of {} {are} free, but not for long", NodeCount(*all))?;
                write!(f, " enough to earn back a start of {start_secs:.0} s")
            }
            JobReason::WaitsForOthers { min_nodes, taken, all, window_secs } => {
                write!(
                    f,
                    "waits: needs at least {}; other jobs make more of",
                    NodeCount(*min_nodes as usize)
                )?;
                write!(f, " {taken} of the {all} that are free for longer than {window_secs:.0} s")
            }
            JobReason::WaitsForTurn(QueuePosition { position, queue_length, secs }) => {
                write!(f, "waits for its turn: it is number {position} of {queue_length} in line, about")?;
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
                write!(f, "is in the middle of a change; keeps {} until that is done", NodeCount(*nodes))
            }
            JobReason::Drained => f.write_str("is parked: an administrator drains infill"),
            JobReason::BacksOff { secs } => {
                write!(f, "backs off for {secs:.0} s more after a preemption or failure")
            }
            JobReason::Blocked { blocker, at } => f.write_str(&blocker.describe_at(*at)),
            JobReason::Starts { gets, secs } => {
                write!(f, "starts on {}{} after {secs:.0} s", NodeCount(gets.nodes), AtRate(gets.rate))
            }
            JobReason::StartsAgain { gets, secs, leaving } => {
                write!(f, "starts again on {} with its lead on another node,", NodeCount(gets.nodes))?;
                write!(f, "{} after {secs:.0} s{leaving}", AtRate(gets.rate))
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

/// Formats as ` at 2.50 samples/s`, or as nothing where the rate is not known.
struct AtRate(Option<f64>);

impl fmt::Display for AtRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |rate| write!(f, " at {rate:.2} samples/s"))
    }
}

/// Formats as `keeps its 3 nodes at 2.50 samples/s`.
impl fmt::Display for RatedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keeps its {}{}", NodeCount(self.nodes), AtRate(self.rate))
    }
}

/// Formats as the end of a sentence. Empty if there are no nodes to leave.
impl fmt::Display for LeavingNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, others)) = self.0.split_first() else { return Ok(()) };
        write!(f, "; it must leave {first}")?;
        if self.0.len() > MAX_NAMED {
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
        write!(f, "needs at least {}; {} {verb} free", NodeCount(self.min_nodes as usize), self.free)?;
        write!(f, " for longer than {:.0} s", self.window_secs)
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
        write!(f, "its {}", NodeCount(self.had))
    }
}
