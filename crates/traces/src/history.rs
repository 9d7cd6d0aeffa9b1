//! Logs of ended jobs, for predictions of job lengths.

use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_positive, parse_secs, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{ParsedFile, PastJob, Submission, UserEstimate};

/// Most jobs in a log.
const MAX_JOBS: usize = 1_000_000;

/// Most nodes or GPUs of a job.
const MAX_SIZE: u32 = 10_000_000;

/// Most settings that are read as further facts.
const MAX_MORE: usize = 32;

/// Columns that are only known at a job's end, or follow from its length. They cannot be used for
/// predictions.
const KNOWN_AT_THE_END: [&str; 8] =
    ["accuracy", "duration_s", "end_s", "first_submit", "loss", "state", "throughput", "unpredictable"];

/// Reads a log with the column `duration_s` and the optional columns `submit_s`, `user`, `name`, `nodes`,
/// `gpus`, `limit_s` and `wait_s`. Empty fields are unknown.
///
/// Without `submit_s`, each job comes after the previous one has ended, and jobs with the same settings are
/// alike. The settings are all columns that are known before a job's end. The jobs are sorted by submission.
///
/// # Errors
/// If the file cannot be read, lacks a column, has no row, or has too many malformed lines.
pub fn read_history(path: &Path) -> Result<ParsedFile<Vec<PastJob>>, TraceError> {
    parse_history(TraceSource::open(path)?)
}

fn parse_history(source: TraceSource) -> Result<ParsedFile<Vec<PastJob>>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let columns = HistoryColumns::from_table(&table)?;
    let mut jobs = Vec::new();
    let tally = table.for_each_row(|row| {
        if jobs.len() == MAX_JOBS {
            return Err(format!("more than {MAX_JOBS} jobs"));
        }
        jobs.push(columns.read_job(row, jobs.len())?);
        Ok(())
    })?;
    jobs.sort_by(|a: &PastJob, b: &PastJob| a.job.submitted_at.total_cmp(&b.job.submitted_at));
    let has_jobs = !jobs.is_empty();
    tally.finish(jobs, has_jobs, "job")
}

struct HistoryColumns {
    duration: usize,
    submit: Option<usize>,
    user: Option<usize>,
    name: Option<usize>,
    nodes: Option<usize>,
    gpus: Option<usize>,
    limit: Option<usize>,
    wait: Option<usize>,
    /// The columns with settings. Empty if there is a column `submit_s`.
    settings: Vec<usize>,
}

impl HistoryColumns {
    fn from_table(table: &Table) -> Result<HistoryColumns, TraceError> {
        let submit = table.find_column("submit_s");
        let mut settings = Vec::new();
        if submit.is_none() {
            settings.extend(
                (0..table.columns().len())
                    .filter(|column| !KNOWN_AT_THE_END.contains(&table.columns()[*column].as_str())),
            );
            settings.truncate(MAX_MORE);
        }
        Ok(HistoryColumns {
            duration: table.require_column("duration_s")?,
            submit,
            user: table.find_column("user"),
            name: table.find_column("name"),
            nodes: table.find_column("nodes").or_else(|| table.find_column("workers")),
            gpus: table.find_column("gpus"),
            limit: table.find_column("limit_s"),
            wait: table.find_column("wait_s"),
            settings,
        })
    }

    /// Reads a row. `before` is the number of jobs before it.
    fn read_job(&self, row: &TableRow, before: usize) -> Result<PastJob, String> {
        let duration = row.get(self.duration);
        let is_zero = duration.parse() == Ok(0.0);
        let secs = if is_zero { 0.0 } else { parse_positive("duration_s", duration)? };
        let submitted_at = match self.submit {
            Some(column) => parse_secs("submit_s", row.get(column))?,
            None => before as f64,
        };
        let wait = row.get_filled(self.wait).map_or(Ok(0.0), |text| parse_secs("wait_s", text))?;
        let limit = row.get_filled(self.limit).map(|text| parse_positive("limit_s", text));
        let limit_secs = limit.transpose()?;
        let settings: Vec<&str> = self.settings.iter().map(|column| row.get(*column)).collect();
        let name = match self.submit {
            Some(_) => row.get_if(self.name).to_owned(),
            None => settings.join("/"),
        };
        let job = Submission {
            submitted_at,
            user: row.get_if(self.user).to_owned(),
            name,
            nodes: parse_size("nodes", row.get_if(self.nodes))?,
            gpus: parse_size("gpus", row.get_if(self.gpus))?,
            limit_secs,
            further_facts: settings.iter().map(|text| number_or_unknown(text)).collect(),
        };
        // Without submission times, a job ends after its own submission and before the next one.
        let ended_at = submitted_at + if self.submit.is_some() { wait.max(0.0) + secs } else { 0.5 };
        Ok(PastJob { job, ended_at, secs, estimate: UserEstimate::default() })
    }
}

/// A number of nodes or GPUs; 0 if the field is empty.
fn parse_size(name: &str, text: &str) -> Result<u32, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let size = text.parse().ok().filter(|size| *size <= MAX_SIZE);
    size.ok_or_else(|| wrong_value(name, text, &format!("a whole number up to {MAX_SIZE}")))
}

/// The number of a setting; -1 if it is not a finite number.
fn number_or_unknown(text: &str) -> f64 {
    text.parse().ok().filter(|number: &f64| number.is_finite()).unwrap_or(-1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ParsedFile<Vec<PastJob>>, TraceError> {
        parse_history(TraceSource::from_bytes("log.csv", text.as_bytes().to_vec(), 1 << 20)?)
    }

    #[test]
    fn logs_with_submission_times_and_with_settings_are_read() {
        let log = "submit_s,user,name,gpus,nodes,duration_s,state,limit_s,wait_s\n\
                   50,u2,,8,1,0,FAILED,,\n0,u1,bert,0,4,120,COMPLETED,3600,30\n";
        let jobs = read(log).unwrap().value;
        let first = &jobs[0];
        assert_eq!((first.job.user.as_str(), first.job.name.as_str(), first.ended_at), ("u1", "bert", 150.0));
        assert_eq!((first.job.limit_secs, jobs[1].job.limit_secs, jobs[1].secs), (Some(3600.0), None, 0.0));
        assert!(first.job.further_facts.is_empty());
        let settings =
            read("type,duration_s,workers,lr,throughput\n3,605,2,1e-4,9\n3,610,2,1e-4,8\n").unwrap().value;
        assert_eq!(settings[0].job.name, settings[1].job.name);
        assert_eq!(settings[1].job.further_facts, [3.0, 2.0, 1e-4]);
        assert!(
            settings[0].ended_at <= settings[1].job.submitted_at
                && settings[0].ended_at > settings[0].job.submitted_at
        );
        for (text, column) in [
            ("submit_s,user\n1,u\n", "duration_s"),
            ("submit_s,duration_s\nx,5\n", "submit_s"),
            ("submit_s,duration_s\n1,-5\n", "duration_s"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(column), "{error}");
        }
    }
}
