//! Workloads: CSV with one malleable job per row.

use std::collections::BTreeSet;
use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, parse_positive, parse_secs, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{MAX_NODES_A_JOB, ParsedFile, WorkloadJob};

/// The weight of a job for which the file gives none.
const USUAL_WEIGHT: f64 = 1.0;

/// Reads the malleable jobs of a simulation: CSV with a header and columns in any order. Required columns are
/// `name`, `submit_s` (seconds since the simulation's start, rounded up), `samples`, `min_nodes`, `max_nodes`
/// and `curve` (a name in the table of curves). Optional columns are `weight` (1 if missing) and `user`.
/// Other columns are ignored. The jobs are sorted by submission. A repeated name is malformed.
///
/// # Errors
/// If the file cannot be read, lacks a column, has too many malformed lines, or has no job.
pub fn read_workload(path: &Path) -> Result<ParsedFile<Vec<WorkloadJob>>, TraceError> {
    parse(TraceSource::open(path)?)
}

/// The columns of the table.
struct WorkloadColumns {
    name: usize,
    submit: usize,
    samples: usize,
    min: usize,
    max: usize,
    curve: usize,
    weight: Option<usize>,
    user: Option<usize>,
}

pub(super) fn parse(source: TraceSource) -> Result<ParsedFile<Vec<WorkloadJob>>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let columns = WorkloadColumns {
        name: table.require_column("name")?,
        submit: table.require_column("submit_s")?,
        samples: table.require_column("samples")?,
        min: table.require_column("min_nodes")?,
        max: table.require_column("max_nodes")?,
        curve: table.require_column("curve")?,
        weight: table.find_column("weight"),
        user: table.find_column("user"),
    };
    let mut jobs = Vec::new();
    let mut names = BTreeSet::new();
    let tally = table.for_each_row(|row| {
        let job = columns.read_job(row)?;
        if !names.insert(job.name.clone()) {
            return Err(wrong_value("name", &job.name, "a name that no earlier line has"));
        }
        jobs.push(job);
        Ok(())
    })?;
    jobs.sort_by_key(|job| job.submit_secs);
    let has_jobs = !jobs.is_empty();
    tally.finish(jobs, has_jobs, "job")
}

impl WorkloadColumns {
    fn read_job(&self, row: &TableRow) -> Result<WorkloadJob, String> {
        let min_nodes = parse_count("min_nodes", row.get(self.min), MAX_NODES_A_JOB)?;
        let max_nodes = parse_count("max_nodes", row.get(self.max), MAX_NODES_A_JOB)?;
        if max_nodes < min_nodes {
            let expected = format!("at least min_nodes, {min_nodes}");
            return Err(wrong_value("max_nodes", row.get(self.max), &expected));
        }
        let weight = match row.get_if(self.weight) {
            "" => USUAL_WEIGHT,
            text => parse_positive("weight", text)?,
        };
        Ok(WorkloadJob {
            name: require_name("name", row.get(self.name))?,
            submit_secs: parse_secs("submit_s", row.get(self.submit))?.ceil() as i64,
            samples: parse_positive("samples", row.get(self.samples))?,
            min_nodes,
            max_nodes,
            curve: require_name("curve", row.get(self.curve))?,
            weight,
            user: row.get_filled(self.user).map(str::to_owned),
        })
    }
}

fn require_name(field: &str, text: &str) -> Result<String, String> {
    if text.is_empty() { Err(wrong_value(field, text, "a name")) } else { Ok(text.to_owned()) }
}
