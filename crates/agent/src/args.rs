//! The command lines of `infill run` and `infill worker`.

mod headings;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use regex::bytes::Regex;
use sha2::{Digest, Sha256};

use infill_model::config::{ClientConfig, ConfigError};
use infill_model::{
    AllowedSizes, BatchMode, DeclaredPlan, ExecPlan, GenerationMember, LayerProfile, MAX_SETUP_SECS,
    MOST_GPUS_A_NODE, NodeName, RequestedSize, RescaleCosts, RunSpec, ScalingCurve, is_valid_rate,
};

pub use self::headings::GLOBAL_OPTIONS;
use self::headings::{MEASUREMENTS, PROCESSES, PROGRESS, SAVING, SIZE, WITHOUT_DAEMON};
use super::container::ContainerArgs;
use super::exec_plans::ExecPlans;
use super::identity;
use super::launcher_detection;
use super::layer_profile;
use super::node_gpus::{self, GPUS_ON_NODE_VARIABLE};
use super::profile_family::ProfileParameters;
use super::progress::RUNNING_TOTAL;
use super::run_signal::RunSignal;
use super::slurm_context::env_variable;

/// Longest waiting time that a flag may name, seconds: a week. That is longer than any job's limit that we
/// have seen.
const MAX_WAIT_SECS: u32 = 7 * 86_400;

/// Most local ranks on one node: four times the cores of today's largest nodes.
const MAX_LOCAL_RANKS: u32 = MOST_GPUS_A_NODE;

/// Runs a training command as a malleable job
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "infill run [OPTIONS] [--] <COMMAND> [ARGUMENTS]...",
    after_help = headings::ABOUT_COMMANDS
)]
pub struct RunArgs {
    /// The flags that are declared to the daemon.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// How the command is run; the same on all workers.
    #[command(flatten)]
    pub common: CommandArgs,
    /// Train alone, on the lead's one node, while the daemon is away and there is no other way to train
    #[arg(long, help_heading = WITHOUT_DAEMON)]
    pub alone: bool,
    /// Set by infill itself when it starts again as a job step.
    #[arg(long, hide = true)]
    pub in_step: bool,
    /// The private directory that the batch script's agent has made.
    #[arg(long, hide = true)]
    pub home: Option<PathBuf>,
    /// File of the batch script's standard output, to which wings append.
    #[arg(long, hide = true)]
    pub output_file: Option<PathBuf>,
    /// File of the batch script's standard error, to which wings append.
    #[arg(long, hide = true)]
    pub error_file: Option<PathBuf>,
}

/// The rate that `--at-least` wants for a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeastRate {
    /// A number of samples a second.
    Rate(f64),
    /// The rate of the job's first plan at this size.
    Asked(RequestedSize),
}

impl LeastRate {
    fn samples_per_sec(self) -> Option<f64> {
        if let LeastRate::Rate(rate) = self { Some(rate) } else { None }
    }

    fn requested_size(self) -> Option<RequestedSize> {
        if let LeastRate::Asked(asked) = self { Some(asked) } else { None }
    }
}

/// What the user declares about the job.
#[derive(Args, Clone, Debug)]
pub struct SpecArgs {
    /// Numbers of nodes that the job may run on: 4, 2-8 or 1,2,4,8 [default: as submitted]
    #[arg(long, value_name = "NODES", value_parser = parse_sizes, help_heading = SIZE)]
    pub nodes: Option<AllowedSizes>,
    /// In a job of the main queue: train on its own nodes and on this many idle nodes more (1-16), which are
    /// given back when others want them
    #[arg(long, value_name = "NODES", value_parser = parse_sizes, conflicts_with = "nodes", help_heading = SIZE)]
    pub extend: Option<AllowedSizes>,
    /// Known throughput by number of nodes: 1:10,2:19,4:35 (samples a second)
    #[arg(long, value_name = "NODES:RATE,…", value_parser = parse_curve, help_heading = MEASUREMENTS)]
    pub curve: Option<ScalingCurve>,
    /// Known seconds without useful work when growing, shrinking and starting, such as 18,12,18
    #[arg(long, value_name = "UP,DOWN,START", value_parser = parse_costs, help_heading = MEASUREMENTS)]
    pub costs: Option<RescaleCosts>,
    /// Lowest rate that the job should have while others have more than their smallest size: samples a
    /// second, or the rate of its first plan at the size that was requested from sbatch (asked) or that is
    /// given here (asked:4)
    #[arg(long, value_name = "RATE|asked[:NODES]", value_parser = parse_at_least, help_heading = SIZE)]
    pub at_least: Option<LeastRate>,
    /// Failures of the command that are retried before the job fails; rescaling never counts
    #[arg(long, value_name = "COUNT", default_value_t = 3, help_heading = SAVING)]
    pub max_restarts: u32,
    /// Name under which measurements of this job are kept [default: from the command line]
    #[arg(long, value_name = "NAME", help_heading = MEASUREMENTS)]
    pub profile: Option<String>,
    /// Parameters of the command that change its speed, such as layers,hidden: trials with the same values
    /// share their measurements
    #[arg(long, value_name = "PARAMETER,…", help_heading = MEASUREMENTS)]
    pub profile_by: Option<ProfileParameters>,
    /// Whether each node works on a batch of its own, or all nodes share one [default: recognised]
    #[arg(long, value_name = "MODE", value_parser = batch_modes(), default_value_t = BatchMode::Auto, hide_default_value = true, help_heading = MEASUREMENTS)]
    pub batch: BatchMode,
    /// How long the model's layers take on one GPU, as `infill.profile_layers` in Python writes it: where the
    /// job never ran, its rate is estimated from this
    #[arg(long, value_name = "FILE", value_parser = layer_profile::read_layer_profile, help_heading = MEASUREMENTS)]
    pub layers: Option<Arc<LayerProfile>>,
}

