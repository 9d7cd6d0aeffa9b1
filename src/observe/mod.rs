//! `infill observe`: watches Slurm as an ordinary user, changes nothing, and says what infill would have
//! harvested.

mod reader;
mod silence;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::session::CliSession;
use infill_lab::observe::{ObservedNodes, ShadowJobs, SiteObservation};
use infill_model::{Snapshot, SnapshotDoubt, UnixTime, config::SlurmConfig, hostlist::expand_hostlist};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    input::parsed_with_warnings,
    output,
};
use reader::{ReadWay, SlurmReader};
use silence::SlurmSilence;

/// The first report comes after this time, unless reports are more frequent.
const EARLY_REPORT: Duration = Duration::from_secs(60);

/// Longest time that an option takes, seconds.
const MAX_SECS: u64 = 366 * 86_400;

/// Options of `infill observe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It needs no privilege, no partition and no line in slurm.conf. Without --rest it starts a slurmrestd of its own, as you, on a \
socket that only you can open, and ends it again. Where it cannot do that, it runs scontrol and sdiag with --json. Nothing is \
submitted or changed.

Shadow jobs exist only here. Infill's own planner gives them the idle nodes, and takes them back before planned starts. A main \
job that Slurm has not planned preempts them.

The first report comes after a minute, and then every --report. Each hour and each day that ends gets a line. Ctrl-C prints a \
last report.")]
pub struct ObserveArgs {
    /// Partitions to watch [default: all nodes]
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',')]
    partition: Vec<String>,
    /// Nodes to watch, as a host list such as n[1-4],gpu7
    #[arg(long, value_name = "HOSTLIST")]
    nodes: Option<String>,
    /// How to read Slurm [default: rest, then commands]
    #[arg(long, value_name = "WAY")]
    via: Option<ReadWay>,
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
    /// Give up when Slurm has not answered for this time, with a last report
    #[arg(long, value_name = "TIME", default_value = "6h", value_parser = parse_time)]
    give_up: Duration,
    /// Print reports as JSON, one a line
    #[arg(long)]
    json: bool,
    /// Write a page to this file at each report
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Name each main job that would have found a node held
    #[arg(long, conflicts_with = "json")]
    events: bool,
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

/// Observes until the time is over or the user ends it.
pub async fn run(args: ObserveArgs, session: &CliSession) -> CommandResult {
    // An ordinary user may not be able to read the site's file, and there may be none yet.
    let config = session.load_config().unwrap_or_default();
    if args.via == Some(ReadWay::Commands) && args.rest.is_some() {
        let why =
            anyhow::anyhow!("--rest names a slurmrestd, and --via commands asks none: leave out one of them");
        return Err(ProgramExit::Usage.caused_by(why));
    }
    let nodes = observed_nodes(&args)?;
    let jobs = shadow_jobs(&args)?;
    if let Some(path) = &args.html {
        output::check_folder(path)?;
    }
    let observation = SiteObservation::new(nodes, jobs, args.every, &config).map_err(anyhow::Error::from)?;
    let mut stop = StopSignals::new()?;
    let (reader, first) = tokio::select! {
        opened = SlurmReader::open(&args, &config.slurm) => opened?,
        () = stop.wait() => return Ok(ProgramExit::Ok.code()),
    };
    let mut watch = ObserverLoop {
        observation: Some(observation),
        reader,
        silence: SlurmSilence::default(),
        told: Reported::default(),
    };
    watch.record(first).await?;
    if !args.json {
        output::print_note(Some(start_note(&args, watch.reader.way())));
    }
    let begun = Instant::now();
    let mut report_at = begun + EARLY_REPORT.min(args.report);
    loop {
        let rest = args.until.map(|until| until.saturating_sub(begun.elapsed()));
        let mut is_over = tokio::select! {
            () = tokio::time::sleep(args.every.min(rest.unwrap_or(args.every))) => false,
            () = stop.wait() => true,
        };
        if !is_over {
            tokio::select! {
                look = watch.look(&args, &config.slurm) => watch.take_look(look, &args).await?,
                () = stop.wait() => is_over = true,
            }
        }
        is_over |= args.until.is_some_and(|until| begun.elapsed() >= until);
        watch.print_periods(&args)?;
        if is_over || Instant::now() >= report_at {
            watch.print_report(&args)?;
            let reports = begun.elapsed().as_secs() / args.report.as_secs().max(1) + 1;
            report_at = begun + args.report.saturating_mul(u32::try_from(reports).unwrap_or(u32::MAX));
        }
        if is_over {
            return Ok(ProgramExit::Ok.code());
        }
    }
}

/// What is watched, and when the first figures come.
fn start_note(args: &ObserveArgs, way: ReadWay) -> String {
    let whole = args.partition.is_empty() && args.nodes.is_none();
    let nodes = args.nodes.iter().cloned();
    let what: Vec<String> = args.partition.iter().cloned().chain(nodes).collect();
    format!(
        "watching {} through {}; first figures after {} s, then every {} s",
        if whole { "all nodes".to_owned() } else { what.join(", ") },
        match way {
            ReadWay::Rest => "slurmrestd",
            ReadWay::Commands => "scontrol and sdiag",
        },
        EARLY_REPORT.min(args.report).as_secs(),
        args.report.as_secs()
    )
}

/// SIGINT and SIGTERM. One that comes during a look is not lost.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<StopSignals> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(StopSignals { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What was printed so far, by Slurm's clock.
#[derive(Default)]
struct Reported {
    /// Hours and days that ended until then.
    periods: UnixTime,
    /// Main jobs that came until then.
    events: UnixTime,
    /// Why the last look was left out.
    doubt: String,
}

