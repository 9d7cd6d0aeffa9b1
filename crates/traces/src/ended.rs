//! Jobs that have ended, as Slurm's accounting prints them: what lengths are learned from.

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

/// What `sacct --format` is to print. What users write (name, folder, command) has a time behind it each, so
/// that there is one way only to read a line with bars in them.
pub const SACCT_FORMAT: &str = "JobIDRaw,JobName,Submit,WorkDir,Start,SubmitLine,End,ElapsedRaw,User,Account,\
                                Timelimit,NNodes,AllocTRES,State,ExitCode,Partition";

/// Most jobs of a log.
const MAX_JOBS: usize = 1_000_000;

/// Longest that a job can have run, s: three hundred years.
const MAX_SECS: f64 = 1e10;

/// States of jobs that have ended and will not run again.
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

/// Reads what `sacct --parsable2` prints with its header, for instance `TZ=UTC sacct -aXPo` and
/// [`SACCT_FORMAT`]. Columns may be in any order, and others are ignored. `JobIDRaw`, or `JobID` where no job
/// is of an array, `User`, `Submit`, `Start`, `End`, `NNodes` and `State` must be; `Account`, `JobName`,
/// `WorkDir`, `SubmitLine`, `ElapsedRaw`, `Timelimit`, `AllocTRES`, `ExitCode` and `Partition` may be. Jobs
/// of the partition `without` are left out, if it is named. Times have no zone, and are taken for UTC. A job
/// that was requeued counts with its last run.
///
/// # Errors
/// When the file cannot be read, lacks a column, or has too many malformed lines.
pub fn read_ended(path: &Path, without: &str) -> Result<ParsedFile<EndedLog>, TraceError> {
    parse(TraceSource::open(path)?, without)
}

/// The same of what comes from elsewhere, under a name.
///
/// # Errors
/// As of [`read_ended`].
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
    // On a quiet day nothing has ended, and nothing is wrong with that.
    tally.finish(log, true, "job")
}

/// Where the columns are.
struct EndedJobColumns {
    job: usize,
    user: usize,
    submit: usize,
    /// Start and end.
    ran: (usize, usize),
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

impl EndedJobColumns {
    fn from_table(table: &Table) -> Result<EndedJobColumns, TraceError> {
        Ok(EndedJobColumns {
            job: table.find_column("JobIDRaw").map_or_else(|| table.require_column("JobID"), Ok)?,
            user: table.require_column("User")?,
            submit: table.require_column("Submit")?,
            ran: (table.require_column("Start")?, table.require_column("End")?),
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

    /// The job of a row; `None` where it is none that has ended.
    fn read_job(&self, row: &TableRow, without: &str) -> Result<Option<EndedJob>, String> {
        let submit = parse_time("Submit", row.get(self.submit))?;
        let start = parse_time("Start", row.get(self.ran.0))?;
        let end = parse_time("End", row.get(self.ran.1))?;
        let number = row.get(self.job);
        let state = first_word(row.get(self.state));
        let has_ended = ENDED.contains(&state) && !number.contains('.');
        let is_wing = lead_from_wing_name(row.get_if(self.name)).is_some();
        let counts = has_ended && !is_wing && (without.is_empty() || row.get_if(self.partition) != without);
        let Some((start, end)) = start.zip(end).filter(|_| counts) else { return Ok(None) };
        if end < start {
            return Err(wrong_value("End", row.get(self.ran.1), "a time after Start"));
        }
        let ran = self.ran(row, start, end)?;
        // Whoever is cancelled in the queue has a start and an end, too.
        if ran == 0.0 && matches!(state, "CANCELLED" | "DEADLINE") {
            return Ok(None);
        }
        let submit = submit.ok_or_else(|| wrong_value("Submit", row.get(self.submit), "a time"))?;
        if end < submit {
            return Err(wrong_value("End", row.get(self.ran.1), "a time after Submit"));
        }
        self.job(row, submit, (start, end), ran).map(Some)
    }

    /// Seconds for which it had its nodes and was not suspended.
    fn ran(&self, row: &TableRow, start: i64, end: i64) -> Result<f64, String> {
        let text = row.get_if(self.elapsed);
        if text.is_empty() {
            return Ok((end - start) as f64);
        }
        let secs = text.parse::<u32>().ok().map(f64::from);
        secs.ok_or_else(|| wrong_value("ElapsedRaw", text, "whole seconds"))
    }

    fn job(
        &self,
        row: &TableRow,
        submit: i64,
        (start, end): (i64, i64),
        ran: f64,
    ) -> Result<EndedJob, String> {
        let nodes = parse_count("NNodes", row.get(self.nodes), MAX_NODES_A_MACHINE)?;
        let gpus = self.tres.map_or(Ok(0), |column| parse_gpus(row.get(column)))?;
        let state = first_word(row.get(self.state));
        let secs = (end - start) as f64;
        if secs > MAX_SECS {
            return Err(wrong_value(
                "End",
                row.get(self.ran.1),
                "a time within three hundred years of Start",
            ));
        }
        Ok(EndedJob {
            job: parse_job_id(row.get(self.job))?,
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
            work_secs: ran * f64::from(nodes),
            said_secs: None,
            flat_secs: None,
            samples: 0.0,
            secs,
            exit_code: exit_code(state, row.get_if(self.exit))?,
            why: state.to_ascii_lowercase().replace('_', " "),
        })
    }
}

/// `CANCELLED` of `CANCELLED by 123`.
fn first_word(state: &str) -> &str {
    state.split_whitespace().next().unwrap_or_default()
}

fn parse_job_id(text: &str) -> Result<JobId, String> {
    let id = text.parse().ok().map(JobId);
    id.ok_or_else(|| {
        wrong_value("the job's id", text, "a number, which JobIDRaw has for tasks of arrays, too")
    })
}

fn parse_user(text: &str) -> Result<String, String> {
    let user = printable_text(text);
    if user.is_empty() { Err(wrong_value("User", text, "a user")) } else { Ok(user) }
}

/// What can be printed of a text, cut to what the store takes.
fn printable_text(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

/// What tells one recurring job from another: the folder and the command by which it was submitted, without
/// numbers. Empty where the command is not known.
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

/// The command's own code, of `1:0`; behind the colon stands the signal that ended it. Where Slurm has ended
/// the job, there is none.
fn exit_code(state: &str, text: &str) -> Result<Option<i32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let codes = text
        .split_once(':')
        .and_then(|(code, signal)| Some((code.parse::<i32>().ok()?, signal.parse::<u32>().ok()?)));
    let (code, signal) =
        codes.ok_or_else(|| wrong_value("ExitCode", text, "a code and a signal, as in 1:0"))?;
    Ok(Some(code).filter(|_| signal == 0 && matches!(state, "COMPLETED" | "FAILED")))
}
