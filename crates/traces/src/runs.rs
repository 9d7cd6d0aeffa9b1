//! What jobs ran when and on how much, as Slurm's accounting prints it: for reports.

use std::io::Read;
use std::path::Path;

use super::error::TraceError;
use super::field::{count, wrong};
use super::open::Source;
use super::sacct::{TEXTS, cpus, gpus, time};
use super::table::{Dialect, Row, Table};
use infill_model::{JobId, Reading, Run, UnixTime, trace::MAX_NODES_A_MACHINE};

/// What `sacct --format` is to print.
pub const RUNS_FORMAT: &str =
    "JobIDRaw,User,Account,Submit,Eligible,Start,End,Partition,NNodes,AllocTRES,ConsumedEnergyRaw";

/// Most joules of a run: more is a sensor that went astray.
const MOST_JOULES: f64 = 1e15;

/// Shows each run of `TZ=UTC sacct -aXDPo` and [`RUNS_FORMAT`], with its header: what began. Columns may be
/// in any order, and others are ignored; `JobIDRaw`, `Start`, `End`, `Partition` and `NNodes` must be.
///
/// # Errors
/// When it cannot be read, lacks a column, or has too many malformed lines.
pub fn read_runs(
    name: &Path,
    text: impl Read + Send + 'static,
    mut show: impl FnMut(Run),
) -> Result<Reading<()>, TraceError> {
    let table = Table::open(Source::of(name, text)?, Dialect::Bars)?.with_texts(&TEXTS);
    let columns = Columns::find(&table)?;
    let tally = table.each(|row| {
        columns.read(row)?.into_iter().for_each(&mut show);
        Ok(())
    })?;
    // Nothing may have run, and nothing is wrong with that.
    tally.finish((), true, "run")
}

/// Where the columns are.
struct Columns {
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

impl Columns {
    fn find(table: &Table) -> Result<Columns, TraceError> {
        Ok(Columns {
            job: table.require("JobIDRaw")?,
            start: table.require("Start")?,
            end: table.require("End")?,
            partition: table.require("Partition")?,
            nodes: table.require("NNodes")?,
            user: table.find("User"),
            account: table.find("Account"),
            submit: table.find("Submit"),
            eligible: table.find("Eligible"),
            tres: table.find("AllocTRES"),
            joules: table.find("ConsumedEnergyRaw"),
        })
    }

    /// The run of a row; `None` for steps, and for what has not begun.
    fn read(&self, row: &Row) -> Result<Option<Run>, String> {
        let start = time("Start", row.get(self.start))?;
        let Some(start) = start.filter(|_| !row.get(self.job).contains('.')) else { return Ok(None) };
        let end = time("End", row.get(self.end))?;
        if end.is_some_and(|end| end < start) {
            return Err(wrong("End", row.get(self.end), "a time after Start"));
        }
        let waited_from = match time("Eligible", row.get_if(self.eligible))? {
            None => time("Submit", row.get_if(self.submit))?,
            eligible => eligible,
        };
        let joules = row.get_if(self.joules).parse::<f64>().ok().filter(|j| *j > 0.0 && *j < MOST_JOULES);
        Ok(Some(Run {
            job: JobId(count("JobIDRaw", row.get(self.job), u32::MAX)?),
            user: row.get_if(self.user).to_owned(),
            account: row.get_if(self.account).to_owned(),
            waited_from: UnixTime(waited_from.unwrap_or(start).min(start)),
            start: UnixTime(start),
            end: end.map(UnixTime),
            partition: row.get(self.partition).to_owned(),
            nodes: count("NNodes", row.get(self.nodes), MAX_NODES_A_MACHINE)?,
            gpus: self.tres.map_or(Ok(0), |at| gpus(row.get(at)))?,
            cpus: self.tres.map_or(Ok(0), |at| cpus(row.get(at)))?,
            joules,
        }))
    }
}
