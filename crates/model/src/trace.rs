//! Contents of logs of other machines: idle times of nodes, past jobs, scaling of programs, and malleable
//! jobs to come.
//!
//! Times are whole seconds on the log's own clock, since 1970 or since the log's start. Only differences
//! matter here.

use std::fmt;

use super::{EndedJob, JobId, NodeName, ScalingCurve};

/// A node was idle from `start` up to, but not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleInterval {
    /// First idle second.
    pub start: i64,
    /// The second in which the node was taken, after `start`.
    pub end: i64,
    /// The node.
    pub node: NodeName,
}

/// The idle times of the nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleLog {
    /// Sorted by start, then end, then node in natural order. Intervals of one node do not overlap.
    pub intervals: Vec<IdleInterval>,
    /// The earliest start, in seconds.
    pub start: i64,
    /// The latest end, in seconds.
    pub end: i64,
}

/// Most nodes of a machine, or processors if the log counts those. A larger number is an error in the log.
pub const MAX_NODES_A_MACHINE: u32 = 4_000_000;

/// A job that ran on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedJob {
    /// Its position among the jobs that ran, in the log's order, from 1. Unlike the name it is unique.
    pub id: JobId,
    /// The log's own id, such as `123_4`. A requeued job has several entries with one name.
    pub name: String,
    /// The owner as the log names it; empty if the log has none.
    pub user: String,
    /// The account or group; empty if the log has none.
    pub account: String,
    /// The partition or queue; empty if the log has none.
    pub partition: String,
    /// When it was submitted, in seconds, at the latest at `start`.
    pub submit: i64,
    /// When it began to run, in seconds.
    pub start: i64,
    /// When it ended, in seconds, after `start`.
    pub end: i64,
    /// The requested time in seconds, positive. `None` if the log does not say, or there was no limit.
    pub limit_secs: Option<i64>,
    /// The number of nodes that it held, at least 1.
    pub nodes: u32,
    /// The nodes that it held, sorted by name. Empty if the log does not say. Their number may differ from
    /// `nodes` if the job shrank.
    pub node_list: Vec<NodeName>,
    /// The number of GPUs on all its nodes; `None` if the log does not say.
    pub gpus: Option<u32>,
    /// How it ended, in Slurm's words as the log has them (`CANCELLED by 123`). Empty if the log does not
    /// say.
    pub state: String,
}

/// The jobs that ran on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLog {
    /// Sorted by start, then id.
    pub jobs: Vec<LoggedJob>,
    /// The size of the machine, in the unit of [`LoggedJob::nodes`]. `None` if the log does not say.
    pub nodes_total: Option<u32>,
    /// The Unix time of the log's second 0; `None` if the log does not say.
    pub epoch: Option<i64>,
    /// The machine's time zone, as the log names it (`Europe/Stockholm`, or seconds from UTC).
    pub time_zone: Option<String>,
    /// From when on the log has every job that ran, in seconds. `None` for its first start. A listing of some
    /// days also has jobs that began long before, without those that ran beside them then.
    pub complete_from: Option<i64>,
    /// Valid entries that were left out: cancelled before they ran, without run time, or parts of a job.
    pub left_out: usize,
}

/// The ended jobs of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedLog {
    /// In the log's order.
    pub jobs: Vec<EndedJob>,
    /// Valid entries that were left out: steps, wings, and jobs that have not ended or never ran.
    pub left_out: usize,
}

/// A malformed line, which was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedLine {
    /// The number of the line in the decompressed file, from 1.
    pub line: usize,
    /// What the line has, and what was expected.
    pub what: String,
}

impl fmt::Display for MalformedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// The contents of a file, and the malformed lines that were skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "malformed lines are worth a warning"]
pub struct ParsedFile<T> {
    /// The contents.
    pub value: T,
    /// The first malformed lines, at most [`ParsedFile::MOST_KEPT`].
    pub malformed: Vec<MalformedLine>,
    /// The number of malformed lines.
    pub malformed_count: usize,
}

impl<T> ParsedFile<T> {
    /// Most malformed lines that are kept: enough to see a pattern.
    pub const MOST_KEPT: usize = 20;
}

/// A malleable job to come.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadJob {
    /// The job's name, unique in a workload.
    pub name: String,
    /// Submission time, in seconds since the start of the simulation.
    pub submit_secs: i64,
    /// Work: the number of samples to process, positive, in the unit of its curve.
    pub samples: f64,
    /// The fewest nodes that it runs on, at least 1.
    pub min_nodes: u32,
    /// The most nodes that it can use, at least `min_nodes`.
    pub max_nodes: u32,
    /// The name of its curve.
    pub curve: String,
    /// Weight in the objective, positive.
    pub weight: f64,
    /// The owner, if the file names one.
    pub user: Option<String>,
}

/// A named scaling curve.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCurve {
    /// The name with which a workload refers to it.
    pub name: String,
    /// Samples a second by number of nodes.
    pub curve: ScalingCurve,
}
