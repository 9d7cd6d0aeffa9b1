//! The agent: `infill run` in a lead's batch script and `infill worker` in its wings.
//!
//! One worker runs on each node of a malleable job. It sends a hello to the daemon, and learns its place in
//! the present generation by long polls. It runs the user's command in that place: it starts the command,
//! asks it to save and exit, kills it if it does not, and reports the events to the daemon. A directive
//! describes a state, never a change. So either side may restart, repeat itself or be away for a while.
//!
//! | module | what it does |
//! |---|---|
//! | `args`, `exec_plans`, `layer_profile` | the command line, and the files that it names |
//! | `slurm_context`, `runtime_dir` | where in Slurm we are; our private directory there |
//! | `executable`, `slurm_programs` | the path of this program; runs Slurm's programs |
//! | `step` | makes the batch script's `infill run` a job step, so that preemption reaches it at once |
//! | `script_end` | ends the batch script around `infill run` when the node is wanted |
//! | `worker`, `worker_input`, `decide` | the worker's loop and its events; decides what to do next |
//! | `signals`, `run_signal`, `time_limit` | signals of Slurm and users; the end of the job's time |
//! | `train_alone` | training without the daemon |
//! | `daemon_loops`, `daemon_link`, `outbox` | poll and report; send requests; keep events that wait |
//! | `http_client`, `signed_session` | HTTP clients for the daemon; messages that prove their sender |
//! | `identity` | proves who we are, and checks who the daemon is |
//! | `command`, `processes`, `environment` | starts, stops and finds the user's command; its variables |
//! | `node_network` | the ports of this node, and the network interface that other nodes reach |
//! | `output`, `progress` | the command's output, and its reports of progress |
//! | `out_of_memory`, `oom_kills` | whether the command ran out of memory |
//! | `launcher_detection`, `command_check` | recognises launchers, and commands that cannot be malleable |
//! | `container` | containers around the command |
//! | `node_gpus`, `gpu_use` | the GPUs of a whole node: how many a step asks for, and whether they are used |
//! | `control`, `sealing` | messages and secrets for a command that stays alive over changes |
//! | `cpu_binding` | keeps to the CPUs that Slurm gave, where the worker has a part of its node |
//! | `extended_allocation` | the own nodes of a main job that wings extend |
//! | `wings`, `watcher` | submits the lead's wings; watches over a wing until its agent runs |
//! | `yield_to_main` | a start that is in the way of a main job, while the daemon is away |
//! | `node_setup`, `start_failure` | prepares a node; a wing that cannot start the command on its node |
//! | `unreadable_config` | a node whose configuration cannot be read |
//! | `standalone`, `rehearsal` | `infill run` outside Slurm; a rehearsal of a malleable job on one machine |

mod args;
mod command;
mod command_check;
mod container;
mod control;
mod cpu_binding;
mod daemon_link;
mod daemon_loops;
mod decide;
mod environment;
mod exec_plans;
pub mod executable;
mod extended_allocation;
mod gpu_use;
pub mod http_client;
pub mod identity;
mod launcher_detection;
mod layer_profile;
mod node_gpus;
mod node_network;
mod node_setup;
mod oom_kills;
mod out_of_memory;
mod outbox;
mod output;
mod package_version;
mod processes;
mod profile_family;
mod program_search;
mod progress;
mod rehearsal;
mod run_signal;
mod runtime_dir;
mod script_end;
mod sealing;
mod signals;
pub mod signed_session;
mod slurm_context;
mod slurm_programs;
mod standalone;
mod start_failure;
mod step;
mod time_limit;
mod train_alone;
mod unreadable_config;
mod watcher;
mod wings;
mod worker;
mod worker_input;
mod yield_to_main;

#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::sync::mpsc;

use infill_api::AgentRole;
use infill_model::{JobId, NodeName, RunSpec};

pub use args::{CommandArgs, GLOBAL_OPTIONS, RunArgs, SpecArgs, WorkerArgs};
pub use container::{ContainerArgs, ContainerRuntime};
pub use exec_plans::{ExecPlans, PlansError, RunPlan};
pub use extended_allocation::{OwnNodeArgs, run_own_node};
pub use rehearsal::{RehearsalReport, RehearseArgs, rehearse};
pub use run_signal::RunSignal;
pub use script_end::{SentryArgs, run_sentry};

