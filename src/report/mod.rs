//! `infill report`: the effect of lending idle nodes, on main jobs and in node-hours.

mod cluster;
mod html;
mod parts;
mod sums;
mod text;

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use chrono::{Datelike as _, Months, NaiveDate};
use clap::Args;

use super::client::{ClientError, DaemonClient};
use super::command;
use super::session::CliSession;
use infill_api::{ReportQuery, ReportView, routes};
use infill_model::{UnixTime, clock::now};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    input::parsed_with_warnings,
    output,
    progress::{ProgressLines, ProgressMeasure},
    values,
};
use infill_traces as traces;
use parts::{HarvestReport, MonthSummary};
use sums::{AccountingTotals, GroupBy};

const DAY_SECS: i64 = 86_400;

/// The time limit of sacct for one day.
const SACCT_TIMEOUT: Duration = Duration::from_secs(600);

/// Flags of `infill report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Report on this month, such as 2026-10 [default: the last whole month]
    #[arg(long, value_name = "YYYY-MM", value_parser = parse_month, conflicts_with_all = ["since", "until"])]
    month: Option<NaiveDate>,
    /// Report on the time from this moment on: YYYY-MM-DD[THH:MM[:SS]], now-7days, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = values::parse_moment)]
    since: Option<UnixTime>,
    /// Report on the time until this moment [default: now]
    #[arg(long, value_name = "TIME", value_parser = values::parse_moment, requires = "since")]
    until: Option<UnixTime>,
    /// Divide node-time by this
    #[arg(long, value_name = "WHAT", default_value = "account")]
    by: GroupBy,
    /// Read this file instead of asking Slurm: the output of `TZ=UTC sacct -aXDP` with its header
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Also show how long main jobs waited in this month, such as one before infill was installed
    #[arg(long, value_name = "YYYY-MM", value_parser = parse_month, conflicts_with = "from")]
    compare: Option<NaiveDate>,
    /// Write the report into this file as an HTML page, made for printing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv"])]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print comma-separated values, a line for each account, user or type
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

fn parse_month(text: &str) -> Result<NaiveDate, String> {
    NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d")
        .map_err(|_| "expected YYYY-MM, such as 2026-10".to_owned())
}

/// The number of months in the report's list, up to the reported one.
const MONTHS_SHOWN: u32 = 12;

/// Runs `infill report`.
pub async fn run(args: ReportArgs, session: &CliSession) -> CommandResult {
    let (from, to) = report_period(&args, now());
    let client = session.daemon_client()?;
    let view = fetch_report(&client, from, to).await?;
    let ours = view.partition.as_str();
    let mut report =
        read_accounting(args.from.as_deref(), from, to, ours).await?.build_report(&view, args.by);
    if args.from.is_none() {
        match cluster::query_sreport("sreport", from, to.min(now())).await {
            Ok(found) => report.cluster = Some(found),
            Err(why) => {
                output::print_note(Some(format!("Slurm's own totals of the cluster are left out: {why}")))
            }
        }
    }
    if let Some(month) = args.compare {
        let from = midnight_utc(month);
        let to = midnight_utc(next_month(month));
        report.before = Some(read_accounting(None, from, to, ours).await?.main_job_waits());
    }
    if view.is_partial {
        output::print_note(Some(
            "Slurm may show you only your own jobs; an administrator's report has all jobs".to_owned(),
        ));
    }
    if view.delays_cut {
        output::print_note(Some(format!(
            "there are more waits of main jobs; the report has only the first {}",
            view.delays.len()
        )));
    }
    let months = if args.csv { Vec::new() } else { months_until(to) };
    for month in months {
        report.months.push(MonthSummary::from_view(
            &fetch_report(&client, midnight_utc(month), midnight_utc(next_month(month))).await?,
        ));
    }
    show_report(&args, &report)?;
    Ok(ProgramExit::Ok.code())
}

async fn fetch_report(
    client: &DaemonClient,
    from: UnixTime,
    to: UnixTime,
) -> Result<ReportView, ClientError> {
    client.get_with(routes::REPORT, &ReportQuery { from, to }).await
}

/// The totals of accounting for a period, from a file or from Slurm.
async fn read_accounting(
    file: Option<&Path>,
    from: UnixTime,
    to: UnixTime,
    ours: &str,
) -> Result<AccountingTotals, CommandFailure> {
    let mut sums = AccountingTotals::new(from, to, now(), ours);
    match file {
        Some(path) => read_file(path, &mut sums)?,
        None => ask_slurm("sacct", from, to.min(now()), &mut sums).await?,
    }
    Ok(sums)
}

/// The last months before `end`, the earliest first.
fn months_until(end: UnixTime) -> Vec<NaiveDate> {
    let last = chrono::DateTime::from_timestamp(end.0 - 1, 0).map_or(NaiveDate::MIN, |at| at.date_naive());
    let last = last.with_day(1).unwrap_or(last);
    let back = (0..MONTHS_SHOWN).rev();
    back.filter_map(|months| last.checked_sub_months(Months::new(months))).collect()
}

fn midnight_utc(day: NaiveDate) -> UnixTime {
    UnixTime(day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp())
}

fn next_month(month: NaiveDate) -> NaiveDate {
    month.checked_add_months(Months::new(1)).unwrap_or(month)
}

fn show_report(args: &ReportArgs, report: &HarvestReport) -> anyhow::Result<()> {
    if args.json {
        return output::print_json(report);
    }
    if let Some(path) = &args.html {
        let page = html::report_page(report);
        return std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()));
    }
    if args.csv {
        let mut csv = csv::Writer::from_writer(Vec::new());
        report.rows.iter().try_for_each(|row| csv.serialize(row))?;
        let text = String::from_utf8(csv.into_inner().map_err(|e| anyhow!(e.to_string()))?)?;
        return Ok(output::print_text(text.trim_end())?);
    }
    Ok(output::print_text(&text::report_text(report))?)
}