/// The values of `--batch` with their help. They are here because the model knows nothing of command lines.
fn batch_modes() -> impl TypedValueParser<Value = BatchMode> {
    let values = BatchMode::ALL.iter().map(|mode| {
        let help = match mode {
            BatchMode::Auto => "Recognised from samples and steps, if possible",
            BatchMode::PerNode => {
                "Each node works on a batch of its own: a step has more samples on more nodes (weak scaling)"
            }
            BatchMode::Global => {
                "The nodes share one batch: a step has the same samples on any number of nodes (strong scaling)"
            }
        };
        PossibleValue::new(mode.word()).help(help)
    });
    PossibleValuesParser::new(values).try_map(|word| word.parse())
}

/// How the command is run.
#[derive(Args, Clone, Debug)]
pub struct CommandArgs {
    /// Signal that asks the command to save and exit, sent to its processes that handle it
    #[arg(long, value_name = "NAME", default_value = "USR1", help_heading = SAVING)]
    pub signal: RunSignal,
    /// Seconds that the command gets to save and exit before it is killed
    #[arg(long, value_name = "SECS", default_value_t = 60, help_heading = SAVING, value_parser = clap::value_parser!(u32).range(0..=MAX_WAIT_SECS as i64))]
    pub grace: u32,
    /// Number of processes of the command on each node, one for each local rank [default: one for each GPU of
    /// a whole node, else 1]; torchrun and similar launchers are started once and get the number
    #[arg(long, alias = "nproc-per-node", value_name = "PROCESSES", help_heading = PROCESSES, value_parser = clap::value_parser!(u32).range(1..=MAX_LOCAL_RANKS as i64))]
    pub workers_per_node: Option<u32>,
    /// The number without that flag, once the agent knows its node.
    #[arg(skip = 1u32)]
    pub default_ranks: u32,
    /// Read progress from the command's output: a regular expression with groups samples (since the last
    /// line) or seen (in all so far), step, loss and total
    #[arg(long, value_name = "REGEX", value_parser = parse_regex, help_heading = PROGRESS)]
    pub progress_regex: Option<Regex>,
    /// Execution plans among which infill chooses, as `infill plans --help` describes them
    #[arg(long, value_name = "FILE", value_parser = ExecPlans::from_argument, help_heading = MEASUREMENTS)]
    pub plans: Option<ExecPlans>,
    /// Shell command that prepares each node before the training command runs there, such as one that copies
    /// data. A node where it fails is given back
    #[arg(long, value_name = "SHELL_COMMAND", help_heading = PROCESSES)]
    pub on_node: Option<String>,
    /// Seconds after which the command of --on-node is ended, and its node given back
    #[arg(long, value_name = "SECS", default_value_t = 600, help_heading = PROCESSES, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SETUP_SECS)))]
    pub on_node_secs: u32,
    /// The container in which the command runs.
    #[command(flatten)]
    pub container: ContainerArgs,
    /// Do not put the rank before each line of output
    #[arg(long, help_heading = PROGRESS)]
    pub no_prefix: bool,
    /// Seconds without the daemon after which an agent that has nothing to run reacts: a lead trains alone
    /// (--alone) or logs that it waits, and a wing gives its node back. A command that runs goes on
    #[arg(long, value_name = "SECS", default_value_t = 600, help_heading = WITHOUT_DAEMON, value_parser = clap::value_parser!(u32).range(0..=MAX_WAIT_SECS as i64))]
    pub daemon_patience: u32,
    /// The daemon's URL [default: agent.url of the configuration]
    #[arg(long, value_name = "URL", env = "INFILL_URL", hide_env_values = true, help_heading = GLOBAL_OPTIONS, display_order = 902)]
    pub url: Option<String>,
    /// The configuration file that the global flags name, for settings that have no flag here.
    #[arg(skip)]
    pub config: Option<PathBuf>,
    /// The training command with its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND", help_heading = None)]
    pub command: Vec<String>,
}

