//! Job logs as Slurm's accounting prints them:
//! `sacct -aXPo JobID,User,Account,Partition,Submit,Start,End,Timelimit,NNodes,NodeList,AllocTRES,State`.

use std::path::Path;

use chrono::NaiveDateTime;

use super::error::TraceError;
use super::jobs::number_and_sort;
use super::line_reader::TraceSource;
use super::node_name_table::NodeNameTable;
use super::parse_field::{parse_count, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{
    JobId, JobLog, LoggedJob, NodeName, ParsedFile, duration, hostlist, trace::MAX_NODES_A_MACHINE,
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
pub fn read_sacct(path: &Path) -> Result<ParsedFile<JobLog>, TraceError> {
    parse(TraceSource::open(path)?)
}

/// Columns in which a user may have written anything, bars included; those first that have them most often.
pub(super) const TEXTS: [&str; 3] = ["JobName", "SubmitLine", "WorkDir"];

/// Where the columns are.
struct SacctColumns {
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
struct JobLogBuilder {
    jobs: Vec<LoggedJob>,
    left_out: usize,
    names: NodeNameTable,
    places: usize,
    /// Latest time of any kind.
    last: Option<i64>,
}

pub(super) fn parse(source: TraceSource) -> Result<ParsedFile<JobLog>, TraceError> {
    let table = Table::open(source, TableDialect::Bars)?.with_texts(&TEXTS);
    let columns = SacctColumns::from_table(&table)?;
    let mut log = JobLogBuilder::default();
    let tally = table.for_each_row(|row| log.add_row(&columns, row))?;
    let log = log.close();
    let some = !log.jobs.is_empty();
    tally.finish(log, some, "job that ran")
}

impl SacctColumns {
    fn from_table(table: &Table) -> Result<SacctColumns, TraceError> {
        Ok(SacctColumns {
            job: table.require_column("JobID")?,
            start: table.require_column("Start")?,
            end: table.require_column("End")?,
            nodes: table.require_column("NNodes")?,
            user: table.find_column("User"),
            account: table.find_column("Account"),
            partition: table.find_column("Partition"),
            submit: table.find_column("Submit"),
            limit: table.find_column("Timelimit"),
            node_list: table.find_column("NodeList"),
            tres: table.find_column("AllocTRES"),
            state: table.find_column("State"),
        })
    }
}

impl JobLogBuilder {
    fn add_row(&mut self, columns: &SacctColumns, row: &TableRow) -> Result<(), String> {
        let name = row.get(columns.job);
        if name.is_empty() {
            return Err(wrong_value("JobID", name, "a job"));
        }
        let submit = parse_time("Submit", row.get_if(columns.submit))?;
        let start = parse_time("Start", row.get(columns.start))?;
        let end = parse_time("End", row.get(columns.end))?;
        self.last = self.last.max(submit).max(start).max(end);
        let is_step = name.contains('.');
        let Some(start) = start.filter(|s| !is_step && end != Some(*s)) else {
            self.left_out += 1;
            return Ok(());
        };
        if end.is_some_and(|end| end < start) {
            return Err(wrong_value("End", row.get(columns.end), "a time after Start"));
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
            limit_secs: parse_limit(row.get_if(columns.limit))?,
            nodes: parse_count("NNodes", row.get(columns.nodes), MAX_NODES_A_MACHINE)?,
            node_list: self.node_list(row.get_if(columns.node_list))?,
            gpus: columns.tres.map(|at| parse_gpus(row.get(at))).transpose()?,
            state: text(columns.state),
        };
        self.jobs.push(job);
        Ok(())
    }

    fn node_list(&mut self, list: &str) -> Result<Vec<NodeName>, String> {
        let nodes = hostlist::expand_hostlist(list).map_err(|e| format!("NodeList: {e}"))?;
        self.places = self.places.saturating_add(nodes.len());
        if self.places > MAX_PLACES {
            return Err(format!("NodeList: the jobs up to here have more than {MAX_PLACES} nodes together"));
        }
        Ok(nodes.into_iter().map(|node| self.names.shared_name(node)).collect())
    }

    fn close(self) -> JobLog {
        let mut jobs = self.jobs;
        let mut left_out = self.left_out;
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
pub(super) fn parse_time(name: &str, text: &str) -> Result<Option<i64>, String> {
    if matches!(text, "" | "Unknown" | "None" | "N/A") {
        return Ok(None);
    }
    let time: Result<NaiveDateTime, _> = text.parse();
    let secs = time.map(|t| t.and_utc().timestamp());
    secs.map(Some).map_err(|_| wrong_value(name, text, "a time such as 2026-03-01T10:00:00"))
}

/// The GPUs of `cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1`, where each may come with its type and without.
pub(super) fn parse_gpus(tres: &str) -> Result<u32, String> {
    let mut all = None;
    let mut typed = 0u32;
    for (name, value) in tres.split(',').filter_map(|item| item.split_once('=')) {
        let kind = match name.trim().strip_prefix("gres/gpu") {
            Some(kind) if kind.is_empty() || kind.starts_with(':') => kind,
            // Something else, such as gres/gpumem.
            _ => continue,
        };
        let gpus = value.parse().ok().filter(|n| *n <= MAX_NODES_A_MACHINE);
        let gpus =
            gpus.ok_or_else(|| wrong_value("AllocTRES", tres, "whole numbers of GPUs, as in gres/gpu=2"))?;
        match kind {
            "" => all = Some(gpus),
            _ => typed = typed.saturating_add(gpus),
        }
    }
    Ok(all.unwrap_or(typed))
}

/// The CPUs of such a text; 0 where it has none.
pub(super) fn parse_cpus(tres: &str) -> Result<u64, String> {
    let Some(text) = tres.split(',').find_map(|item| item.trim().strip_prefix("cpu=")) else { return Ok(0) };
    text.parse().map_err(|_| wrong_value("AllocTRES", tres, "a whole number of CPUs, as in cpu=8"))
}

/// Seconds of a limit `[DD-]HH:MM:SS`; `None` where there is no limit, or where it is the partition's.
pub(super) fn parse_limit(text: &str) -> Result<Option<i64>, String> {
    if matches!(text, "" | "UNLIMITED" | "Partition_Limit" | "INVALID" | "Unknown" | "None") {
        return Ok(None);
    }
    let secs = duration::parse(text).ok_or_else(|| wrong_value("Timelimit", text, "[DD-]HH:MM:SS"))?;
    Ok(i64::try_from(secs).ok().filter(|s| *s > 0))
}
