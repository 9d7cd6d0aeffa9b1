//! What logs of other machines say: when nodes were idle, which jobs ran, how programs scale, which malleable
//! jobs come.
//!
//! Times are whole seconds on the log's own clock: since 1970 or since the log's start. Only differences
//! matter here.

use std::fmt;

use super::{EndedJob, JobId, NodeName, ScalingCurve};

/// A node was idle from `start` up to, not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleInterval {
    /// First idle second.
    pub start: i64,
    /// The second in which it was taken; after `start`.
    pub end: i64,
    /// The node.
    pub node: NodeName,
}

/// When the nodes of a machine were idle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleLog {
    /// Sorted by start, then end, then node as people count. Those of one node do not overlap.
    pub intervals: Vec<IdleInterval>,
    /// Earliest start, s.
    pub start: i64,
    /// Latest end, s.
    pub end: i64,
}

/// Most nodes of a machine, or processors where a log counts these: more is a mistake in the log.
pub const MAX_NODES_A_MACHINE: u32 = 4_000_000;

/// A job that ran on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedJob {
    /// Its place among the jobs of the log that ran, in the log's order, from 1. Unlike the name it is
    /// unique.
    pub id: JobId,
    /// The log's own id, such as `123_4`. A job that was requeued has several entries of one name.
    pub name: String,
    /// Owner, as the log names it; empty if it does not.
    pub user: String,
    /// Account or group; empty if the log has none.
    pub account: String,
    /// Partition or queue; empty if the log has none.
    pub partition: String,
    /// When it was submitted, s; not after `start`.
    pub submit: i64,
    /// When it began to run, s.
    pub start: i64,
    /// When it ended, s; after `start`.
    pub end: i64,
    /// Requested time, s, positive; `None` if the log does not say, or without a limit.
    pub limit_secs: Option<i64>,
    /// How many nodes it held, at least 1.
    pub nodes: u32,
    /// Which nodes, sorted by name; empty if the log does not say. May differ in number from `nodes` where a
    /// job shrank.
    pub node_list: Vec<NodeName>,
    /// How many GPUs it held on all of them; `None` if the log does not say.
    pub gpus: Option<u32>,
    /// How it ended, in Slurm's words and as the log has it (`CANCELLED by 123`); empty if the log does not
    /// say.
    pub state: String,
}

/// The jobs that ran on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLog {
    /// Sorted by start, then id.
    pub jobs: Vec<LoggedJob>,
    /// Size of the machine, in the unit of [`LoggedJob::nodes`]; `None` if the log does not say.
    pub nodes_total: Option<u32>,
    /// The Unix time of the log's second 0; `None` if the log does not say.
    pub epoch: Option<i64>,
    /// The machine's time zone, as the log names it (`Europe/Stockholm`, or seconds from UTC).
    pub time_zone: Option<String>,
    /// From when on the log has every job that ran, s; `None`: from its first start. A listing of what ran in
    /// some days has jobs that began long before, without those that ran beside them then.
    pub complete_from: Option<i64>,
    /// Entries left out though nothing is wrong with them: cancelled before they ran, no time to run, or
    /// parts of a job.
    pub left_out: usize,
}

/// The jobs of a log that have ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedLog {
    /// In the log's order.
    pub jobs: Vec<EndedJob>,
    /// Entries left out though nothing is wrong with them: steps, jobs that have not ended or never ran, and
    /// wings.
    pub left_out: usize,
}

/// A line that is not what it should be, and was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedLine {
    /// Line of the decompressed file, from 1.
    pub line: usize,
    /// What was found and what was expected.
    pub what: String,
}

impl fmt::Display for MalformedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// What a file says, and how much of it was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "malformed lines are worth a warning"]
pub struct ParsedFile<T> {
    /// What it says.
    pub value: T,
    /// The first malformed lines, by line, at most [`ParsedFile::MOST_KEPT`].
    pub malformed: Vec<MalformedLine>,
    /// How many lines were malformed.
    pub malformed_count: usize,
}

impl<T> ParsedFile<T> {
    /// Most malformed lines that are kept: enough to see a pattern.
    pub const MOST_KEPT: usize = 20;
}

/// A malleable job to come.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadJob {
    /// Its name, unique in a workload.
    pub name: String,
    /// When it is submitted, s since the start of the simulation.
    pub submit_secs: i64,
    /// Work: how many samples it has to process, positive; in the unit of its curve.
    pub samples: f64,
    /// Fewest nodes that it runs on, at least 1.
    pub min_nodes: u32,
    /// Most nodes that it can use, not below `min_nodes`.
    pub max_nodes: u32,
    /// Name of its curve.
    pub curve: String,
    /// Weight in the objective, positive.
    pub weight: f64,
    /// Its owner, if the file says.
    pub user: Option<String>,
}

/// How a program scales.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCurve {
    /// Name by which a workload refers to it.
    pub name: String,
    /// Samples a second by number of nodes.
    pub curve: ScalingCurve,
}
