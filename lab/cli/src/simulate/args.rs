//! The command line of `infill simulate`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::show::HELP;
use super::unit::LogUnit;
use infill_model::trace::MAX_NODES_A_MACHINE;
use infill_present::filter::TableArgs;
use infill_sim::{closed::ClosedMachine, job::ChangeAccounting, order::QueueOrder, supply::SampleWorth};
use infill_traces::SwfLayout;

/// The log to replay. `infill gaps` has the same flags.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Log, instead of a daemon")]
pub struct LogArgs {
    /// Job log: SWF, or what `sacct -aXPo
    /// JobID,User,Account,Partition,Submit,Start,End,Timelimit,NNodes,NodeList,AllocTRES,State` prints;
    /// plain, .gz, .xz or .zst
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Format of the job log [default: by its content]
    #[arg(long, value_name = "FORMAT", requires = "log")]
    pub log_format: Option<LogFormat>,
    /// Processors of a node, for logs that count processors [default: by the log's header]
    #[arg(long, value_name = "PROCESSORS", requires = "log")]
    pub procs_per_node: Option<NonZeroU32>,
    /// Unit of the job log, in which sizes and --nodes count
    #[arg(long, value_name = "UNIT", value_enum, default_value_t = LogUnit::Node, requires = "log")]
    pub unit: LogUnit,
    /// GPUs of a node, for --unit gpu [default: as many as its jobs ever have at once]
    #[arg(long, value_name = "GPUS", requires = "log", value_parser = gpu_count_parser())]
    pub gpus_per_node: Option<u32>,
    /// Log of idle intervals: CSV with the columns start_s, end_s and node
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    pub idle: Option<PathBuf>,
    /// Number of nodes: the first of an idle log; for a job log the size of the machine, unless its jobs
    /// name more
    #[arg(long, value_name = "NODES", value_parser = parse_node_count)]
    pub nodes: Option<usize>,
}

/// Formats of job logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Standard workload format, 18 columns
    Swf,
    /// Its variant of six columns: job, submit, wait, run, nodes, requested time
    Swf6,
    /// Slurm's accounting
    Sacct,
}

impl LogArgs {
    /// Whether a log is named.
    pub fn is_named(&self) -> bool {
        self.log.is_some() || self.idle.is_some()
    }

    /// The name of the log's file, without its folders.
    pub fn file_name(&self) -> String {
        let path = self.idle.as_ref().or(self.log.as_ref());
        path.map_or_else(String::new, |path| super::command::file_name(&path.to_string_lossy()).to_owned())
    }
}

impl LogFormat {
    /// The layout of a standard workload format.
    pub fn swf_layout(format: Option<LogFormat>) -> SwfLayout {
        match format {
            Some(LogFormat::Swf) => SwfLayout::Standard,
            Some(LogFormat::Swf6) => SwfLayout::Six,
            _ => SwfLayout::Auto,
        }
    }
}

/// The heading of what is compared.
const POLICIES: &str = "Policies";
/// The heading of what one simulation does.
const RUN: &str = "Simulation";

/// Flags of `infill simulate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP.as_str())]
pub struct SimulateArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) supply: SupplyArgs,
    #[command(flatten)]
    pub(crate) closed: ClosedArgs,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
    /// Unit of work: a sample of any job, or a node-second of any job at its smallest size
    #[arg(long, value_name = "UNIT", help_heading = POLICIES, value_enum, default_value_t = WorthUnit::Sample)]
    pub worth: WorthUnit,
    /// Policies, compared with the bound: infill, infill-known, infill-blind, infill-oracle,
    /// freetrain[@SECS], freetrain-linear[@SECS], malletrain[@SECS], equal-share, fcfs-max, bound
    /// [default: infill,infill-known,freetrain,bound]; for --machine infill, infill-known, static, rubick,
    /// sia, fcfs [default: all]
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', help_heading = POLICIES)]
    pub policy: Vec<String>,
    /// Forward-looking time of the published program, for policies without @SECS
    #[arg(long, value_name = "SECS", help_heading = POLICIES, default_value_t = infill_sim::policy::DEFAULT_TFWD_SECS, value_parser = parse_positive)]
    pub tfwd: f64,
    /// Simulate only the first days of the log
    #[arg(long, value_name = "DAYS", help_heading = RUN, value_parser = parse_positive)]
    pub days: Option<f64>,
    /// Seed of all random numbers
    #[arg(long, value_name = "NUMBER", help_heading = RUN, default_value_t = 1)]
    pub seed: u64,
    /// How much a measurement of one second varies (standard deviation of its logarithm)
    #[arg(long, value_name = "SHARE", help_heading = RUN, default_value_t = 0.02)]
    pub noise: f64,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Write the results into this file as a page with figures, which needs only a browser
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Report how long each policy took, in the JSON and in the field %T. Without this flag, the same seed
    /// gives the same bytes
    #[arg(long, help_heading = "Output")]
    pub timings: bool,
}

