//! Job logs, as Slurm's accounting prints them:
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

/// Most nodes of all jobs together. The bound limits memory, because a short text may name many nodes.
const MAX_LISTED_NODES: usize = 50_000_000;

/// Reads the output of `sacct --parsable2` with its header. Columns are divided by `|` and may be in any
/// order. Required columns are `JobID`, `Start`, `End` and `NNodes`. Optional ones are `User`, `Account`,
/// `Partition`, `Submit`, `Timelimit`, `NodeList`, `AllocTRES` and `State`. Other columns are ignored.
/// AllocTRES contains GPUs if the site counts them (`AccountingStorageTRES=gres/gpu`).
///
/// Times have no zone and are read as UTC. With another zone, all times are shifted equally, and by an hour
/// around a change of the clocks; `TZ=UTC` for sacct avoids this. Steps, and jobs without a start or a second
/// of run time, are left out and counted in [`JobLog::left_out`]. A job without an end still runs, and counts
/// as running until the last time in the log. A requeued job has a line for each run only with `sacct
/// --duplicates`.
///
/// # Errors
/// If the file cannot be read, lacks a column, has too many malformed lines, or has no job that ran.
pub fn read_sacct(path: &Path) -> Result<ParsedFile<JobLog>, TraceError> {
    parse(TraceSource::open(path)?)
}

/// Columns in which a user may have written any text, bars included. The ones with the most bars come first.
pub(super) const TEXTS: [&str; 3] = ["JobName", "SubmitLine", "WorkDir"];

/// The columns of the table.
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

/// The jobs that were read so far.
#[derive(Default)]
struct JobLogBuilder {
    jobs: Vec<LoggedJob>,
    left_out: usize,
    names: NodeNameTable,
    listed_nodes: usize,
    /// The latest time of any kind.
    last: Option<i64>,
}

pub(super) fn parse(source: TraceSource) -> Result<ParsedFile<JobLog>, TraceError> {
    let table = Table::open(source, TableDialect::Bars)?.with_texts(&TEXTS);
    let columns = SacctColumns::from_table(&table)?;
    let mut log = JobLogBuilder::default();
    let tally = table.for_each_row(|row| log.add_row(&columns, row))?;
    let log = log.finish();
    let has_jobs = !log.jobs.is_empty();
    tally.finish(log, has_jobs, "job that ran")
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
        let has_run_time = end != start;
        let Some(start) = start.filter(|_| !is_step && has_run_time) else {
            self.left_out += 1;
            return Ok(());
        };
        if end.is_some_and(|end| end < start) {
            return Err(wrong_value("End", row.get(columns.end), "a time after Start"));
        }
        let job = LoggedJob {
            id: JobId(0),
            name: name.to_owned(),
            user: row.get_if(columns.user).to_owned(),
            account: row.get_if(columns.account).to_owned(),
            partition: row.get_if(columns.partition).to_owned(),
            submit: submit.unwrap_or(start).min(start),
            start,
            // A running job ends where the log does, which is only known at the log's end.
            end: end.unwrap_or(start),
            limit_secs: parse_limit(row.get_if(columns.limit))?,
            nodes: parse_count("NNodes", row.get(columns.nodes), MAX_NODES_A_MACHINE)?,
            node_list: self.node_list(row.get_if(columns.node_list))?,
            gpus: columns.tres.map(|column| parse_gpus(row.get(column))).transpose()?,
            state: row.get_if(columns.state).to_owned(),
        };
        self.jobs.push(job);
        Ok(())
    }

    fn node_list(&mut self, list: &str) -> Result<Vec<NodeName>, String> {
        let nodes = hostlist::expand_hostlist(list).map_err(|e| format!("NodeList: {e}"))?;
        self.listed_nodes = self.listed_nodes.saturating_add(nodes.len());
        if self.listed_nodes > MAX_LISTED_NODES {
            return Err(format!(
                "NodeList: the jobs up to here have more than {MAX_LISTED_NODES} nodes together"
            ));
        }
        Ok(nodes.into_iter().map(|node| self.names.shared_name(node)).collect())
    }

    fn finish(self) -> JobLog {
        let mut jobs = self.jobs;
        let mut left_out = self.left_out;
        let jobs_read = jobs.len();
        // All listed jobs ended in the requested days, or still run. So the log has all runs from the
        // first end on.
        let ends = jobs.iter().filter(|job| job.end > job.start).map(|job| job.end);
        let complete_from = ends.min();
        for job in jobs.iter_mut().filter(|job| job.end == job.start) {
            job.end = self.last.unwrap_or(job.start);
        }
        jobs.retain(|job| job.end > job.start);
        left_out += jobs_read - jobs.len();
        JobLog { jobs: number_and_sort(jobs), epoch: Some(0), complete_from, left_out, ..JobLog::default() }
    }
}

/// Unix time of a text such as `2026-03-01T10:00:00`. `None` for Slurm's words for no time.
pub(super) fn parse_time(name: &str, text: &str) -> Result<Option<i64>, String> {
    if matches!(text, "" | "Unknown" | "None" | "N/A") {
        return Ok(None);
    }
    let time: Result<NaiveDateTime, _> = text.parse();
    let secs = time.map(|time| time.and_utc().timestamp());
    secs.map(Some).map_err(|_| wrong_value(name, text, "a time such as 2026-03-01T10:00:00"))
}

/// The GPUs of `cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1`. Each number may occur with its type and without.
pub(super) fn parse_gpus(tres: &str) -> Result<u32, String> {
    let mut total = None;
    let mut typed = 0u32;
    for (name, value) in tres.split(',').filter_map(|item| item.split_once('=')) {
        let kind = match name.trim().strip_prefix("gres/gpu") {
            Some(kind) if kind.is_empty() || kind.starts_with(':') => kind,
            // Another resource, such as gres/gpumem.
            _ => continue,
        };
        let gpus = value.parse().ok().filter(|gpus| *gpus <= MAX_NODES_A_MACHINE);
        let gpus =
            gpus.ok_or_else(|| wrong_value("AllocTRES", tres, "whole numbers of GPUs, as in gres/gpu=2"))?;
        match kind {
            "" => total = Some(gpus),
            _ => typed = typed.saturating_add(gpus),
        }
    }
    Ok(total.unwrap_or(typed))
}

/// The CPUs of such a text; 0 if it has none.
pub(super) fn parse_cpus(tres: &str) -> Result<u64, String> {
    let Some(text) = tres.split(',').find_map(|item| item.trim().strip_prefix("cpu=")) else { return Ok(0) };
    text.parse().map_err(|_| wrong_value("AllocTRES", tres, "a whole number of CPUs, as in cpu=8"))
}

/// Seconds of a limit `[DD-]HH:MM:SS`. `None` without a limit, or for the partition's limit.
pub(super) fn parse_limit(text: &str) -> Result<Option<i64>, String> {
    if matches!(text, "" | "UNLIMITED" | "Partition_Limit" | "INVALID" | "Unknown" | "None") {
        return Ok(None);
    }
    let secs = duration::parse(text).ok_or_else(|| wrong_value("Timelimit", text, "[DD-]HH:MM:SS"))?;
    Ok(i64::try_from(secs).ok().filter(|secs| *secs > 0))
}
