//! `infill observe`: watches Slurm as an ordinary user, changes nothing, and says what infill would have
//! harvested.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tokio::process::{Child, Command};

use super::session::CliSession;
use infill_lab::observe::{ObservationReport, QueueObserver, ShadowJobs, report_observation};
use infill_model::config::{Config, SlurmConfig};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    input::parsed_with_warnings,
    output,
};
use infill_slurm::{RestSlurm, SlurmApi as _};

/// Time for the private slurmrestd to open its socket.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Recorded changes at which the recording starts again, which bounds memory and the time of a report.
const MAX_CHANGES: usize = 200_000;

/// Longest time that an option takes, seconds.
const MAX_SECS: u64 = 366 * 86_400;

/// Failed looks at Slurm in a row after which the command ends.
const MAX_FAILURES: u32 = 30;

/// Options of `infill observe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It needs no privilege, no partition and no line in slurm.conf. Nothing is submitted or changed.

Without --rest it starts a slurmrestd of its own, as you, on a socket that only you can open, and ends it again.

Shadow jobs exist only here. infill's own planner gives them the idle nodes, and takes them back before planned starts. A main \
job that Slurm has not planned preempts them.")]
pub struct ObserveArgs {
    /// Partitions to watch [default: all nodes]
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',')]
    partition: Vec<String>,
    /// A slurmrestd to ask: unix:/path or http(s)://host:port
    #[arg(long, value_name = "URL")]
    rest: Option<String>,
    /// A file with a token for it, and the token's user
    #[arg(long, value_name = "FILE", requires = "token_user")]
    token_file: Option<PathBuf>,
    /// The user that the token belongs to
    #[arg(long, value_name = "USER")]
    token_user: Option<String>,
    /// The slurmrestd program to start
    #[arg(long, value_name = "PATH", default_value = "slurmrestd", conflicts_with = "rest")]
    slurmrestd: PathBuf,
    /// Number of shadow jobs
    #[arg(long, value_name = "JOBS", default_value = "8")]
    jobs: NonZeroU32,
    /// Largest number of nodes of a shadow job
    #[arg(long, value_name = "NODES", default_value = "16")]
    max_nodes: NonZeroU32,
    /// File with the throughput of shadow jobs by number of nodes
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
    /// Time between two looks at Slurm, such as 10 or 1m
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = parse_time)]
    every: Duration,
    /// Time between two reports
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    report: Duration,
    /// End after this time, with a last report [default: on Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    until: Option<Duration>,
    /// Print reports as JSON, one a line
    #[arg(long)]
    json: bool,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit_secs = match unit {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let secs = unit_secs.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    let secs = secs.filter(|secs| (1..=MAX_SECS).contains(secs));
    secs.map(Duration::from_secs)
        .ok_or_else(|| "expected a time such as 10, 5m or 24h, at most 366d".to_owned())
}

/// A slurmrestd that this process has started. It ends when this is dropped.
struct PrivateRest {
    url: String,
    _program: Child,
    _folder: tempfile::TempDir,
}

