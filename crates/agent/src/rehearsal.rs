//! `infill rehearse`: runs a command as a malleable job would, on this machine alone, and says what would go
//! wrong. It starts the command, waits for progress, sends the signal, and starts it again at another size.

mod findings;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use infill_api::SCHEMA_VERSION;
use infill_model::config::AgentConfig;
use infill_model::{GenerationMember, JobId, NodeCount, NodeName};

pub use self::findings::{RehearsalFinding, RehearsedRun};

use self::findings::{RehearsalRules, examine_runs};
use super::args::CommandArgs;
use super::command::{CommandOutcome, LaunchSpec, RunningCommand};
use super::command_check::find_obstacle;
use super::environment::CommandEnvironment;
use super::node_network::free_port;
use super::node_setup::prepare_node;
use super::output::OutputForwarder;
use super::progress::{self, ProgressTally};
use super::runtime_dir::RuntimeDir;
use super::signals::{AgentSignal, listen_for_signals};
use super::slurm_context::SlurmContext;
use super::slurm_programs::SlurmPrograms;

/// Most sizes of one rehearsal.
const MAX_SIZES: usize = 16;

/// Most processes at a time. All of them run on this machine.
const MAX_PROCESSES: u32 = 256;

/// How often progress is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How many steps are waited for, so that the distance between two reports is known.
const MIN_STEPS: u64 = 3;

/// Flags of `infill rehearse`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rehearsal")]
pub struct RehearseArgs {
    /// Numbers of nodes to run on, one after the other. All processes run on this machine
    #[arg(long, value_name = "NODES,…", value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PROCESSES)))]
    pub sizes: Vec<u32>,
    /// Seconds for which the command trains before it gets the signal, from its first progress
    #[arg(long, value_name = "SECS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub train_secs: u32,
    /// Seconds to wait for the first progress; then the command gets the signal anyway
    #[arg(long, value_name = "SECS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub start_secs: u32,
    /// Print JSON; the command's output goes to standard error
    #[arg(long)]
    pub json: bool,
    /// How the command is run.
    #[command(flatten)]
    pub common: CommandArgs,
}

/// The result of a rehearsal.
#[derive(Clone, Debug, Serialize)]
pub struct RehearsalReport {
    /// Version of this document's form.
    pub schema: u32,
    /// How the command ran, in order. There are fewer runs than sizes if it could not go on.
    pub runs: Vec<RehearsedRun>,
    /// What was found.
    pub findings: Vec<RehearsalFinding>,
}

impl RehearsalReport {
    /// Whether nothing was found that would make a malleable job lose work or fail.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| !finding.is_fault)
    }

    /// The result for people, a line for each run and finding.
    pub fn lines(&self, signal: &str) -> Vec<String> {
        let mut lines: Vec<String> = self.runs.iter().map(|run| describe_run(run, signal)).collect();
        for finding in &self.findings {
            let kind = if finding.is_fault { "would go wrong" } else { "note" };
            lines.push(format!("{kind}: {}", finding.text));
        }
        if self.is_sound() {
            lines.push("The command is ready for `infill run`.".to_owned());
        }
        lines
    }
}

fn describe_run(run: &RehearsedRun, signal: &str) -> String {
    let progress = match run.progress_secs {
        None => "no progress".to_owned(),
        Some(secs) => match run.first_step.zip(run.last_step) {
            Some((first, last)) => format!("steps {first} to {last}, the first after {secs:.1} s"),
            None => format!("first progress after {secs:.1} s, no steps"),
        },
    };
    let end = match (run.asked, run.killed) {
        (true, true) => format!("killed {:.1} s after SIG{signal}", run.end_secs),
        (true, false) => format!("exited {:.1} s after SIG{signal} with code {}", run.end_secs, run.code),
        (false, _) => format!("ended by itself after {:.1} s with code {}", run.end_secs, run.code),
    };
    format!("{}, {} in all: {progress}; {end}", NodeCount(run.nodes), ProcessCount(run.processes))
}

/// `1 process`, `2 processes`.
struct ProcessCount(u32);

impl std::fmt::Display for ProcessCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} process{}", self.0, if self.0 == 1 { "" } else { "es" })
    }
}

