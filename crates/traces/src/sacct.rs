//! Job logs as Slurm's accounting prints them:
//! `sacct -aXPo JobID,User,Account,Partition,Submit,Start,End,Timelimit,NNodes,NodeList,AllocTRES,State`.

use std::path::Path;

use chrono::NaiveDateTime;

use super::error::TraceError;
use super::field::{count, wrong};
use super::jobs::number_and_sort;
use super::names::Names;
use super::open::Source;
use super::table::{Dialect, Row, Table};
use infill_model::{
    JobId, JobLog, LoggedJob, NodeName, Reading, duration, hostlist, trace::MAX_NODES_A_MACHINE,
};

/// Most nodes of all jobs together. Keeps memory bounded: a short text may name many nodes.
const MAX_PLACES: usize = 50_000_000;

/// Reads what `sacct --parsable2` prints, with its header. Columns, divided by `|`, in any order: `JobID`,
/// `Start`, `End` and `NNodes` must be; `User`, `Account`, `Partition`, `Submit`, `Timelimit`, `NodeList`,
/// `AllocTRES` and `State` may be; others are ignored. GPUs are in AllocTRES where the site counts them
/// (`AccountingStorageTRES=gres/gpu`).
///
/// Times have no zone and are taken for UTC: with another zone all are off by the same, and by an hour around
/// a change of the clocks (set `TZ=UTC` for sacct to avoid it). A job without a start, one without a second
/// to run, and steps are left out and counted in [`JobLog::left_out`]; one without an end still runs, and is
/// taken to run until the last time in the log. A requeued job has a line for each run only with `sacct
/// --duplicates`.
///
/// # Errors
/// When the file cannot be read, lacks a column, has too many malformed lines, or no job that ran.
pub fn read_sacct(path: &Path) -> Result<Reading<JobLog>, TraceError> {
    parse(Source::open(path)?)
}

/// Columns in which a user may have written anything, bars included; those first that have them most often.
pub(super) const TEXTS: [&str; 3] = ["JobName", "SubmitLine", "WorkDir"];

/// Where the columns are.
struct Columns {
    job: usize,
    start: usize,
    end: usize,
    nodes: usize,
    user: Option<usize>,
    account: Option<usize>,
    partition: Option<usize>,
    submit: Option<usize>,
    limit: Option<usize>,
    node_list: Option<usize>,
    tres: Option<usize>,
    state: Option<usize>,
}

/// What was read so far.
#[derive(Default)]
struct Log {
    jobs: Vec<LoggedJob>,
    left_out: usize,
    names: Names,
    places: usize,
    /// Latest time of any kind.
    last: Option<i64>,
}

pub(super) fn parse(source: Source) -> Result<Reading<JobLog>, TraceError> {
    let table = Table::open(source, Dialect::Bars)?.with_texts(&TEXTS);
    let columns = Columns::find(&table)?;
    let mut log = Log::default();
    let tally = table.each(|row| log.add(&columns, row))?;
    let log = log.close();
    let some = !log.jobs.is_empty();
    tally.finish(log, some, "job that ran")
}

impl Columns {
    fn find(table: &Table) -> Result<Columns, TraceError> {
        Ok(Columns {
            job: table.require("JobID")?,
            start: table.require("Start")?,
            end: table.require("End")?,
            nodes: table.require("NNodes")?,
            user: table.find("User"),
            account: table.find("Account"),
            partition: table.find("Partition"),
            submit: table.find("Submit"),
            limit: table.find("Timelimit"),
            node_list: table.find("NodeList"),
            tres: table.find("AllocTRES"),
            state: table.find("State"),
        })
    }
}