impl SimulateArgs {
    /// The policies that the flags name, or these defaults.
    pub fn named_policies<'a>(&'a self, defaults: &'a [&'a str]) -> Vec<&'a str> {
        if self.policy.is_empty() {
            return defaults.to_vec();
        }
        self.policy.iter().map(String::as_str).collect()
    }
}

/// The malleable jobs to simulate.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Malleable jobs")]
pub(crate) struct SupplyArgs {
    /// CSV with the columns nodes and throughput, or model, nodes and throughput for several
    #[arg(long, value_name = "FILE", required_unless_present = "machine")]
    pub curves: Vec<PathBuf>,
    /// Use only the curves with these names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Malleable jobs: CSV with the columns name, submit_s, samples, min_nodes, max_nodes, curve and perhaps
    /// weight and user; for --machine name (or job_id), submission_s, model, gpus, steps (or iterations) and
    /// perhaps params, batch, gpu_type, plan_base
    #[arg(long, value_name = "FILE", conflicts_with_all = ["endless", "hpo", "nas"])]
    pub workload: Option<PathBuf>,
    /// Simulate this many jobs that never end, with the curves in turn [default: 10]
    #[arg(long, value_name = "JOBS", conflicts_with_all = ["hpo", "nas"], value_parser = at_once_parser())]
    pub endless: Option<u32>,
    /// A search for hyper-parameters by successive halving: TRIALS[:ETA]
    #[arg(long, value_name = "TRIALS", conflicts_with = "nas", value_parser = parse_trials)]
    pub hpo: Option<(u32, u32)>,
    /// A search that trains this many architectures at a time, each with its own scaling curve
    #[arg(long, value_name = "JOBS", value_parser = at_once_parser())]
    pub nas: Option<u32>,
    /// Smallest size of endless jobs and of searches
    #[arg(long, value_name = "NODES", default_value_t = 1)]
    pub min: u32,
    /// Largest size of endless jobs and of searches
    #[arg(long, value_name = "NODES", default_value_t = 64)]
    pub max: u32,
}

impl SupplyArgs {
    /// The smallest and the largest size of endless jobs and of searches.
    pub fn size_range(&self) -> (u32, u32) {
        (self.min.max(1), self.max.max(self.min).max(1))
    }
}

/// A machine without a main queue.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Closed machine, instead of a log")]
pub(crate) struct ClosedArgs {
    /// A closed machine instead of a log: NODESxGPUS:TYPE[,…], such as 8x8:a800, with the jobs of --workload
    /// and the speeds of --plans; all its nodes are always available. With --order its GPUs are of one kind
    /// (468x1)
    #[arg(long, value_name = "SPEC", requires = "workload", conflicts_with_all = ["log", "idle", "curves", "html", "days", "warm"])]
    pub machine: Option<ClosedMachine>,
    /// CSV of the training speeds of models: model, plan, gpus, nodes, dp, tp, pp, global_batch, iter_time_s
    /// and perhaps placement, zero, offload, gc, gpu_type; or of their best plans: model, params, batch,
    /// gpu_type, gpus, nodes, iter_time_s
    #[arg(long, value_name = "FILE", requires = "machine")]
    pub plans: Option<PathBuf>,
    /// CSV of facts about models: model and params_mi, millions of parameters
    #[arg(long, value_name = "FILE", requires = "machine")]
    pub facts: Option<PathBuf>,
    /// CSV of estimated training speeds on types of GPUs, as for `infill advise --types`, with which the
    /// policy `infill` begins
    #[arg(long, value_name = "FILE", requires = "plans")]
    pub estimates: Option<PathBuf>,
    /// Compare orders of a queue of jobs of fixed size: fcfs, las, 2d-las, srpt-oracle, srpt-predicted,
    /// a-srpt, borda, gittins. --workload is a log as for `infill history check`; its first 30 % only train
    /// the prediction
    #[arg(long, value_name = "ORDER,…", value_delimiter = ',', requires = "machine", conflicts_with_all = ["plans", "policy"])]
    pub order: Vec<QueueOrder>,
    /// Seconds of additional work each time a job is stopped
    #[arg(long, value_name = "SECS", default_value_t = 30.0, value_parser = parse_secs, requires = "order")]
    pub stop: f64,
    /// Percentage of kinds of jobs (user, name and size) whose prediction is used
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0, value_parser = parse_percent, requires = "order")]
    pub mix: f64,
    /// Seconds without a step when a job starts, and when it gets other GPUs or another plan
    #[arg(long, value_name = "SECS", default_value_t = 260.0, value_parser = parse_secs, requires = "machine")]
    pub restart: f64,
    /// Whether infill knows how many steps jobs will make, or predicts this from jobs with the same model
    #[arg(long, value_name = "KNOWLEDGE", value_enum, default_value_t = LengthKnowledge::Known, requires = "machine")]
    pub lengths: LengthKnowledge,
    /// Submission times are divided by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_positive, requires = "machine")]
    pub speed_up: f64,
    /// Multiply the steps of each job by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_positive, requires = "machine")]
    pub scale_work: f64,
    /// End the simulation after this time, even if jobs are left
    #[arg(long, value_name = "SECS", value_parser = parse_positive_secs, requires = "machine")]
    pub secs: Option<f64>,
}