/// Runs the command at each of the sizes, and says what would go wrong. SIGTERM and SIGINT end it.
///
/// # Errors
/// When there are too many processes, when it is interrupted, or when this machine lacks something.
pub async fn rehearse(args: RehearseArgs) -> anyhow::Result<RehearsalReport> {
    if let Some(obstacle) = find_obstacle(&args.common.command, None) {
        bail!("{obstacle}");
    }
    ensure!(args.sizes.len() <= MAX_SIZES, "--sizes: at most {MAX_SIZES} numbers are allowed");
    let most = args.sizes.iter().copied().max().unwrap_or(1).saturating_mul(args.common.started_ranks());
    ensure!(
        most <= MAX_PROCESSES,
        "{most} processes would run on this machine; at most {MAX_PROCESSES} are allowed: use smaller --sizes"
    );
    let job = JobId(std::process::id());
    let context = SlurmContext { job, node: NodeName::new("rehearsal"), in_step: false };
    let home = RuntimeDir::create_for(&context).context("cannot make the private directory")?;
    let result = run_sizes(&args, &context, &home).await;
    home.remove();
    let runs = result?;
    let rules = RehearsalRules {
        signal: args.common.signal.to_string(),
        signal_number: args.common.signal.0,
        grace_secs: args.common.grace_period().as_secs_f64(),
        preempt_secs: AgentConfig::default().preempt_leave_secs,
    };
    Ok(RehearsalReport { schema: SCHEMA_VERSION, findings: examine_runs(&runs, &rules), runs })
}

async fn run_sizes(
    args: &RehearseArgs,
    context: &SlurmContext,
    home: &RuntimeDir,
) -> anyhow::Result<Vec<RehearsedRun>> {
    let mut signals = listen_for_signals().context("cannot listen for signals")?;
    let programs = SlurmPrograms::default();
    if let Err(failure) = prepare_node(&args.common, context.job, context, programs, &mut signals).await {
        bail!("{failure}");
    }
    Stage::open(args, home, signals)?.run_all().await
}

/// What all runs share.
struct Stage<'a> {
    args: &'a RehearseArgs,
    home: &'a RuntimeDir,
    tally: ProgressTally,
    output: OutputForwarder,
    signals: mpsc::Receiver<AgentSignal>,
}

/// What the processes of a node are asked to do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StopOrder {
    Run,
    Save(Duration),
    Kill,
}

