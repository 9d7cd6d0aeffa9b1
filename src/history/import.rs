//! `infill history import`: copies ended jobs from Slurm's accounting to the daemon's store.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use crate::client::DaemonClient;
use crate::command;
use crate::session::CliSession;
use infill_api::{BodyProof, EndedImportResult, ImportEndedRequest, MAX_ENDED, SCHEMA_VERSION, routes};
use infill_model::{EndedJob, EndedLog, UnixTime, clock::now};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    input::parsed_with_warnings,
    output,
    progress::{ProgressLines, ProgressMeasure},
    values,
};
use infill_traces as traces;

const DAY_SECS: i64 = 86_400;

/// The default of `--since`, in days: as long as the daemon keeps the jobs that it learns from.
const DEFAULT_DAYS: i64 = 400;

/// The longest time for which Slurm is asked, in days.
const MAX_DAYS: i64 = 3660;

/// The time limit of sacct for one day. A busy slurmdbd takes a minute for a hundred thousand jobs.
const SACCT_TIMEOUT: Duration = Duration::from_secs(600);

/// Flags of `infill history import`.
#[derive(Clone, Debug, Args)]
pub struct ImportHistoryArgs {
    /// Read this file instead of asking Slurm, `-` for standard input: the output of `TZ=UTC sacct -aXP` with
    /// its header. It needs JobIDRaw, User, Submit, Start, End, NNodes and State, and may have Account,
    /// JobName, WorkDir, SubmitLine, ElapsedRaw, Timelimit, AllocTRES and ExitCode; plain, .gz, .xz or .zst
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Import only jobs that ended after this moment: YYYY-MM-DD[THH:MM[:SS]], now-90days, or seconds since
    /// 1970 [default: 400 days ago; all jobs of a file]
    #[arg(long, value_name = "TIME", value_parser = values::parse_moment)]
    since: Option<UnixTime>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `infill history import --json`: the numbers of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct ImportTotals {
    schema: u32,
    /// Ended jobs that were read.
    read: u64,
    /// Jobs that were new to the daemon.
    taken: u64,
    /// Jobs that the daemon had already.
    known: u64,
    /// Other lines of a file: steps, wings, and jobs that have not ended or never ran.
    left_out: u64,
}

/// Runs `infill history import`.
pub async fn run(args: ImportHistoryArgs, session: &CliSession) -> CommandResult {
    let client = session.daemon_client()?;
    let send = async |jobs: &[EndedJob]| send_jobs(&client, jobs).await;
    // The daemon has better records of malleable jobs: to Slurm each of their runs is a job.
    let ours = session.load_config()?.slurm.partition;
    let totals = match &args.from {
        Some(path) => from_file(path, &ours, args.since, send).await?,
        None => {
            let until = now();
            let since = args.since.unwrap_or(until + -DEFAULT_DAYS * DAY_SECS);
            from_slurm("sacct", &ours, since, until, send).await?
        }
    };
    if args.json {
        output::print_json(&totals)?;
    } else {
        output::print_text(&totals_text(&totals))?;
    }
    Ok(ProgramExit::Ok.code())
}

/// Sends jobs to the daemon, because only the daemon writes to its store.
async fn send_jobs(client: &DaemonClient, jobs: &[EndedJob]) -> Result<EndedImportResult, CommandFailure> {
    let request = ImportEndedRequest { proof: BodyProof::default(), jobs: jobs.to_vec() };
    Ok(client.send_order_for_answer("history", routes::IMPORT_HISTORY, &request).await?)
}

async fn from_file(
    path: &Path,
    ours: &str,
    since: Option<UnixTime>,
    mut send: impl AsyncFnMut(&[EndedJob]) -> Result<EndedImportResult, CommandFailure>,
) -> Result<ImportTotals, CommandFailure> {
    let parsed = if path.as_os_str() == "-" {
        traces::read_ended_from(Path::new("standard input"), std::io::stdin(), ours)
    } else {
        traces::read_ended(path, ours)
    };
    let EndedLog { mut jobs, left_out } = parsed_with_warnings(path, parsed)?;
    jobs.retain(|job| since.is_none_or(|since| job.ended_at >= since));
    let mut totals =
        ImportTotals { schema: SCHEMA_VERSION, left_out: left_out as u64, ..ImportTotals::default() };
    let progress = ProgressLines::new(ProgressMeasure::Jobs(jobs.len()));
    let mut line = progress.add_line("importing");
    for part in jobs.chunks(MAX_ENDED) {
        totals.count_answer(part, send(part).await?);
        line.set_share(totals.read as f64 / jobs.len() as f64);
    }
    Ok(totals)
}

/// Asks day by day, so that no answer is too large and no query keeps slurmdbd busy for long.
async fn from_slurm(
    sacct: &str,
    ours: &str,
    since: UnixTime,
    until: UnixTime,
    mut send: impl AsyncFnMut(&[EndedJob]) -> Result<EndedImportResult, CommandFailure>,
) -> Result<ImportTotals, CommandFailure> {
    let secs = until.secs_since(since);
    if secs > (MAX_DAYS * DAY_SECS) as f64 {
        return Err(ProgramExit::Usage.caused_by(anyhow!("--since is more than {MAX_DAYS} days ago")));
    }
    let mut totals = ImportTotals { schema: SCHEMA_VERSION, ..ImportTotals::default() };
    let progress = ProgressLines::new(ProgressMeasure::Time(secs));
    let mut line = progress.add_line("asking sacct");
    let mut from = since;
    while from < until {
        let to = (from + DAY_SECS).min(until);
        for part in ended_in_day(sacct, ours, from, to).await?.chunks(MAX_ENDED) {
            totals.count_answer(part, send(part).await?);
        }
        line.set_share(to.secs_since(since) / secs);
        from = to;
    }
    Ok(totals)
}

/// The jobs that ended from `from` on and before `to`.
async fn ended_in_day(
    sacct: &str,
    ours: &str,
    from: UnixTime,
    to: UnixTime,
) -> Result<Vec<EndedJob>, CommandFailure> {
    let start = format!("--starttime={}", command::slurm_moment(from));
    let end = format!("--endtime={}", command::slurm_moment(to));
    let format = format!("--format={}", traces::SACCT_FORMAT);
    let args = ["--allusers", "--allocations", "--parsable2", &format, &start, &end];
    let text = command::run_in_utc(SACCT_TIMEOUT, sacct, &args).await;
    let text = text.map_err(|e| ProgramExit::Failed.caused_by(anyhow!(e)))?;
    // sacct also lists jobs that ran on this day and ended later. Each job counts on the day of its end.
    let name = Path::new(sacct);
    let mut jobs = parsed_with_warnings(name, traces::read_ended_from(name, Cursor::new(text), ours))?.jobs;
    jobs.retain(|job| (from..to).contains(&job.ended_at));
    Ok(jobs)
}

impl ImportTotals {
    fn count_answer(&mut self, jobs: &[EndedJob], answer: EndedImportResult) {
        self.read += jobs.len() as u64;
        self.taken += answer.taken;
        self.known += answer.known;
    }
}

fn totals_text(totals: &ImportTotals) -> String {
    let ImportTotals { read, taken, known, left_out, .. } = *totals;
    let read = output::counted_noun(read, "job");
    let rest = match left_out {
        0 => String::new(),
        n => format!("; {} skipped (steps, wings, not ended or never run)", output::counted_noun(n, "line")),
    };
    format!("{read} read: {taken} imported, {known} already present{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;
    use infill_testkit::write_script;

    const HEADER: &str = "JobIDRaw|User|Submit|Start|End|NNodes|State";

    /// 2026-03-01 00:00:00 UTC.
    const MARCH: UnixTime = UnixTime(1_772_323_200);

    /// A daemon that already has the job with the id 1.
    async fn take(jobs: &[EndedJob], seen: &mut Vec<u32>) -> Result<EndedImportResult, CommandFailure> {
        seen.extend(jobs.iter().map(|job| job.job.0));
        let known = jobs.iter().filter(|job| job.job == JobId(1)).count() as u64;
        Ok(EndedImportResult { schema: SCHEMA_VERSION, taken: jobs.len() as u64 - known, known })
    }

    fn job(id: u32, end: &str) -> String {
        format!("{id}|ann|2026-02-28T10:00:00|2026-02-28T10:00:01|{end}|1|COMPLETED")
    }

    #[tokio::test]
    async fn a_file_is_sent_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let jobs: Vec<String> = (1..=2500).map(|id| job(id, "2026-03-01T10:00:00")).collect();
        std::fs::write(&path, format!("{HEADER}\n{}\n3|ann|x\n4|bob|||Unknown|1|PENDING\n", jobs.join("\n")))
            .unwrap();
        let mut seen = Vec::new();
        let mut parts = Vec::new();
        let totals = from_file(&path, "", None, async |jobs: &[EndedJob]| {
            parts.push(jobs.len());
            take(jobs, &mut seen).await
        })
        .await
        .unwrap();
        assert_eq!((parts, seen), (vec![1000, 1000, 500], (1..=2500).collect()));
        assert_eq!(
            totals_text(&totals),
            "2500 jobs read: 2499 imported, 1 already present; 1 line skipped (steps, wings, not ended or never run)"
        );
        let none =
            from_file(&path, "", Some(MARCH + DAY_SECS), async |jobs| take(jobs, &mut Vec::new()).await);
        assert_eq!(none.await.unwrap().read, 0);
    }

    #[tokio::test]
    async fn slurm_is_asked_day_by_day_and_each_job_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let asked = dir.path().join("asked");
        // This sacct prints all jobs for each day.
        let ends =
            ["2026-03-01T00:00:00", "2026-03-01T23:59:59", "2026-03-02T00:00:00", "2026-03-02T13:00:00"];
        let lines: Vec<String> = (1..).zip(ends).map(|(id, end)| job(id, end)).collect();
        let body = format!(
            "echo \"$TZ $4 $5 $6\" >> {}\ncat <<END\n{HEADER}\n{}\nEND",
            asked.display(),
            lines.join("\n")
        );
        let sacct = write_script(dir.path().join("sacct"), &body);
        let mut seen = Vec::new();
        let until = MARCH + 36 * 3600;
        let totals = from_slurm(&sacct.to_string_lossy(), "", MARCH, until, async |jobs: &[EndedJob]| {
            take(jobs, &mut seen).await
        })
        .await
        .unwrap();
        assert_eq!((totals.read, totals.taken, totals.known, seen), (3, 2, 1, vec![1, 2, 3]));
        let format = format!("--format={}", traces::SACCT_FORMAT);
        assert_eq!(
            std::fs::read_to_string(asked).unwrap(),
            format!(
                "UTC {format} --starttime=2026-03-01T00:00:00 --endtime=2026-03-02T00:00:00\n\
                 UTC {format} --starttime=2026-03-02T00:00:00 --endtime=2026-03-02T12:00:00\n"
            )
        );
    }