/// The observation, and for how long Slurm has not answered.
struct ObserverLoop {
    /// `None` only while a look is worked on.
    observation: Option<SiteObservation>,
    reader: SlurmReader,
    silence: SlurmSilence,
    told: Reported,
}

impl ObserverLoop {
    /// Looks at Slurm. After failed looks it opens the reader again now and then: a slurmrestd that has died
    /// answers no more.
    async fn look(&mut self, args: &ObserveArgs, site: &SlurmConfig) -> anyhow::Result<Snapshot> {
        if !self.silence.take_reopening(Instant::now()) {
            return self.reader.look().await;
        }
        let (reader, snapshot) = SlurmReader::open(args, site).await?;
        self.reader = reader;
        Ok(snapshot)
    }

    /// Takes in a look at Slurm.
    ///
    /// # Errors
    /// If Slurm has been silent for too long. The last report is printed before.
    async fn take_look(&mut self, look: anyhow::Result<Snapshot>, args: &ObserveArgs) -> anyhow::Result<()> {
        match look {
            Ok(snapshot) => {
                self.silence.end();
                self.record(snapshot).await
            }
            Err(e) => {
                let silent = self.silence.note_failure(Instant::now());
                if silent >= args.give_up {
                    self.print_periods(args)?;
                    self.print_report(args)?;
                    return Err(e.context(format!("Slurm has not answered for {} s", silent.as_secs())));
                }
                // A look every few seconds would fill the terminal.
                if silent.is_zero() {
                    tracing::warn!("{e:#}; looking again until Slurm answers");
                } else {
                    tracing::debug!("{e:#}");
                }
                Ok(())
            }
        }
    }

    /// Plans the shadow jobs up to this look, on a thread of its own. A doubtful look is left out.
    async fn record(&mut self, snapshot: Snapshot) -> anyhow::Result<()> {
        if !snapshot.is_trusted() {
            self.note_doubts(&snapshot);
            return Ok(());
        }
        let Some(mut observation) = self.observation.take() else { return Ok(()) };
        let recorded = tokio::task::spawn_blocking(move || {
            let recorded = observation.record_snapshot(&snapshot);
            recorded.map(|()| observation)
        });
        let observation = recorded.await??;
        anyhow::ensure!(
            observation.node_count() > 0,
            "Slurm shows none of these nodes: check --partition and --nodes with sinfo"
        );
        self.observation = Some(observation);
        Ok(())
    }

    /// Says once why looks are left out, unless it is only that backfill was at work.
    fn note_doubts(&mut self, snapshot: &Snapshot) {
        for doubt in &snapshot.doubts {
            tracing::debug!(%doubt, "a doubtful look is left out");
            if let SnapshotDoubt::Inconsistent(why) = doubt
                && *why != self.told.doubt
            {
                output::print_note(Some(format!("a look at Slurm does not count: {why}")));
                self.told.doubt.clone_from(why);
            }
        }
    }

    /// Prints the hours and days that have ended.
    fn print_periods(&mut self, args: &ObserveArgs) -> anyhow::Result<()> {
        let Some(observation) = self.observation.as_ref().filter(|_| !args.json) else { return Ok(()) };
        for line in observation.period_lines(self.told.periods) {
            output::print_text(&line)?;
        }
        self.told.periods = observation.last_look().unwrap_or_default();
        Ok(())
    }

    fn print_report(&mut self, args: &ObserveArgs) -> anyhow::Result<()> {
        let Some(observation) = &self.observation else { return Ok(()) };
        let via = self.reader.way().word();
        let report = observation.report(via);
        if let Some(path) = &args.html {
            output::write_file(path, &observation.page_html(via, &command_line()))?;
        }
        if args.json {
            return Ok(output::print_text(&serde_json::to_string(&report)?)?);
        }
        if args.events {
            for line in report.event_lines(self.told.events) {
                output::print_text(&line)?;
            }
            self.told.events = observation.last_look().unwrap_or_default();
        }
        Ok(output::print_text(&format!("{report}\n\n"))?)
    }
}

/// The command as it was typed, for the page.
fn command_line() -> String {
    std::env::args().take(64).collect::<Vec<_>>().join(" ")
}

fn observed_nodes(args: &ObserveArgs) -> Result<ObservedNodes, infill_present::exit::CommandFailure> {
    let names = match &args.nodes {
        None => Vec::new(),
        Some(list) => expand_hostlist(list)
            .map_err(|e| ProgramExit::Usage.caused_by(anyhow::anyhow!("--nodes {list}: {e}")))?,
    };
    if args.nodes.is_some() && names.is_empty() {
        return Err(ProgramExit::Usage.caused_by(anyhow::anyhow!("--nodes names no node")));
    }
    let partitions = args.partition.iter().cloned().collect();
    Ok(ObservedNodes { partitions, names: names.into_iter().collect() })
}

fn shadow_jobs(args: &ObserveArgs) -> Result<ShadowJobs, infill_present::exit::CommandFailure> {
    let max = args.max_nodes.get();
    let Some(path) = &args.curves else { return Ok(ShadowJobs::built_in(args.jobs, max)) };
    let curves = parsed_with_warnings(path, infill_traces::read_curves(path))?;
    Ok(ShadowJobs { count: args.jobs, sizes: (1, max), curves })
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