/// Runs one worker of a wing; infill starts it itself
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Job id of the lead
    #[arg(long, value_name = "JOBID")]
    pub lead: u32,
    /// The directory in which the lead runs its command.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The directory must exist, because the command names files in it.
    #[arg(long, requires = "dir")]
    pub needs_dir: bool,
    /// How the command is run.
    #[command(flatten)]
    pub common: CommandArgs,
}

impl SpecArgs {
    /// The name of the profile, if the flags give one.
    fn profile_name(&self, command: &[String]) -> anyhow::Result<Option<String>> {
        let Some(parameters) = &self.profile_by else { return Ok(self.profile.clone()) };
        let name = parameters.profile_name(self.profile.as_deref(), command);
        name.map(Some).map_err(anyhow::Error::msg).context("--profile-by")
    }

    /// The declaration for the daemon.
    ///
    /// # Errors
    /// When a plan cannot run at any size, or the command lacks a parameter of `--profile-by`.
    pub(crate) fn to_spec(&self, common: &CommandArgs) -> anyhow::Result<RunSpec> {
        // A main job's own nodes count as one unit, however many they are.
        let is_even = (common.plans.is_some() || self.layers.is_some()) && self.extend.is_none();
        Ok(RunSpec {
            sizes: self.extend.as_ref().map(AllowedSizes::added_to_one).or_else(|| self.nodes.clone()),
            extends: self.extend.is_some(),
            curve: self.curve.clone(),
            costs: self.costs,
            at_least: self.at_least.and_then(LeastRate::samples_per_sec),
            as_asked: self.at_least.and_then(LeastRate::requested_size),
            max_restarts: self.max_restarts,
            grace_secs: common.grace,
            profile: self.profile_name(&common.command)?,
            command_hash: common.command_hash(),
            batch: self.batch,
            plans: common.declared_plans(self.nodes.as_ref())?,
            model: common.plans.as_ref().and_then(ExecPlans::model_facts),
            layers: self.layers.clone(),
            gpus_per_node: is_even.then(|| common.ranks_per_node()),
            setup_secs: common.on_node.as_ref().map_or(0, |_| common.on_node_secs),
        })
    }
}

impl CommandArgs {
    /// Time between the rescale signal and SIGKILL.
    pub fn grace_period(&self) -> Duration {
        Duration::from_secs(self.grace.into())
    }

    /// How long the daemon may be away before a worker with nothing to run reacts.
    pub fn daemon_patience(&self) -> Duration {
        Duration::from_secs(self.daemon_patience.into())
    }

    /// Decides how many processes this node has by default: one for each GPU of a whole node. Where nodes are
    /// shared, it is one for each worker.
    pub(crate) fn settle_ranks(&mut self, member: &GenerationMember) {
        let is_whole = !member.nodes.iter().any(NodeName::is_place);
        let gpus = node_gpus::gpus_in(env_variable, GPUS_ON_NODE_VARIABLE).filter(|_| is_whole);
        self.default_ranks = gpus.unwrap_or(1);
    }

    /// The name of the command if it starts the processes of its node itself.
    pub(crate) fn launcher(&self) -> Option<&str> {
        launcher_detection::launcher_name(&self.command)
    }

    /// Says once that the command starts the processes itself, if it does.
    pub(crate) fn explain_launcher(&self) {
        static SAID: Once = Once::new();
        if let Some(program) = self.launcher() {
            SAID.call_once(|| {
                let processes = self.local_ranks();
                tracing::info!(
                    processes,
                    "{program} starts a node's processes itself: infill starts it once a node"
                );
            });
        }
    }

    /// Processes of the command on this node: by the launcher's own flag or ours, else by the node's GPUs.
    pub(crate) fn local_ranks(&self) -> u32 {
        self.flagged_ranks().unwrap_or(self.default_ranks)
    }