    #[tokio::test]
    async fn failures_have_their_codes() {
        let dir = tempfile::tempdir().unwrap();
        let none = async |_: &[EndedJob]| Err(ProgramExit::Denied.caused_by(anyhow!("no")));
        let failed = write_script(dir.path().join("failed"), "echo 'accounting is disabled' >&2; exit 1");
        let until = MARCH + 60;
        let failure = from_slurm(&failed.to_string_lossy(), "", MARCH, until, none).await.unwrap_err();
        assert!(
            failure.exit == ProgramExit::Failed && failure.to_string().ends_with("accounting is disabled")
        );
        let garbled = write_script(dir.path().join("garbled"), "echo hello");
        let failure = from_slurm(&garbled.to_string_lossy(), "", MARCH, until, none).await.unwrap_err();
        assert_eq!(failure.exit, ProgramExit::Input);
        let failure = from_slurm("sacct", "", UnixTime(0), MARCH, none).await.unwrap_err();
        assert_eq!(failure.exit, ProgramExit::Usage);
        let failure = from_file(Path::new("/nonexistent/log"), "", None, none).await.unwrap_err();
        assert_eq!(failure.exit, ProgramExit::Input);
        let path = dir.path().join("log");
        std::fs::write(&path, format!("{HEADER}\n{}\n", job(1, "2026-03-01T10:00:00"))).unwrap();
        assert_eq!(from_file(&path, "", None, none).await.unwrap_err().exit, ProgramExit::Denied);
    }
}