impl<'a> Stage<'a> {
    fn open(
        args: &'a RehearseArgs,
        home: &'a RuntimeDir,
        signals: mpsc::Receiver<AgentSignal>,
    ) -> anyhow::Result<Stage<'a>> {
        let tally = ProgressTally::new();
        let listener = progress::open_progress_socket(&home.progress_socket())
            .context("cannot open the progress socket")?;
        tokio::spawn(progress::receive_datagrams(listener, tally.clone()));
        let prefix = !args.common.no_prefix;
        let output = if args.json {
            OutputForwarder::to_own_stderr(prefix)
        } else {
            OutputForwarder::to_own_streams(prefix)
        };
        let output = output.context("cannot write to our output")?;
        Ok(Stage { args, home, tally, output, signals })
    }

    async fn run_all(mut self) -> anyhow::Result<Vec<RehearsedRun>> {
        let mut runs = Vec::new();
        for (&nodes, generation) in self.args.sizes.iter().zip(1..) {
            let run = self.run_once(nodes, generation).await?;
            let may_go_on = run.asked;
            runs.push(run);
            if !may_go_on {
                break;
            }
        }
        Ok(runs)
    }

    /// Runs the command on this many nodes until it has progressed, asks it to save, and waits for its end.
    async fn run_once(&mut self, nodes: u32, generation: u64) -> anyhow::Result<RehearsedRun> {
        eprintln!("infill: starting the command on {}", NodeCount(nodes));
        self.tally.restart();
        let (orders, order) = watch::channel(StopOrder::Run);
        let mut members = self.start_members(nodes, generation, &order);
        let started = Instant::now();
        let mut watch = RunWatch::new(self.args, started);
        let mut run = RehearsedRun {
            nodes,
            processes: nodes * self.args.common.started_ranks(),
            ..RehearsedRun::default()
        };
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut steps_at_signal = None;
        let mut was_interrupted = false;
        while !members.is_empty() {
            tokio::select! {
                Some(Ok(ended)) = members.join_next() => {
                    run.code = if run.code == 0 { ended.exit.code } else { run.code };
                    run.killed |= ended.exit.asked && ended.exit.killed;
                    if ended.failed_unasked {
                        // The others would wait for it.
                        orders.send_replace(StopOrder::Kill);
                    }
                }
                Some(signal) = self.signals.recv() => if signal == AgentSignal::Leave {
                    was_interrupted = true;
                    orders.send_replace(StopOrder::Kill);
                },
                _ = ticks.tick() => {
                    if !run.asked && *orders.borrow() == StopOrder::Run && watch.is_time_for_signal(&self.tally) {
                        eprintln!("infill: sending SIG{}", self.args.common.signal);
                        run.asked = true;
                        watch.asked_at = Some(Instant::now());
                        steps_at_signal = self.tally.steps().map(|steps| steps.last);
                        orders.send_replace(StopOrder::Save(self.args.common.grace_period()));
                    }
                }
            }
        }
        ensure!(!was_interrupted, "interrupted");
        watch.note_progress(&self.tally);
        let steps = self.tally.steps();
        run.progress_secs = watch.progress_at.map(|at| at.duration_since(started).as_secs_f64());
        run.end_secs = watch.asked_at.unwrap_or(started).elapsed().as_secs_f64();
        run.first_step = steps.map(|steps| steps.first);
        run.last_step = steps.map(|steps| steps.last);
        run.stride = steps.map_or(1, |steps| steps.stride);
        run.steps_after_signal = steps_at_signal.zip(run.last_step).map_or(0, |(then, last)| last - then);
        Ok(run)
    }

    /// Starts the command once for each node. It must run on the thread that lives as long as the process.
    fn start_members(
        &self,
        nodes: u32,
        generation: u64,
        order: &watch::Receiver<StopOrder>,
    ) -> JoinSet<CommandOutcome> {
        let common = &self.args.common;
        let socket = self.home.progress_socket();
        let environment = CommandEnvironment::from_args(common, JobId(0), &socket);
        let master_port = free_port();
        let mut members = JoinSet::new();
        for rank in 0..nodes {
            let member = GenerationMember {
                generation,
                rank,
                world: nodes,
                master_addr: "127.0.0.1".to_owned(),
                master_port,
                nodes: vec![NodeName::new("localhost"); nodes as usize],
                exec_plan: common.first_plan(),
                meeting: None,
            };
            let ranks = (0..common.started_ranks()).map(|local| {
                (environment.global_rank(&member, local), environment.rank_variables(&member, local))
            });
            let launch = LaunchSpec {
                words: common.command_for_plan(&member.exec_plan),
                ranks: ranks.collect(),
                remote: None,
                mark: format!("{}.{generation}.{rank}", self.home.path().display()),
                signal: common.signal.0,
                output: self.output.clone(),
                regex: common.progress_regex.clone(),
                tally: self.tally.clone(),
                kills: None,
            };
            let running = RunningCommand::start(common.container.wrap_launch(launch, self.home.path()));
            members.spawn(follow_orders(running, order.clone()));
        }
        members
    }
}

/// Waits for the end of a node's processes, and does meanwhile what is ordered.
async fn follow_orders(mut running: RunningCommand, mut order: watch::Receiver<StopOrder>) -> CommandOutcome {
    loop {
        tokio::select! {
            ended = running.wait_for_end() => return ended,
            Ok(()) = order.changed() => match *order.borrow() {
                StopOrder::Run => {}
                StopOrder::Save(grace) => running.stop(grace),
                StopOrder::Kill => running.kill(),
            },
        }
    }
}

/// Decides when the command has trained long enough.
struct RunWatch {
    train: Duration,
    /// Without progress, the signal is sent then.
    latest_start: Instant,
    progress_at: Option<Instant>,
    asked_at: Option<Instant>,
}

impl RunWatch {
    fn new(args: &RehearseArgs, started: Instant) -> RunWatch {
        RunWatch {
            train: Duration::from_secs(args.train_secs.into()),
            latest_start: started + Duration::from_secs(args.start_secs.into()),
            progress_at: None,
            asked_at: None,
        }
    }

    fn note_progress(&mut self, tally: &ProgressTally) {
        if tally.take().is_some() {
            self.progress_at.get_or_insert_with(Instant::now);
        }
    }