use daemon_link::{DaemonLink, LinkConfig};
use node_setup::SetupFailure;
use output::OutputForwarder;
use runtime_dir::{AgentEnd, RuntimeDir};
use slurm_context::{SlurmContext, env_variable};
use slurm_programs::SlurmPrograms;
use start_failure::StartFailure;
use unreadable_config::ConfigFailureAction;
use wings::{WingJob, WingSubmitter};
use worker::{Worker, WorkerConfig, WorkerResult};

/// How long a main job waits for a daemon that is away before it trains on its own nodes.
const OWN_PATIENCE: Duration = Duration::from_secs(10);

/// `infill run`: runs the command as worker 0 of a malleable job. Returns the exit code for the process.
///
/// In a batch script, it has `srun` run it again as a job step. Outside Slurm, it runs the command once,
/// alone.
///
/// # Errors
/// When the worker cannot be started, for example because a flag does not fit the job.
pub async fn run(args: RunArgs) -> anyhow::Result<i32> {
    match args.common.daemon_url() {
        Ok(_) => run_configured(args).await,
        Err(error) => run_without_config(args, error).await,
    }
}

/// `infill run` when the configuration, and so the daemon's URL, cannot be read. A job waits in the queue
/// until it can, and a main job trains without the daemon. Returns the exit code for the process.
///
/// # Errors
/// The given `error` if the job cannot wait, and the errors of [`run`].
pub async fn run_without_config(args: RunArgs, error: anyhow::Error) -> anyhow::Result<i32> {
    let Some(context) = SlurmContext::from_env(env_variable) else {
        return standalone::run_standalone(&args).await;
    };
    let in_script = env_variable("ENVIRONMENT").as_deref() == Some("BATCH");
    match ConfigFailureAction::for_job(&args, &context, in_script) {
        ConfigFailureAction::Alone => {
            run_configured(unreadable_config::args_without_daemon(args, &error)).await
        }
        ConfigFailureAction::Held => {
            unreadable_config::requeue_held(context.job, SlurmPrograms::default(), &error).await;
            Ok(signals::EXIT_TERMINATED)
        }
        ConfigFailureAction::Failed => Err(error),
    }
}

/// `infill run` with a known daemon.
async fn run_configured(args: RunArgs) -> anyhow::Result<i32> {
    let Some(context) = SlurmContext::from_env(env_variable) else {
        return standalone::run_standalone(&args).await;
    };
    if !args.in_step {
        let tasks = context.in_step.then(|| env_variable("SLURM_STEP_NUM_TASKS")?.parse().ok()).flatten();
        if let Some(obstacle) = command_check::find_obstacle(&args.common.command, tasks) {
            bail!("{obstacle}");
        }
    }
    if !args.in_step && !context.in_step {
        return step::run_step(&args, &context).await.context("cannot run the job step with srun");
    }
    let given = args.home.as_deref().and_then(RuntimeDir::open_given);
    let result = run_lead(context, args, given.clone()).await;
    if let Some(home) = given {
        // The batch script's agent reads this record. Without it, it takes us for dead.
        let has_left = result.as_ref().is_ok_and(|result| result.left);
        home.record_end(if has_left { AgentEnd::Left } else { AgentEnd::Done });
    }
    Ok(result?.code)
}

/// The settings that a lead has and a wing does not.
struct LeadParts {
    spec: RunSpec,
    wings: WingJob,
    /// How many failures are retried while it trains alone; `None` if it may not.
    alone: Option<u32>,
    /// The nodes of a job of the main queue; else empty.
    own: Vec<NodeName>,
}

/// Runs the worker of a lead until its end.
async fn run_lead(
    context: SlurmContext,
    mut args: RunArgs,
    home: Option<RuntimeDir>,
) -> anyhow::Result<WorkerResult> {
    let malleable = args.common.malleable_partition();
    let own = extended_allocation::own_nodes(&args, &context, malleable.as_deref(), env_variable)?;
    ensure!(
        own.len() < 2 || args.common.on_node.is_none(),
        "--on-node with --extend is for jobs of one node; prepare the job's own nodes with srun before infill run"
    );
    let spec = args.spec.to_spec(&args.common)?;
    // A main job's own nodes train whatever happens to the daemon.
    let alone = (args.alone || !own.is_empty()).then_some(spec.max_restarts);
    let wings = WingJob {
        lead: context.job,
        worker_args: args.common.to_worker_args(),
        url: args.common.daemon_url()?,
        dir: std::env::current_dir().ok().map(|dir| {
            let needed = args.common.names_files_in(&dir);
            (dir, needed)
        }),
        share: wings::lead_share_options(env_variable),
        gpus: node_gpus::wing_option(env_variable),
        array_variables: wings::array_variables(env_variable),
        output: args.output_file,
        error: args.error_file,
    };
    let parts = LeadParts { spec, wings, alone, own };
    let mut signals = signals::listen_for_signals().context("cannot listen for signals")?;
    let programs = SlurmPrograms::default();
    match node_setup::prepare_node(&args.common, context.job, &context, programs, &mut signals).await {
        Ok(()) => {}
        Err(SetupFailure::Left) => return Ok(WorkerResult { code: signals::EXIT_TERMINATED, left: true }),
        Err(failure) => {
            tracing::error!(node = %context.node, "{failure}");
            args.common.command = failure.failing_command();
        }
    }
    serve(context, AgentRole::Lead, args.common, home, Some(parts), signals).await
}

