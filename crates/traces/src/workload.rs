//! Workloads: CSV with one malleable job a row.

use std::collections::BTreeSet;
use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, parse_positive, parse_secs, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{MAX_NODES_A_JOB, ParsedFile, WorkloadJob};

/// Weight of a job where the file gives none.
const USUAL_WEIGHT: f64 = 1.0;

/// Reads the malleable jobs of a simulation: CSV with a header; columns `name`, `submit_s` (s since the
/// simulation's start, rounded up), `samples`, `min_nodes`, `max_nodes`, `curve` (a name in the table of
/// curves) and perhaps `weight` (else 1) and `user`, in any order, others ignored. The jobs come sorted by
/// submission. A name that is used again is malformed.
///
/// # Errors
/// When the file cannot be read, lacks a column, has too many malformed lines, or no job.
pub fn read_workload(path: &Path) -> Result<ParsedFile<Vec<WorkloadJob>>, TraceError> {
    parse(TraceSource::open(path)?)
}

/// Where the columns are.
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
            return Err(wrong_value("name", &job.name, "a name that no line before has"));
        }
        jobs.push(job);
        Ok(())
    })?;
    jobs.sort_by_key(|j| j.submit_secs);
    let some = !jobs.is_empty();
    tally.finish(jobs, some, "job")
}

impl WorkloadColumns {
    fn read_job(&self, row: &TableRow) -> Result<WorkloadJob, String> {
        let min_nodes = parse_count("min_nodes", row.get(self.min), MAX_NODES_A_JOB)?;
        let max_nodes = parse_count("max_nodes", row.get(self.max), MAX_NODES_A_JOB)?;
        if max_nodes < min_nodes {
            return Err(wrong_value(
                "max_nodes",
                row.get(self.max),
                &format!("at least min_nodes, {min_nodes}"),
            ));
        }
        let weight = match row.get_if(self.weight) {
            "" => USUAL_WEIGHT,
            text => parse_positive("weight", text)?,
        };
        Ok(WorkloadJob {
            name: filled("name", row.get(self.name))?,
            submit_secs: parse_secs("submit_s", row.get(self.submit))?.ceil() as i64,
            samples: parse_positive("samples", row.get(self.samples))?,
            min_nodes,
            max_nodes,
            curve: filled("curve", row.get(self.curve))?,
            weight,
            user: Some(row.get_if(self.user)).filter(|user| !user.is_empty()).map(str::to_owned),
        })
    }
}

fn filled(name: &str, text: &str) -> Result<String, String> {
    if text.is_empty() { Err(wrong_value(name, text, "a name")) } else { Ok(text.to_owned()) }
}