/// What infill knows about the lengths of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LengthKnowledge {
    /// The number of steps of each job
    #[default]
    Known,
    /// Only predictions from jobs that have ended
    Learned,
}

/// The costs of changes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Costs of changes")]
pub(crate) struct ChangeArgs {
    /// Seconds without samples when a job gets more nodes
    #[arg(long, value_name = "SECS", default_value_t = 18.0, value_parser = parse_secs)]
    pub up: f64,
    /// Seconds without samples when a job gets fewer nodes
    #[arg(long, value_name = "SECS", default_value_t = 12.0, value_parser = parse_secs)]
    pub down: f64,
    /// Seconds without samples when a job starts
    #[arg(long, value_name = "SECS", default_value_t = 18.0, value_parser = parse_secs)]
    pub start: f64,
    /// Jobs stay alive over changes: a newcomer warms up for these seconds on its own node while the others
    /// train. Then --up and --down are the pauses of the others
    #[arg(long, value_name = "SECS", value_parser = parse_secs)]
    pub warm: Option<f64>,
    /// How these seconds are charged: as pauses, or as in the published replay at the rate before the change,
    /// with free starts
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ChangeCharging::Pause)]
    pub accounting: ChangeCharging,
    /// Seconds that saving a checkpoint takes
    #[arg(long, value_name = "SECS", default_value_t = 1.0, value_parser = parse_secs)]
    pub save: f64,
    /// Seconds that a preempted job has to save. If saving takes longer, the job loses the work since its
    /// last checkpoint
    #[arg(long, value_name = "SECS", default_value_t = 2.0, value_parser = parse_secs)]
    pub grace: f64,
    /// Seconds between two checkpoints of a running job
    #[arg(long, value_name = "SECS", default_value_t = 600.0, value_parser = parse_secs)]
    pub checkpoint: f64,
    /// Seconds from leaving a node until the main queue can have it
    #[arg(long, value_name = "SECS", default_value_t = 5.0, value_parser = parse_secs)]
    pub leave: f64,
    /// How much jobs that leave at the same time slow each other's saves down: 0 not at all, 1 as if they
    /// shared one pipe
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share)]
    pub save_shared: f64,
}

/// The unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorthUnit {
    /// A sample of any job
    Sample,
    /// A node-second of any job at its smallest size, as in the daemon
    NodeSecond,
}

/// How the seconds of a rescale are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChangeCharging {
    /// The job makes no samples during the change
    Pause,
    /// The job loses the samples that it would have made at its old size
    OldRate,
}

impl From<ChangeCharging> for ChangeAccounting {
    fn from(charging: ChangeCharging) -> ChangeAccounting {
        match charging {
            ChangeCharging::Pause => ChangeAccounting::Pause,
            ChangeCharging::OldRate => ChangeAccounting::OldRate,
        }
    }
}

impl From<WorthUnit> for SampleWorth {
    fn from(unit: WorthUnit) -> SampleWorth {
        match unit {
            WorthUnit::Sample => SampleWorth::Sample,
            WorthUnit::NodeSecond => SampleWorth::NodeSecond,
        }
    }
}

fn parse_secs(text: &str) -> Result<f64, String> {
    let secs: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if (0.0..=1e6).contains(&secs) { Ok(secs) } else { Err("expected 0 to 1000000 seconds".to_owned()) }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|n| (0.0..=1.0).contains(n));
    share.ok_or_else(|| "expected 0 to 1".to_owned())
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|n| (0.0..=100.0).contains(n));
    share.ok_or_else(|| "expected 0 to 100".to_owned())
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|n| *n > 0.0 && *n <= 1e6);
    number.ok_or_else(|| "expected a number above 0, 1000000 at most".to_owned())
}

fn parse_positive_secs(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|n| *n > 0.0 && *n <= 1e10);
    number.ok_or_else(|| "expected seconds above 0, 10000000000 at most".to_owned())
}

fn parse_node_count(text: &str) -> Result<usize, String> {
    let nodes: Option<u32> = text.parse().ok().filter(|n| (1..=MAX_NODES_A_MACHINE).contains(n));
    nodes.map(|n| n as usize).ok_or_else(|| format!("expected 1 to {MAX_NODES_A_MACHINE} nodes"))
}

fn gpu_count_parser() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1024)
}

fn at_once_parser() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=10_000)
}

fn parse_trials(text: &str) -> Result<(u32, u32), String> {
    let (trials, eta) = text.split_once(':').unwrap_or((text, "3"));
    let trials = parse_trial_number(trials);
    let eta = parse_trial_number(eta);
    trials.zip(eta).ok_or_else(|| format!("expected TRIALS[:ETA], at least 2 each, found {text:?}"))
}

fn parse_trial_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| (2..=10_000).contains(number))
}