/// The period that the flags select. Months begin at midnight in UTC.
fn report_period(args: &ReportArgs, now: UnixTime) -> (UnixTime, UnixTime) {
    if let Some(since) = args.since {
        return (since, args.until.unwrap_or(now));
    }
    let today = chrono::DateTime::from_timestamp(now.0, 0).map_or(NaiveDate::MIN, |at| at.date_naive());
    let this_month = today.with_day(1).unwrap_or(today);
    let month =
        args.month.unwrap_or_else(|| this_month.checked_sub_months(Months::new(1)).unwrap_or(this_month));
    (midnight_utc(month), midnight_utc(next_month(month)))
}

fn read_file(path: &Path, sums: &mut AccountingTotals) -> Result<(), CommandFailure> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    parsed_with_warnings(path, traces::read_runs(path, file, |run| sums.add_run(&run)))?;
    Ok(())
}

/// Asks day by day, so that no answer is too large. sacct lists a run on each of its days. The run counts on
/// the day of its end, or on the last day if it has not ended by then.
async fn ask_slurm(
    sacct: &str,
    from: UnixTime,
    to: UnixTime,
    sums: &mut AccountingTotals,
) -> Result<(), CommandFailure> {
    let secs = to.secs_since(from).max(1.0);
    let progress = ProgressLines::new(ProgressMeasure::Time(secs));
    let mut line = progress.add_line("asking sacct");
    let mut day = from;
    while day < to {
        let end = (day + DAY_SECS).min(to);
        let text = command::run_in_utc(
            SACCT_TIMEOUT,
            sacct,
            &sacct_arguments(day, end).each_ref().map(String::as_str),
        )
        .await;
        let text = text.map_err(|e| ProgramExit::Failed.caused_by(anyhow!(e)))?;
        let name = Path::new(sacct);
        let is_last = end == to;
        parsed_with_warnings(
            name,
            traces::read_runs(name, Cursor::new(text), |run| {
                let ended_here = run.end.is_some_and(|at| (day..end).contains(&at));
                let runs_on = is_last && run.end.is_none_or(|at| at >= end);
                if ended_here || runs_on {
                    sums.add_run(&run);
                }
            }),
        )?;
        line.set_share(end.secs_since(from) / secs);
        day = end;
    }
    Ok(())
}

fn sacct_arguments(from: UnixTime, to: UnixTime) -> [String; 7] {
    [
        "--allusers".to_owned(),
        "--allocations".to_owned(),
        "--duplicates".to_owned(),
        "--parsable2".to_owned(),
        format!("--format={}", traces::RUNS_FORMAT),
        format!("--starttime={}", command::slurm_moment(from)),
        format!("--endtime={}", command::slurm_moment(to)),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use infill_api::UsesView;
    use infill_model::ReportConfig;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ReportArgs,
    }

    fn period_of(line: &str) -> (UnixTime, UnixTime) {
        let line = Line::try_parse_from(std::iter::once("report").chain(line.split_whitespace())).unwrap();
        // The present is 2026-03-15.
        report_period(&line.args, UnixTime(1_773_532_800))
    }

    #[test]
    fn periods_are_calendar_months() {
        let day =
            |text: &str| parse_month(text).unwrap().and_time(chrono::NaiveTime::MIN).and_utc().timestamp();
        assert_eq!(period_of(""), (UnixTime(day("2026-02")), UnixTime(day("2026-03"))));
        assert_eq!(period_of("--month 2025-12"), (UnixTime(day("2025-12")), UnixTime(day("2026-01"))));
        assert_eq!(period_of("--since 100 --until 200"), (UnixTime(100), UnixTime(200)));
        assert!(parse_month("2026-13").is_err() && parse_month("march").is_err());
        let months = months_until(UnixTime(day("2026-03")));
        assert_eq!(
            (months.len(), midnight_utc(months[0]), midnight_utc(months[11])),
            (12, UnixTime(day("2025-03")), UnixTime(day("2026-02")))
        );
    }

    #[tokio::test]
    async fn a_run_over_midnight_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let body = "printf 'JobIDRaw|JobName|Submit|Eligible|Start|End|User|Account|Partition|NNodes|AllocTRES|ConsumedEnergyRaw\\n\
                    1|a|b|1970-01-01T22:00:00|1970-01-01T22:00:00|1970-01-01T23:00:00|1970-01-02T01:00:00|ann|x|main|2|node=2|\\n\
                    2|c|1970-01-01T22:00:00|1970-01-01T22:00:00|1970-01-01T23:00:00|Unknown|ann|x|infill|1|node=1,gres/gpu=4|\\n'";
        let sacct = infill_testkit::write_script(dir.path().join("sacct"), body);
        let to = UnixTime(2 * DAY_SECS);
        let mut sums = AccountingTotals::new(UnixTime(0), to, to, "infill");
        ask_slurm(sacct.to_str().unwrap(), UnixTime(0), to, &mut sums).await.unwrap();
        let uses = UsesView::default();
        let partition = "infill".to_owned();
        let prices = ReportConfig::default();
        let spent = Vec::new();
        let delays = Vec::new();
        let view = ReportView {
            schema: 1,
            from: UnixTime(0),
            to,
            partition,
            is_partial: false,
            lends_parts: false,
            prices,
            spent,
            uses,
            delays,
            delays_cut: false,
        };
        let report = sums.build_report(&view, GroupBy::Account);
        assert_eq!((report.main_node_hours, report.node_hours, report.gpu_hours), (4.0, 25.0, 100.0));
    }
}