    /// Whether the command has trained for long enough, or will never show progress.
    fn is_time_for_signal(&mut self, tally: &ProgressTally) -> bool {
        self.note_progress(tally);
        let now = Instant::now();
        let Some(progress_at) = self.progress_at else { return now >= self.latest_start };
        let has_steps = tally.steps().is_none_or(|steps| steps.increases + 1 >= MIN_STEPS);
        now >= progress_at + self.train && (has_steps || now >= self.latest_start)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: RehearseArgs,
    }

    /// A shell program that reports steps from its checkpoint on, and runs `on_signal` when it is asked to
    /// save.
    fn trainee(dir: &std::path::Path, on_signal: &str) -> String {
        let saved = dir.join("saved");
        let saved = saved.display();
        format!(
            "step=$(cat {saved} 2>/dev/null || echo 0); trap '{}' USR1; \
             while :; do sleep 0.05; step=$((step + 1)); echo step $step; done",
            on_signal.replace("SAVED", &saved.to_string())
        )
    }

    /// Rehearsals of one process share a directory.
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    async fn rehearse_script(flags: &str, script: &str) -> RehearsalReport {
        let _turn = ONE_AT_A_TIME.lock().await;
        let regex = "--progress-regex=^step (?<step>[0-9]+)";
        let base = ["infill", "--train-secs=0", "--grace=2", regex];
        let words = base.into_iter().chain(flags.split_whitespace()).chain(["--", "sh", "-c", script]);
        rehearse(Cli::parse_from(words).args).await.unwrap()
    }

    fn kinds(rehearsal: &RehearsalReport) -> Vec<&'static str> {
        rehearsal.findings.iter().map(|finding| finding.kind).collect()
    }

    #[tokio::test]
    async fn a_command_that_saves_is_ready() {
        let dir = tempfile::tempdir().unwrap();
        let script = trainee(dir.path(), "echo $step >SAVED; exit 0");
        let rehearsal = rehearse_script("--sizes=1,1,1", &script).await;
        assert_eq!(kinds(&rehearsal), [""; 0], "{rehearsal:?}");
        let [first, second, _] = &rehearsal.runs[..] else { panic!("{rehearsal:?}") };
        assert_eq!(first.first_step, Some(1));
        assert_eq!(second.first_step, first.last_step.map(|step| step + 1));
        assert!(rehearsal.lines("USR1").last().unwrap().contains("ready"));
    }

    #[tokio::test]
    async fn what_would_go_wrong_is_named() {
        for (on_signal, flags, expected) in [
            ("exit 0", "", &["began_again"][..]),
            ("true", "--sizes=1", &["signal_ignored"]),
            ("echo $step >SAVED; exit 4", "--sizes=1,1", &["exit_code", "exit_code"]),
            ("sleep 60", "--sizes=1", &["too_slow"]),
            ("echo 1 >SAVED; exit 0", "--sizes=1,1", &["steps_repeated"]),
            ("echo 999 >SAVED; exit 0", "--sizes=1,1", &["steps_skipped"]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let rehearsal = rehearse_script(flags, &trainee(dir.path(), on_signal)).await;
            assert_eq!(kinds(&rehearsal), expected, "{on_signal}: {rehearsal:?}");
            assert!(!rehearsal.is_sound());
        }
    }

    #[tokio::test]
    async fn a_command_without_a_handler_or_progress_is_found() {
        let rehearsal = rehearse_script("--sizes=1 --start-secs=1", "sleep 60").await;
        assert_eq!(kinds(&rehearsal), ["no_progress", "died_of_signal"]);
        let rehearsal = rehearse_script("", "exit 3").await;
        assert_eq!((kinds(&rehearsal), rehearsal.runs.len()), (vec!["failed"], 1));
        let rehearsal = rehearse_script("", "echo step 1; exit 0").await;
        assert_eq!(kinds(&rehearsal), ["ended_early"]);
    }

    #[tokio::test]
    async fn all_nodes_get_their_ranks_and_end_when_one_fails() {
        let script = "test $RANK = 1 && exit 5; sleep 60";
        let started = std::time::Instant::now();
        let rehearsal = rehearse_script("--sizes=3", script).await;
        assert_eq!((rehearsal.runs[0].code, rehearsal.runs[0].processes), (5, 3), "{rehearsal:?}");
        assert!(started.elapsed() < Duration::from_secs(30));
        let words = ["infill", "--sizes=200", "--nproc-per-node=2", "--", "true"];
        let error = rehearse(Cli::parse_from(words).args).await.unwrap_err().to_string();
        assert!(error.starts_with("400 processes"), "{error}");
    }
}