    /// The number of processes on each node that a flag names. The launcher's own flag counts first.
    fn flagged_ranks(&self) -> Option<u32> {
        let of_launcher = launcher_detection::processes_per_node(&self.command);
        of_launcher.filter(|ranks| (1..=MAX_LOCAL_RANKS).contains(ranks)).or(self.workers_per_node)
    }

    /// Processes that infill starts on each node: those of the command, or one launcher that starts them.
    pub(crate) fn started_ranks(&self) -> u32 {
        if self.launcher().is_some() { 1 } else { self.local_ranks() }
    }

    /// Processes that launchers shall start on each node; `None` leaves them their own default. The default
    /// of torchrun is one, which is too few for nodes with several GPUs, and for plans that divide them.
    pub(crate) fn launched_ranks(&self) -> Option<u32> {
        let by_default = match self.plans.is_some() {
            true => self.ranks_per_node(),
            false => self.default_ranks,
        };
        let needs_number = self.launcher().is_some() && (self.plans.is_some() || by_default > 1);
        self.flagged_ranks().or_else(|| needs_number.then_some(by_default))
    }

    /// Processes that train on each node, no matter what starts them. The number comes from the launcher's
    /// own flag, else from ours, else it is one for each GPU that the job has there.
    pub(crate) fn ranks_per_node(&self) -> u32 {
        let of_gpus = || node_gpus::gpus_in(env_variable, GPUS_ON_NODE_VARIABLE);
        self.flagged_ranks().or_else(of_gpus).unwrap_or(1)
    }

    /// The command's execution plans for the daemon. `sizes`: the numbers of nodes that the user names.
    fn declared_plans(&self, sizes: Option<&AllowedSizes>) -> anyhow::Result<Vec<DeclaredPlan>> {
        let Some(plans) = &self.plans else { return Ok(Vec::new()) };
        plans.declared_plans(self.ranks_per_node(), sizes).context("--plans")
    }

    /// The execution plan to begin with, unless a daemon chooses another.
    pub(crate) fn first_plan(&self) -> String {
        self.plans.as_ref().map_or_else(|| ExecPlan::default().0, |plans| plans.first_name().to_owned())
    }

    /// The command with the arguments of an execution plan.
    pub(crate) fn command_for_plan(&self, plan: &str) -> Vec<String> {
        let plan = self.plans.as_ref().and_then(|plans| plans.plan_named(plan));
        self.command.iter().chain(plan.into_iter().flat_map(|plan| &plan.args)).cloned().collect()
    }

    /// The daemon's URL: flag or environment, else the configuration file.
    pub(crate) fn daemon_url(&self) -> anyhow::Result<String> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        Ok(load_client_config().context("cannot read the configuration")?.url)
    }

    /// Proves who we are, and trusts the daemon's user: that of the configuration file, else the default.
    pub(crate) fn slurm_identity(&self) -> identity::SlurmIdentity {
        let config = self.client_config();
        config.map_or_else(
            |_| identity::SlurmIdentity::default(),
            |c| identity::SlurmIdentity::trusting_user(c.daemon_user),
        )
    }

    /// The authorities of the daemon's certificate, if the configuration names them. An agent that got the
    /// URL by a flag or the environment need not be able to read the configuration.
    pub(crate) fn daemon_ca(&self) -> Option<PathBuf> {
        self.client_config().ok()?.ca
    }

    fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        match &self.config {
            Some(path) => ClientConfig::load(Some(path)),
            None => load_client_config(),
        }
    }

    /// The malleable partition; `None` if the configuration cannot be read.
    pub fn malleable_partition(&self) -> Option<String> {
        load_client_config().ok().map(|config| config.partition)
    }

    /// Hash of the command that is the same for all trials of a search. Numbers become `#`, so that learning
    /// rates, seeds and numbered files make no difference. Digits that belong to a name stay: `resnet50`
    /// differs from `resnet101`.
    fn command_hash(&self) -> String {
        let mut hash = Sha256::new();
        for word in &self.command {
            hash.update(normalize_word(word));
            hash.update([0]);
        }
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the command names a file in `dir` by a relative path.
    pub(crate) fn names_files_in(&self, dir: &Path) -> bool {
        let values = self.command.iter().map(|word| word.split_once('=').map_or(word.as_str(), |(_, v)| v));
        let mut relative = values.map(Path::new).filter(|path| path.is_relative());
        relative.any(|path| !path.as_os_str().is_empty() && dir.join(path).exists())
    }

    /// The arguments that give a wing's worker the same flags and command, without the URL.
    pub(crate) fn to_worker_args(&self) -> Vec<String> {
        let mut words = vec![
            format!("--signal={}", self.signal),
            format!("--grace={}", self.grace),
            format!("--daemon-patience={}", self.daemon_patience),
        ];
        // The older name: an agent of the version before may read it.
        words.extend(self.workers_per_node.map(|n| format!("--nproc-per-node={n}")));
        words.extend(self.progress_regex.as_ref().map(|r| format!("--progress-regex={}", r.as_str())));
        words.extend(self.plans.as_ref().map(|plans| format!("--plans={}", plans.to_json())));
        if let Some(script) = &self.on_node {
            words.push(format!("--on-node={script}"));
            words.push(format!("--on-node-secs={}", self.on_node_secs));
        }
        words.extend(self.container.to_worker_args());
        words.extend(self.no_prefix.then(|| "--no-prefix".to_owned()));
        words.push("--".to_owned());
        words.extend(self.command.iter().cloned());
        words
    }
}