impl Log {
    fn add(&mut self, columns: &Columns, row: &Row) -> Result<(), String> {
        let name = row.get(columns.job);
        if name.is_empty() {
            return Err(wrong("JobID", name, "a job"));
        }
        let submit = time("Submit", row.get_if(columns.submit))?;
        let start = time("Start", row.get(columns.start))?;
        let end = time("End", row.get(columns.end))?;
        self.last = self.last.max(submit).max(start).max(end);
        let is_step = name.contains('.');
        let Some(start) = start.filter(|s| !is_step && end != Some(*s)) else {
            self.left_out += 1;
            return Ok(());
        };
        if end.is_some_and(|end| end < start) {
            return Err(wrong("End", row.get(columns.end), "a time after Start"));
        }
        let text = |column: Option<usize>| row.get_if(column).to_owned();
        let job = LoggedJob {
            id: JobId(0),
            name: name.to_owned(),
            user: text(columns.user),
            account: text(columns.account),
            partition: text(columns.partition),
            submit: submit.unwrap_or(start).min(start),
            start,
            // One that still runs ends where the log does, which is known at the log's end.
            end: end.unwrap_or(start),
            limit_secs: limit(row.get_if(columns.limit))?,
            nodes: count("NNodes", row.get(columns.nodes), MAX_NODES_A_MACHINE)?,
            node_list: self.node_list(row.get_if(columns.node_list))?,
            gpus: columns.tres.map(|at| gpus(row.get(at))).transpose()?,
            state: text(columns.state),
        };
        self.jobs.push(job);
        Ok(())
    }

    fn node_list(&mut self, list: &str) -> Result<Vec<NodeName>, String> {
        let nodes = hostlist::expand(list).map_err(|e| format!("NodeList: {e}"))?;
        self.places = self.places.saturating_add(nodes.len());
        if self.places > MAX_PLACES {
            return Err(format!("NodeList: the jobs up to here have more than {MAX_PLACES} nodes together"));
        }
        Ok(nodes.into_iter().map(|node| self.names.shared(node)).collect())
    }

    fn close(self) -> JobLog {
        let (mut jobs, mut left_out) = (self.jobs, self.left_out);
        let before = jobs.len();
        // All that is listed ended in the days that were asked for, or still runs: what ran from the first
        // end on is here.
        let complete_from = jobs.iter().filter(|j| j.end > j.start).map(|j| j.end).min();
        for job in jobs.iter_mut().filter(|j| j.end == j.start) {
            job.end = self.last.unwrap_or(job.start);
        }
        jobs.retain(|j| j.end > j.start);
        left_out += before - jobs.len();
        JobLog { jobs: number_and_sort(jobs), epoch: Some(0), complete_from, left_out, ..JobLog::default() }
    }
}

/// Seconds since 1970 of a time such as `2026-03-01T10:00:00`; `None` where there is none.
pub(super) fn time(name: &str, text: &str) -> Result<Option<i64>, String> {
    if matches!(text, "" | "Unknown" | "None" | "N/A") {
        return Ok(None);
    }
    let time: Result<NaiveDateTime, _> = text.parse();
    let secs = time.map(|t| t.and_utc().timestamp());
    secs.map(Some).map_err(|_| wrong(name, text, "a time such as 2026-03-01T10:00:00"))
}

/// The GPUs of `cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1`, where each may come with its type and without.
pub(super) fn gpus(tres: &str) -> Result<u32, String> {
    let (mut all, mut typed) = (None, 0u32);
    for (name, value) in tres.split(',').filter_map(|item| item.split_once('=')) {
        let kind = match name.trim().strip_prefix("gres/gpu") {
            Some(kind) if kind.is_empty() || kind.starts_with(':') => kind,
            // Something else, such as gres/gpumem.
            _ => continue,
        };
        let gpus = value.parse().ok().filter(|n| *n <= MAX_NODES_A_MACHINE);
        let gpus = gpus.ok_or_else(|| wrong("AllocTRES", tres, "whole numbers of GPUs, as in gres/gpu=2"))?;
        match kind {
            "" => all = Some(gpus),
            _ => typed = typed.saturating_add(gpus),
        }
    }
    Ok(all.unwrap_or(typed))
}

/// The CPUs of such a text; 0 where it has none.
pub(super) fn cpus(tres: &str) -> Result<u64, String> {
    let Some(text) = tres.split(',').find_map(|item| item.trim().strip_prefix("cpu=")) else { return Ok(0) };
    text.parse().map_err(|_| wrong("AllocTRES", tres, "a whole number of CPUs, as in cpu=8"))
}

/// Seconds of a limit `[DD-]HH:MM:SS`; `None` where there is no limit, or where it is the partition's.
pub(super) fn limit(text: &str) -> Result<Option<i64>, String> {
    if matches!(text, "" | "UNLIMITED" | "Partition_Limit" | "INVALID" | "Unknown" | "None") {
        return Ok(None);
    }
    let secs = duration::parse(text).ok_or_else(|| wrong("Timelimit", text, "[DD-]HH:MM:SS"))?;
    Ok(i64::try_from(secs).ok().filter(|s| *s > 0))
}
