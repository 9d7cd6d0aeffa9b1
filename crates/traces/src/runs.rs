//! The runs of jobs, as Slurm's accounting prints them, for reports.

use std::io::Read;
use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, wrong_value};
use super::sacct::{TEXTS, parse_cpus, parse_gpus, parse_time};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{JobId, JobRun, ParsedFile, UnixTime, trace::MAX_NODES_A_MACHINE};

/// The value for `sacct --format`.
pub const RUNS_FORMAT: &str =
    "JobIDRaw,User,Account,Submit,Eligible,Start,End,Partition,NNodes,AllocTRES,ConsumedEnergyRaw";

/// Most joules of a run. A larger value is an error of the sensor.
const MOST_JOULES: f64 = 1e15;

/// Passes each run to `record`, from the output of `TZ=UTC sacct -aXDPo` with [`RUNS_FORMAT`] and its header.
/// Runs that have not begun are left out. Columns may be in any order, and unknown ones are ignored. Required
/// columns are `JobIDRaw`, `Start`, `End`, `Partition` and `NNodes`.
///
/// # Errors
/// If the output cannot be read, lacks a column, or has too many malformed lines.
pub fn read_runs(
    name: &Path,
    text: impl Read + Send + 'static,
    mut record: impl FnMut(JobRun),
) -> Result<ParsedFile<()>, TraceError> {
    let table = Table::open(TraceSource::from_reader(name, text)?, TableDialect::Bars)?.with_texts(&TEXTS);
    let columns = RunColumns::from_table(&table)?;
    let tally = table.for_each_row(|row| {
        if let Some(run) = columns.read_run(row)? {
            record(run);
        }
        Ok(())
    })?;
    // Perhaps nothing has run, which is not an error.
    tally.finish((), true, "run")
}

/// The columns of the table.
struct RunColumns {
    job: usize,
    start: usize,
    end: usize,
    partition: usize,
    nodes: usize,
    user: Option<usize>,
    account: Option<usize>,
    submit: Option<usize>,
    eligible: Option<usize>,
    tres: Option<usize>,
    joules: Option<usize>,
}

impl RunColumns {
    fn from_table(table: &Table) -> Result<RunColumns, TraceError> {
        Ok(RunColumns {
            job: table.require_column("JobIDRaw")?,
            start: table.require_column("Start")?,
            end: table.require_column("End")?,
            partition: table.require_column("Partition")?,
            nodes: table.require_column("NNodes")?,
            user: table.find_column("User"),
            account: table.find_column("Account"),
            submit: table.find_column("Submit"),
            eligible: table.find_column("Eligible"),
            tres: table.find_column("AllocTRES"),
            joules: table.find_column("ConsumedEnergyRaw"),
        })
    }

    /// Reads a row. `None` for steps, and for runs that have not begun.
    fn read_run(&self, row: &TableRow) -> Result<Option<JobRun>, String> {
        let start = parse_time("Start", row.get(self.start))?;
        let is_step = row.get(self.job).contains('.');
        let Some(start) = start.filter(|_| !is_step) else { return Ok(None) };
        let end = parse_time("End", row.get(self.end))?;
        if end.is_some_and(|end| end < start) {
            return Err(wrong_value("End", row.get(self.end), "a time after Start"));
        }
        let waited_from = match parse_time("Eligible", row.get_if(self.eligible))? {
            None => parse_time("Submit", row.get_if(self.submit))?,
            eligible => eligible,
        };
        let joules = row.get_if(self.joules).parse().ok().filter(|j| *j > 0.0 && *j < MOST_JOULES);
        Ok(Some(JobRun {
            job: JobId(parse_count("JobIDRaw", row.get(self.job), u32::MAX)?),
            user: row.get_if(self.user).to_owned(),
            account: row.get_if(self.account).to_owned(),
            waited_from: UnixTime(waited_from.unwrap_or(start).min(start)),
            start: UnixTime(start),
            end: end.map(UnixTime),
            partition: row.get(self.partition).to_owned(),
            nodes: parse_count("NNodes", row.get(self.nodes), MAX_NODES_A_MACHINE)?,
            gpus: self.tres.map_or(Ok(0), |column| parse_gpus(row.get(column)))?,
            cpus: self.tres.map_or(Ok(0), |column| parse_cpus(row.get(column)))?,
            joules,
        }))
    }
}
