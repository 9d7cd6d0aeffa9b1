//! Ended jobs, as Slurm's accounting prints them. Predictions of job lengths learn from them.

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, wrong_value};
use super::sacct::{TEXTS, parse_gpus, parse_limit, parse_time};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{
    EndedJob, EndedLog, JobId, MAX_NAME_CHARS, ParsedFile, UnixTime, lead_from_wing_name, strip_digits,
    trace::MAX_NODES_A_MACHINE,
};

/// The value for `sacct --format`. After each text that users write (name, folder, command) there is a time.
/// So a line with bars in these texts can be read in only one way.
pub const SACCT_FORMAT: &str = "JobIDRaw,JobName,Submit,WorkDir,Start,SubmitLine,End,ElapsedRaw,User,Account,\
                                Timelimit,NNodes,AllocTRES,State,ExitCode,Partition";

/// Most jobs in a log.
const MAX_JOBS: usize = 1_000_000;

/// The longest run of a job in seconds: three hundred years.
const MAX_SECS: f64 = 1e10;

/// The states of jobs that have ended and will not run again.
const ENDED: [&str; 11] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "TIMEOUT",
];

/// Reads the output of `sacct --parsable2` with its header, for instance of `TZ=UTC sacct -aXPo` with
/// [`SACCT_FORMAT`]. Columns may be in any order, and unknown ones are ignored.
///
/// Required columns are `JobIDRaw` (or `JobID` if there are no job arrays), `User`, `Submit`, `Start`, `End`,
/// `NNodes` and `State`. Optional ones are `Account`, `JobName`, `WorkDir`, `SubmitLine`, `ElapsedRaw`,
/// `Timelimit`, `AllocTRES`, `ExitCode` and `Partition`. Jobs of the partition `without` are left out if it
/// is not empty. Times have no zone and are read as UTC. A requeued job counts with its last run.
///
/// # Errors
/// If the file cannot be read, lacks a column, or has too many malformed lines.
pub fn read_ended(path: &Path, without: &str) -> Result<ParsedFile<EndedLog>, TraceError> {
    parse(TraceSource::open(path)?, without)
}

/// Reads as [`read_ended`] does, from a stream. `name` stands for the file in messages.
///
/// # Errors
/// As for [`read_ended`].
pub fn read_ended_from(
    name: &Path,
    text: impl Read + Send + 'static,
    without: &str,
) -> Result<ParsedFile<EndedLog>, TraceError> {
    parse(TraceSource::from_reader(name, text)?, without)
}

pub(super) fn parse(source: TraceSource, without: &str) -> Result<ParsedFile<EndedLog>, TraceError> {
    let table = Table::open(source, TableDialect::Bars)?.with_texts(&TEXTS);
    let columns = EndedJobColumns::from_table(&table)?;
    let mut log = EndedLog::default();
    let tally = table.for_each_row(|row| {
        match columns.read_job(row, without)? {
            Some(_) if log.jobs.len() == MAX_JOBS => return Err(format!("more than {MAX_JOBS} jobs")),
            Some(job) => log.jobs.push(job),
            None => log.left_out += 1,
        }
        Ok(())
    })?;
    // On a quiet day no job may have ended, which is not an error.
    tally.finish(log, true, "job")
}

/// The columns of the table.
struct EndedJobColumns {
    job: usize,
    user: usize,
    submit: usize,
    span: SpanColumns,
    nodes: usize,
    state: usize,
    account: Option<usize>,
    name: Option<usize>,
    folder: Option<usize>,
    line: Option<usize>,
    elapsed: Option<usize>,
    limit: Option<usize>,
    tres: Option<usize>,
    exit: Option<usize>,
    partition: Option<usize>,
}

struct SpanColumns {
    start: usize,
    end: usize,
}

impl EndedJobColumns {
    fn from_table(table: &Table) -> Result<EndedJobColumns, TraceError> {
        Ok(EndedJobColumns {
            job: table.require_either("JobIDRaw", "JobID")?,
            user: table.require_column("User")?,
            submit: table.require_column("Submit")?,
            span: SpanColumns { start: table.require_column("Start")?, end: table.require_column("End")? },
            nodes: table.require_column("NNodes")?,
            state: table.require_column("State")?,
            account: table.find_column("Account"),
            name: table.find_column("JobName"),
            folder: table.find_column("WorkDir"),
            line: table.find_column("SubmitLine"),
            elapsed: table.find_column("ElapsedRaw"),
            limit: table.find_column("Timelimit"),
            tres: table.find_column("AllocTRES"),
            exit: table.find_column("ExitCode"),
            partition: table.find_column("Partition"),
        })
    }

