//! The agent: `infill run` in a lead's batch script and `infill worker` in its wings.
//!
//! One worker runs on each node of a malleable job. It says hello to the daemon, learns its place in the
//! present generation by long polls, and runs the user's command in that place: starts it, asks it to save
//! and exit, kills it when it does not, and tells the daemon what happened. What the daemon says is a level,
//! never an edge, so that either side may restart, repeat itself or be away for a while.
//!
//! | file | what it does |
//! |---|---|
//! | `args`, `place`, `home` | the command line; where in Slurm we are; our private directory there |
//! | `step` | makes the batch script's `infill run` a job step, so that preemption reaches it at once |
//! | `script` | ends the batch script around `infill run` when the node is wanted |
//! | `worker`, `duty`, `signals` | the worker's loop; the decision what to do next; what Slurm tells us |
//! | `limit`, `alone` | the end of the job's time; training without the daemon |
//! | `talk`, `news` | the loops that speak to the daemon; what they bring |
//! | `link`, `outbox` | requests; events that wait |
//! | `identity` | proof of who we are, and of who the daemon is |
//! | `session` | messages that prove whose they are |
//! | `command`, `processes`, `environment`, `output`, `progress` | the user's command |
//! | `launcher` | commands that start a node's processes themselves |
//! | `control` | what is said with a command that stays alive over changes |
//! | `sealing` | by what its processes know each other |
//! | `cpus` | keeps to the CPUs that Slurm gave, where it has a part of its node |
//! | `unasked` | a start that is in the way of a main job, while the daemon is away |
//! | `unread` | a node whose configuration cannot be read |
//! | `unfit` | a wing that can start nothing on its node |
//! | `wings`, `programs` | submits the lead's wings; runs Slurm's programs |
//! | `standalone` | `infill run` outside Slurm |

mod args;
mod batch_script;
mod command;
mod control;
mod cpu_binding;
mod daemon_link;
mod daemon_loops;
mod decide;
mod environment;
mod exec_plans;
pub mod executable;
mod extended_allocation;
pub mod http_client;
pub mod identity;
mod launcher;
mod layer_profile;
mod oom_kills;
mod out_of_memory;
mod outbox;
mod output;
mod processes;
mod progress;
mod runtime_dir;
mod sealing;
pub mod session;
mod signals;
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
mod worker_event;
mod yield_to_main;

#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::Context;

use infill_api::AgentRole;
use infill_model::{JobId, NodeName, RunSpec};

pub use args::RunArgs;

pub use args::WorkerArgs;

pub use args::RunSignal;

pub use args::SpecArgs;

pub use args::CommandArgs;
pub use batch_script::{SentryArgs, run_sentry};
pub use exec_plans::{ExecPlans, PlansError, RunPlan};
pub use extended_allocation::{OwnNodeArgs, run_own_node};

use daemon_link::{DaemonLink, LinkConfig};
use output::OutputForwarder;
use runtime_dir::{AgentEnd, RuntimeDir};
use slurm_context::SlurmContext;
use slurm_programs::SlurmPrograms;
use unreadable_config::ConfigFailureAction;
use wings::{WingJob, WingSubmitter};
use worker::{Worker, WorkerConfig, WorkerResult};

/// How long a main job waits for a daemon that is away before it trains on what is its own.
const OWN_PATIENCE: Duration = Duration::from_secs(10);

/// `infill run`: runs the command as worker 0 of a malleable job. Returns the exit code for the process.
///
/// In a batch script it has `srun` run it again as a job step; outside Slurm it runs the
/// command once, alone.
pub async fn run(args: RunArgs) -> anyhow::Result<i32> {
    match args.common.daemon_url() {
        Ok(_) => run_told(args).await,
        Err(error) => run_untold(args, error).await,
    }
}

/// `infill run` where it cannot be read who the daemon is: a job waits for that, and one of the main queue
/// does without. Returns the exit code for the process.
///
/// # Errors
/// With this error where the job cannot wait.
pub async fn run_untold(args: RunArgs, error: anyhow::Error) -> anyhow::Result<i32> {
    let var = |name: &str| std::env::var(name).ok();
    let Some(place) = SlurmContext::from_env(var) else { return standalone::run_standalone(&args).await };
    match ConfigFailureAction::for_job(&args, &place, var("ENVIRONMENT").as_deref() == Some("BATCH")) {
        ConfigFailureAction::Alone => run_told(unreadable_config::args_without_daemon(args, &error)).await,
        ConfigFailureAction::Held => {
            unreadable_config::requeue_held(place.job, SlurmPrograms::default(), &error).await;
            Ok(signals::EXIT_TERMINATED)
        }
        ConfigFailureAction::Failed => Err(error),
    }
}