/// Loads the agents' part of this node's configuration file.
fn load_client_config() -> Result<ClientConfig, ConfigError> {
    let path = std::env::var_os("INFILL_CONFIG").map(PathBuf::from);
    ClientConfig::load(path.as_deref())
}

fn parse_sizes(text: &str) -> Result<AllowedSizes, String> {
    AllowedSizes::parse(text).map_err(|e| e.to_string())
}

fn parse_curve(text: &str) -> Result<ScalingCurve, String> {
    ScalingCurve::parse(text).map_err(|e| e.to_string())
}

fn parse_at_least(text: &str) -> Result<LeastRate, String> {
    let text = text.trim();
    let least = match text.strip_prefix("asked") {
        Some(nodes) => parse_requested_size(nodes).map(LeastRate::Asked),
        None => text.parse().ok().filter(|rate| is_valid_rate(*rate)).map(LeastRate::Rate),
    };
    least.ok_or_else(|| "expected a positive number of samples a second, asked or asked:NODES".to_owned())
}

/// The size behind `asked`: nothing, or `:NODES`.
fn parse_requested_size(text: &str) -> Option<RequestedSize> {
    if text.is_empty() {
        return Some(RequestedSize::default());
    }
    let nodes = text.strip_prefix(':')?.parse().ok().filter(|nodes| *nodes > 0)?;
    Some(RequestedSize { nodes: Some(nodes) })
}

fn parse_regex(text: &str) -> Result<Regex, String> {
    let regex = Regex::new(text).map_err(|e| e.to_string())?;
    let has_group = |wanted: &str| regex.capture_names().flatten().any(|name| name == wanted);
    if has_group("samples") && has_group(RUNNING_TOTAL) {
        return Err("expected a group (?<samples>…) for the samples since the last line, or (?<seen>…) for \
                    those in all so far, and not both"
            .to_owned());
    }
    if ["samples", RUNNING_TOTAL, "step", "loss"].into_iter().any(has_group) {
        Ok(regex)
    } else {
        Err("expected a group (?<samples>…), (?<seen>…), (?<step>…) or (?<loss>…)".to_owned())
    }
}

fn parse_costs(text: &str) -> Result<RescaleCosts, String> {
    let numbers: Vec<f64> = text.split(',').map_while(|word| word.trim().parse().ok()).collect();
    match numbers[..] {
        [up_secs, down_secs, start_secs]
            if text.split(',').count() == 3 && numbers.iter().all(|n| (0.0..=86_400.0).contains(n)) =>
        {
            Ok(RescaleCosts { up_secs, down_secs, start_secs })
        }
        _ => Err("expected three numbers of seconds between 0 and 86400: UP,DOWN,START".to_owned()),
    }
}

/// Replaces numbers in a word of a command by `#`: a number alone, behind `=`, and one without a letter
/// before it.
fn normalize_word(word: &str) -> String {
    let (flag, value) = word.split_once('=').unwrap_or(("", word));
    let is_number = value.contains(|c: char| c.is_ascii_digit()) && value.parse::<f64>().is_ok();
    let value = if is_number { "#".to_owned() } else { replace_numbers(value) };
    if flag.is_empty() { value } else { format!("{flag}={value}") }
}

fn replace_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut is_in_name = false;
    for c in text.chars() {
        is_in_name = c.is_alphabetic() || (is_in_name && c.is_ascii_digit());
        if is_in_name || !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

#[cfg(test)]
mod tests;