/// `infill worker`: runs one worker of a wing. Returns the exit code for the process.
///
/// # Errors
/// When it does not run in a job step of a wing, or the worker cannot be started.
pub async fn worker(args: WorkerArgs) -> anyhow::Result<i32> {
    let context = SlurmContext::from_env(env_variable).context(
        "infill worker must run in a job step of a wing; SLURM_JOB_ID or SLURMD_NODENAME is not set",
    )?;
    watcher::dismiss_watcher(context.job);
    let lead = JobId(args.lead);
    let home = match start_failure::prepare_wing(&args, &context) {
        Ok(home) => home,
        Err(failure) => return failure.report_failure(lead, &args.common, context).await,
    };
    let mut signals = signals::listen_for_signals().context("cannot listen for signals")?;
    match node_setup::prepare_node(&args.common, lead, &context, SlurmPrograms::default(), &mut signals).await
    {
        Ok(()) => {}
        Err(SetupFailure::Left) => {
            home.remove();
            return Ok(0);
        }
        Err(failure) => {
            home.remove();
            let failure = StartFailure::of_setup(failure);
            return failure.report_failure(lead, &args.common, context).await;
        }
    }
    Ok(serve(context, AgentRole::Wing { lead }, args.common, Some(home), None, signals).await?.code)
}

/// Sets up a worker and lets it serve until its end. If no private directory is `given`, it makes one.
/// `signals` has those that came while the node was prepared.
async fn serve(
    context: SlurmContext,
    role: AgentRole,
    common: CommandArgs,
    given: Option<RuntimeDir>,
    lead: Option<LeadParts>,
    signals: mpsc::Receiver<signals::AgentSignal>,
) -> anyhow::Result<WorkerResult> {
    // The given directory of a lead stays: the batch script's agent reads there how the lead ended.
    let removes_home = given.is_none() || role != AgentRole::Lead;
    let home = match given {
        Some(home) => home,
        None => RuntimeDir::create_for(&context).context("cannot make the private directory of the agent")?,
    };
    let alone = lead.as_ref().and_then(|lead| lead.alone);
    let own = lead.as_ref().map_or_else(Vec::new, |lead| lead.own.clone());
    let (spec, wings) = lead.map(|lead| (lead.spec, lead.wings)).unzip();
    let link = DaemonLink::new(LinkConfig {
        url: common.daemon_url()?,
        ca: common.daemon_ca(),
        job: context.job,
        node: context.node.clone(),
        role,
        spec,
        identity: Box::new(common.slurm_identity()),
    })?;
    let submitter = wings.map(|job| WingSubmitter::new(job, home.wing_notes(), SlurmPrograms::default()));
    let cpus = cpu_binding::keep_to_share(&context, &SlurmPrograms::default(), env_variable).await;
    let patience = common.daemon_patience();
    let config = WorkerConfig {
        alone,
        cpus,
        left: slurm_context::initial_time_left(env_variable),
        job: context.job,
        partition: env_variable("SLURM_JOB_PARTITION"),
        node: context.node,
        programs: SlurmPrograms::default(),
        lead: match role {
            AgentRole::Lead => context.job,
            AgentRole::Wing { lead } => lead,
        },
        role,
        grace: common.grace_period(),
        patience: if own.is_empty() { patience } else { patience.min(OWN_PATIENCE) },
        own,
        output: OutputForwarder::to_own_streams(!common.no_prefix).context("cannot write to our output")?,
        home: home.clone(),
        common,
    };
    let result = Worker::new(config, link, submitter)?.serve_until_done(signals).await;
    if removes_home {
        home.remove();
    }
    result
}