async fn run_told(args: RunArgs) -> anyhow::Result<i32> {
    let Some(place) = SlurmContext::from_env(|name| std::env::var(name).ok()) else {
        return standalone::run_standalone(&args).await;
    };
    if !args.in_step && !place.in_step {
        return step::run_step(&args, &place).await.context("cannot run the job step with srun");
    }
    let given = args.home.as_deref().and_then(RuntimeDir::open_given);
    let served = lead(place, args, given.clone()).await;
    if let Some(home) = given {
        // The batch script's agent waits for this word: without it we died.
        home.record_end(if served.as_ref().is_ok_and(|served| served.left) {
            AgentEnd::Left
        } else {
            AgentEnd::Done
        });
    }
    Ok(served?.code)
}

/// What a lead has and a wing has not.
struct LeadParts {
    spec: RunSpec,
    wings: WingJob,
    /// Failures that are retried while it trains alone, if it may.
    alone: Option<u32>,
    /// The nodes of a job of the main queue.
    own: Vec<NodeName>,
}

/// The lead's worker.
async fn lead(place: SlurmContext, args: RunArgs, home: Option<RuntimeDir>) -> anyhow::Result<WorkerResult> {
    let var = |name: &str| std::env::var(name).ok();
    let own =
        extended_allocation::own_nodes(&args, &place, args.common.malleable_partition().as_deref(), var)?;
    let spec = args.spec.to_spec(&args.common)?;
    // What is a main job's own trains whatever becomes of the daemon.
    let alone = (args.alone || !own.is_empty()).then_some(spec.max_restarts);
    let wings = WingJob {
        lead: place.job,
        worker_args: args.common.to_worker_args(),
        url: args.common.daemon_url()?,
        dir: std::env::current_dir().ok().map(|dir| {
            let needed = args.common.names_files_in(&dir);
            (dir, needed)
        }),
        share: wings::lead_share_options(|name| std::env::var(name).ok()),
        output: args.output_file,
        error: args.error_file,
    };
    serve(place, AgentRole::Lead, args.common, home, Some(LeadParts { spec, wings, alone, own })).await
}

/// `infill worker`: one worker of a wing. Returns the exit code for the process.
pub async fn worker(args: WorkerArgs) -> anyhow::Result<i32> {
    let place = SlurmContext::from_env(|name| std::env::var(name).ok())
        .context("infill worker runs in a job step of a wing; SLURM_JOB_ID or SLURMD_NODENAME is not set")?;
    watcher::dismiss_watcher(place.job);
    let lead = JobId(args.lead);
    let home = match start_failure::prepare_wing(&args, &place) {
        Ok(home) => home,
        Err(unfit) => return unfit.report_failure(lead, &args.common, place).await,
    };
    Ok(serve(place, AgentRole::Wing { lead }, args.common, Some(home), None).await?.code)
}

/// Puts a worker together and lets it serve until its end. Without a home that was given it has one of its
/// own.
async fn serve(
    place: SlurmContext,
    role: AgentRole,
    common: CommandArgs,
    given: Option<RuntimeDir>,
    lead: Option<LeadParts>,
) -> anyhow::Result<WorkerResult> {
    // Of a lead the batch script's agent reads how it ended.
    let is_own = given.is_none() || role != AgentRole::Lead;
    let home = match given {
        Some(home) => home,
        None => RuntimeDir::create_for(&place).context("cannot make the private directory of the agent")?,
    };
    let alone = lead.as_ref().and_then(|lead| lead.alone);
    let own = lead.as_ref().map_or_else(Vec::new, |lead| lead.own.clone());
    let (spec, wings) = lead.map(|lead| (lead.spec, lead.wings)).unzip();
    let link = DaemonLink::new(LinkConfig {
        url: common.daemon_url()?,
        ca: common.daemon_ca(),
        job: place.job,
        node: place.node.clone(),
        role,
        spec,
        identity: Box::new(common.slurm_identity()),
    })?;
    let submitter = wings.map(|job| WingSubmitter::new(job, home.wing_notes(), SlurmPrograms::default()));
    // Before anything takes time.
    let signals = signals::listen_for_signals().context("cannot listen for signals")?;
    let var = |name: &str| std::env::var(name).ok();
    let cpus = cpu_binding::keep_to_share(&place, &SlurmPrograms::default(), var).await;
    let config = WorkerConfig {
        alone,
        cpus,
        left: slurm_context::initial_time_left(|name| std::env::var(name).ok()),
        job: place.job,
        partition: var("SLURM_JOB_PARTITION"),
        node: place.node,
        programs: SlurmPrograms::default(),
        lead: match role {
            AgentRole::Lead => place.job,
            AgentRole::Wing { lead } => lead,
        },
        role,
        grace: common.grace_period(),
        patience: if own.is_empty() {
            common.daemon_patience()
        } else {
            common.daemon_patience().min(OWN_PATIENCE)
        },
        own,
        output: OutputForwarder::to_own_streams(!common.no_prefix).context("cannot write to our output")?,
        home: home.clone(),
        common,
    };
    let served = Worker::new(config, link, submitter)?.serve_until_done(signals).await;
    if is_own {
        home.remove();
    }
    served
}