impl PrivateRest {
    async fn start(program: &PathBuf) -> anyhow::Result<PrivateRest> {
        let folder = tempfile::Builder::new().prefix("infill-observe-").tempdir()?;
        let socket = folder.path().join("rest.sock");
        let url = format!("unix:{}", socket.display());
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut child = Command::new(program)
            .args(["-t", "2", "-s", "openapi/slurmctld", "-a", "rest_auth/local"])
            .arg(&url)
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {}: install Slurm's package slurmrestd, or name a running one with --rest",
                    program.display()
                )
            })?;
        let begun = Instant::now();
        while !socket.exists() {
            let ended = child.try_wait()?;
            if ended.is_some() || begun.elapsed() > START_TIMEOUT {
                let said = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it says nothing").to_owned();
                return Err(anyhow!("slurmrestd does not start: {last}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(PrivateRest { url, _program: child, _folder: folder })
    }
}

/// Observes until the time is over or the user ends it.
pub async fn run(args: ObserveArgs, session: &CliSession) -> CommandResult {
    // An ordinary user may not be able to read the site's file, and there may be none yet.
    let config = session.load_config().unwrap_or_default();
    let jobs = shadow_jobs(&args)?;
    let private = match &args.rest {
        Some(_) => None,
        None => Some(PrivateRest::start(&args.slurmrestd).await?),
    };
    let url = args.rest.clone().or_else(|| private.as_ref().map(|rest| rest.url.clone())).unwrap_or_default();
    let slurm = RestSlurm::new(&SlurmConfig {
        rest: url,
        token_file: args.token_file.clone(),
        token_user: args.token_user.clone(),
        // A name that no partition has: no job is malleable here.
        partition: "infill-observe/none".to_owned(),
        ..config.slurm.clone()
    })
    .map_err(anyhow::Error::from)?;
    let mut watch = ObserverLoop {
        observer: QueueObserver::new(args.partition.clone()),
        failures: 0,
        has_answered: false,
    };
    watch.look(&slurm).await?;
    if !args.json {
        output::print_note(Some(format!(
            "watching {}; the first report comes after {} s",
            if args.partition.is_empty() { "all nodes".to_owned() } else { args.partition.join(", ") },
            args.report.as_secs()
        )));
    }
    let begun = Instant::now();
    let mut reported = begun;
    loop {
        let rest = args.until.map(|until| until.saturating_sub(begun.elapsed()));
        let interrupted = tokio::select! {
            _ = tokio::time::sleep(args.every.min(rest.unwrap_or(args.every))) => false,
            ended = tokio::signal::ctrl_c() => { ended?; true }
        };
        let is_over = interrupted || args.until.is_some_and(|until| begun.elapsed() >= until);
        if !interrupted {
            watch.look(&slurm).await?;
        }
        if is_over || reported.elapsed() >= args.report {
            reported = Instant::now();
            print_report(&watch.report(&jobs, &config).await?, args.json)?;
        }
        if is_over {
            return Ok(ProgramExit::Ok.code());
        }
        if watch.observer.change_count() >= MAX_CHANGES {
            output::print_note(Some(format!(
                "{MAX_CHANGES} changes are recorded: the observation starts again"
            )));
            watch.observer.restart();
        }
    }
}

/// The recording, and how often Slurm has not answered since.
struct ObserverLoop {
    observer: QueueObserver,
    failures: u32,
    /// Whether Slurm has answered at all.
    has_answered: bool,
}

impl ObserverLoop {
    /// Looks at Slurm once. A look that fails or shows a doubtful picture is left out.
    ///
    /// # Errors
    /// If the first look fails, or [`MAX_FAILURES`] in a row.
    async fn look(&mut self, slurm: &RestSlurm) -> anyhow::Result<()> {
        match slurm.read_snapshot().await {
            Ok(snapshot) => {
                self.failures = 0;
                self.has_answered = true;
                if snapshot.is_trusted() {
                    self.observer.record_snapshot(&snapshot);
                } else {
                    tracing::debug!(doubts = ?snapshot.doubts, "a doubtful snapshot is left out");
                }
                Ok(())
            }
            Err(e) => {
                self.failures += 1;
                if !self.has_answered || self.failures >= MAX_FAILURES {
                    return Err(e.into());
                }
                tracing::warn!("{e}");
                Ok(())
            }
        }
    }

    /// Plans the shadow jobs on all that was recorded, on a thread of its own.
    async fn report(&self, jobs: &ShadowJobs, config: &Config) -> anyhow::Result<ObservationReport> {
        let observer = self.observer.clone();
        let jobs = jobs.clone();
        let config = config.clone();
        Ok(tokio::task::spawn_blocking(move || report_observation(&observer, &jobs, &config)).await??)
    }
}

fn shadow_jobs(args: &ObserveArgs) -> Result<ShadowJobs, infill_present::exit::CommandFailure> {
    let max = args.max_nodes.get();
    let Some(path) = &args.curves else { return Ok(ShadowJobs::built_in(args.jobs, max)) };
    let curves = parsed_with_warnings(path, infill_traces::read_curves(path))?;
    Ok(ShadowJobs { count: args.jobs, sizes: (1, max), curves })
}

fn print_report(report: &ObservationReport, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let line = serde_json::to_string(report)?;
        output::print_text(&line)?;
    } else {
        output::print_text(&format!("{report}\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, secs) in [("10", 10), ("90s", 90), ("5m", 300), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(secs)), "{text}");
        }
        for text in ["", "0", "m", "5x", "-1", "1.5h", "367d", "99999999999999999999"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
