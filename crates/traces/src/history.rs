//! Logs of jobs that have ended, for predictions of lengths.

use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_positive, parse_secs, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{ParsedFile, PastJob, Submission, UserEstimate};

/// Most jobs of a log.
const MAX_JOBS: usize = 1_000_000;

/// Most nodes or GPUs of a job.
const MAX_SIZE: u32 = 10_000_000;

/// Most numbers besides those that are known.
const MAX_MORE: usize = 32;

/// Columns of which a job's length says something, or that only its end tells: they predict nothing.
const KNOWN_AT_THE_END: [&str; 8] =
    ["accuracy", "duration_s", "end_s", "first_submit", "loss", "state", "throughput", "unpredictable"];

/// Reads a log with the columns `duration_s` and, as far as there are any, `submit_s`, `user`, `name`,
/// `nodes`, `gpus`, `limit_s` and `wait_s`; empty fields are unknown. Where nothing says when jobs came, each
/// comes after the one before it has ended, and a job is alike to those with the same settings: all other
/// columns but those that only the end tells. The jobs are in the order of their submission.
///
/// # Errors
/// When the file cannot be read, lacks a column, has no row, or many are malformed.
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
    jobs.sort_by(|a: &PastJob, b: &PastJob| a.job.at.total_cmp(&b.job.at));
    let some = !jobs.is_empty();
    tally.finish(jobs, some, "job")
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
    /// Settings, where nothing says when jobs came.
    settings: Vec<usize>,
}

impl HistoryColumns {
    fn from_table(table: &Table) -> Result<HistoryColumns, TraceError> {
        let submit = table.find_column("submit_s");
        let is_setting = |name: &String| submit.is_none() && !KNOWN_AT_THE_END.contains(&name.as_str());
        let settings =
            table.columns().iter().enumerate().filter(|(_, name)| is_setting(name)).map(|(i, _)| i);
        Ok(HistoryColumns {
            duration: table.require_column("duration_s")?,
            submit,
            user: table.find_column("user"),
            name: table.find_column("name"),
            nodes: table.find_column("nodes").or_else(|| table.find_column("workers")),
            gpus: table.find_column("gpus"),
            limit: table.find_column("limit_s"),
            wait: table.find_column("wait_s"),
            settings: settings.take(MAX_MORE).collect(),
        })
    }

    fn read_job(&self, row: &TableRow, before: usize) -> Result<PastJob, String> {
        let length = parse_positive("duration_s", row.get(self.duration)).or_else(|e| {
            // Jobs that ended at once.
            if row.get(self.duration).parse() == Ok(0.0) { Ok(0.0) } else { Err(e) }
        })?;
        let known = |column: Option<usize>| Some(row.get_if(column)).filter(|text| !text.is_empty());
        let size = |name: &str, column| match known(column) {
            Some(text) => {
                let size = text.parse().ok().filter(|n| *n <= MAX_SIZE);
                size.ok_or_else(|| wrong_value(name, text, &format!("a whole number up to {MAX_SIZE}")))
            }
            None => Ok(0),
        };
        let at = match self.submit {
            Some(column) => parse_secs("submit_s", row.get(column))?,
            None => before as f64,
        };
        let wait = known(self.wait).map_or(Ok(0.0), |text| parse_secs("wait_s", text))?;
        let limit_secs = known(self.limit).map(|text| parse_positive("limit_s", text)).transpose()?;
        let settings: Vec<&str> = self.settings.iter().map(|column| row.get(*column)).collect();
        let name = match self.submit {
            Some(_) => row.get_if(self.name).to_owned(),
            None => settings.join("/"),
        };
        let job = Submission {
            at,
            user: row.get_if(self.user).to_owned(),
            name,
            nodes: size("nodes", self.nodes)?,
            gpus: size("gpus", self.gpus)?,
            limit_secs,
            more: self
                .settings
                .iter()
                .map(|column: &usize| {
                    row.get(*column).parse().ok().filter(|n: &f64| n.is_finite()).unwrap_or(-1.0)
                })
                .collect(),
        };
        // Before the next one comes, and after it came itself.
        let ended_at = at + if self.submit.is_some() { wait.max(0.0) + length } else { 0.5 };
        Ok(PastJob { job, ended_at, secs: length, word: UserEstimate::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ParsedFile<Vec<PastJob>>, TraceError> {
        parse_history(TraceSource::from_bytes("log.csv", text.as_bytes().to_vec(), 1 << 20)?)
    }

    #[test]
    fn a_log_with_times_and_one_of_settings() {
        let log = "submit_s,user,name,gpus,nodes,duration_s,state,limit_s,wait_s\n\
                   50,u2,,8,1,0,FAILED,,\n0,u1,bert,0,4,120,COMPLETED,3600,30\n";
        let jobs = read(log).unwrap().value;
        let first = &jobs[0];
        assert_eq!((first.job.user.as_str(), first.job.name.as_str(), first.ended_at), ("u1", "bert", 150.0));
        assert_eq!((first.job.limit_secs, jobs[1].job.limit_secs, jobs[1].secs), (Some(3600.0), None, 0.0));
        assert!(first.job.more.is_empty());
        let settings =
            read("type,duration_s,workers,lr,throughput\n3,605,2,1e-4,9\n3,610,2,1e-4,8\n").unwrap().value;
        assert_eq!(settings[0].job.name, settings[1].job.name);
        assert_eq!(settings[1].job.more, [3.0, 2.0, 1e-4]);
        assert!(settings[0].ended_at <= settings[1].job.at && settings[0].ended_at > settings[0].job.at);
        for (text, what) in [
            ("submit_s,user\n1,u\n", "duration_s"),
            ("submit_s,duration_s\nx,5\n", "submit_s"),
            ("submit_s,duration_s\n1,-5\n", "duration_s"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