    /// Reads a row. `None` for steps, wings, jobs of the partition `without`, and jobs that have not ended.
    fn read_job(&self, row: &TableRow, without: &str) -> Result<Option<EndedJob>, String> {
        let submit = parse_time("Submit", row.get(self.submit))?;
        let start = parse_time("Start", row.get(self.span.start))?;
        let end = parse_time("End", row.get(self.span.end))?;
        let job_id = row.get(self.job);
        let state = first_word(row.get(self.state));
        let has_ended = ENDED.contains(&state) && !job_id.contains('.');
        let is_wing = lead_from_wing_name(row.get_if(self.name)).is_some();
        let is_excluded = !without.is_empty() && row.get_if(self.partition) == without;
        if !has_ended || is_wing || is_excluded {
            return Ok(None);
        }
        let Some((start, end)) = start.zip(end) else { return Ok(None) };
        if end < start {
            return Err(wrong_value("End", row.get(self.span.end), "a time after Start"));
        }
        let run_secs = self.run_secs(row, start, end)?;
        // A job that was cancelled in the queue also has a start and an end.
        if run_secs == 0.0 && matches!(state, "CANCELLED" | "DEADLINE") {
            return Ok(None);
        }
        let submit = submit.ok_or_else(|| wrong_value("Submit", row.get(self.submit), "a time"))?;
        if end < submit {
            return Err(wrong_value("End", row.get(self.span.end), "a time after Submit"));
        }
        let nodes = parse_count("NNodes", row.get(self.nodes), MAX_NODES_A_MACHINE)?;
        let gpus = self.tres.map_or(Ok(0), |column| parse_gpus(row.get(column)))?;
        let secs = (end - start) as f64;
        if secs > MAX_SECS {
            let expected = "a time within three hundred years of Start";
            return Err(wrong_value("End", row.get(self.span.end), expected));
        }
        Ok(Some(EndedJob {
            job: parse_job_id(job_id)?,
            submitted_at: UnixTime(submit),
            ended_at: UnixTime(end),
            user: parse_user(row.get(self.user))?,
            account: printable_text(row.get_if(self.account)),
            name: printable_text(&strip_digits(row.get_if(self.name))),
            command_hash: recurring_job_hash(row.get_if(self.folder), row.get_if(self.line)),
            min_nodes: nodes,
            max_nodes: nodes,
            gpus_per_node: gpus.div_ceil(nodes),
            limit_secs: parse_limit(row.get_if(self.limit))?.map(|secs| secs as f64),
            work_secs: run_secs * f64::from(nodes),
            said_secs: None,
            flat_secs: None,
            samples: 0.0,
            secs,
            exit_code: parse_exit_code(state, row.get_if(self.exit))?,
            why: state.to_ascii_lowercase().replace('_', " "),
        }))
    }

    /// Seconds for which the job had its nodes and was not suspended.
    fn run_secs(&self, row: &TableRow, start: i64, end: i64) -> Result<f64, String> {
        let text = row.get_if(self.elapsed);
        if text.is_empty() {
            return Ok((end - start) as f64);
        }
        let secs = text.parse::<u32>().ok().map(f64::from);
        secs.ok_or_else(|| wrong_value("ElapsedRaw", text, "whole seconds"))
    }
}

/// The first word of a state: `CANCELLED` of `CANCELLED by 123`.
fn first_word(state: &str) -> &str {
    state.split_whitespace().next().unwrap_or_default()
}

fn parse_job_id(text: &str) -> Result<JobId, String> {
    text.parse().map(JobId).map_err(|_| {
        wrong_value("the job's id", text, "a number, which JobIDRaw also has for tasks of arrays")
    })
}

fn parse_user(text: &str) -> Result<String, String> {
    let user = printable_text(text);
    if user.is_empty() { Err(wrong_value("User", text, "a user")) } else { Ok(user) }
}

/// The printable characters of a text, cut to the length that the store accepts.
fn printable_text(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

/// A hash of the folder and the command of a submission, without digits: it is equal for the jobs of a
/// series. Empty if the command is unknown.
fn recurring_job_hash(folder: &str, line: &str) -> String {
    if line.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for text in [folder, line] {
        hash.update(strip_digits(text));
        hash.update([0]);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The exit code in `1:0`, where the second number is the signal that ended the command. `None` if a signal
/// or Slurm ended the job.
fn parse_exit_code(state: &str, text: &str) -> Result<Option<i32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let codes = text
        .split_once(':')
        .and_then(|(code, signal)| Some((code.parse::<i32>().ok()?, signal.parse::<u32>().ok()?)));
    let (code, signal) =
        codes.ok_or_else(|| wrong_value("ExitCode", text, "a code and a signal, as in 1:0"))?;
    let has_exited = signal == 0 && matches!(state, "COMPLETED" | "FAILED");
    Ok(if has_exited { Some(code) } else { None })
}
