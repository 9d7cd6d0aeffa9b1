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

mod alone;
mod args;
mod command;
mod control;
mod cpus;
mod duty;
mod environment;
pub mod executable;
mod home;
pub mod http_client;
pub mod identity;
mod kills;
mod launcher;
mod layers;
mod limit;
mod link;
mod memory;
mod news;
mod outbox;
mod output;
mod own;
mod place;
mod plans;
mod processes;
mod programs;
mod progress;
mod script;
mod sealing;
pub mod session;
mod signals;
mod standalone;
mod step;
mod talk;
mod unasked;
mod unfit;
mod unread;
mod watcher;
mod wings;
mod worker;

#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::Context;

use infill_api::Role;
use infill_model::{JobId, NodeName, RunSpec};

pub use args::RunArgs;

pub use args::WorkerArgs;

pub use args::RunSignal;

pub use args::SpecArgs;

pub use args::CommandArgs;
pub use own::{OwnNodeArgs, own_node};
pub use plans::{Plans, PlansError, RunPlan};
pub use script::{SentryArgs, sentry};

use home::{End, Home};
use link::{Link, LinkConfig};
use output::Output;
use place::Place;
use programs::Programs;
use unread::Unread;
use wings::{Submitter, WingJob};
use worker::{Served, Worker, WorkerConfig};

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
    let Some(place) = Place::from_env(var) else { return standalone::run(&args).await };
    match Unread::of(&args, &place, var("ENVIRONMENT").as_deref() == Some("BATCH")) {
        Unread::Alone => run_told(unread::alone(args, &error)).await,
        Unread::Held => {
            unread::hold(place.job, Programs::default(), &error).await;
            Ok(signals::TERMINATED)
        }
        Unread::Failed => Err(error),
    }
}

async fn run_told(args: RunArgs) -> anyhow::Result<i32> {
    let Some(place) = Place::from_env(|name| std::env::var(name).ok()) else {
        return standalone::run(&args).await;
    };
    if !args.in_step && !place.in_step {
        return step::run_step(&args, &place).await.context("cannot run the job step with srun");
    }
    let given = args.home.as_deref().and_then(Home::given);
    let served = lead(place, args, given.clone()).await;
    if let Some(home) = given {
        // The batch script's agent waits for this word: without it we died.
        home.note_end(if served.as_ref().is_ok_and(|served| served.left) { End::Left } else { End::Done });
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
async fn lead(place: Place, args: RunArgs, home: Option<Home>) -> anyhow::Result<Served> {
    let var = |name: &str| std::env::var(name).ok();
    let own = own::nodes(&args, &place, args.common.partition().as_deref(), var)?;
    let spec = args.spec.to_spec(&args.common)?;
    // What is a main job's own trains whatever becomes of the daemon.
    let alone = (args.alone || !own.is_empty()).then_some(spec.max_restarts);
    let wings = WingJob {
        lead: place.job,
        worker_args: args.common.to_words(),
        url: args.common.daemon_url()?,
        dir: std::env::current_dir().ok().map(|dir| {
            let needed = args.common.names_files_in(&dir);
            (dir, needed)
        }),
        share: wings::share_of_lead(|name| std::env::var(name).ok()),
        output: args.output_file,
        error: args.error_file,
    };
    serve(place, Role::Lead, args.common, home, Some(LeadParts { spec, wings, alone, own })).await
}

/// `infill worker`: one worker of a wing. Returns the exit code for the process.
pub async fn worker(args: WorkerArgs) -> anyhow::Result<i32> {
    let place = Place::from_env(|name| std::env::var(name).ok())
        .context("infill worker runs in a job step of a wing; SLURM_JOB_ID or SLURMD_NODENAME is not set")?;
    watcher::dismiss(place.job);
    let lead = JobId(args.lead);
    let home = match unfit::fitted(&args, &place) {
        Ok(home) => home,
        Err(unfit) => return unfit.tell(lead, &args.common, place).await,
    };
    Ok(serve(place, Role::Wing { lead }, args.common, Some(home), None).await?.code)
}

/// Puts a worker together and lets it serve until its end. Without a home that was given it has one of its
/// own.
async fn serve(
    place: Place,
    role: Role,
    common: CommandArgs,
    given: Option<Home>,
    lead: Option<LeadParts>,
) -> anyhow::Result<Served> {
    // Of a lead the batch script's agent reads how it ended.
    let is_own = given.is_none() || role != Role::Lead;
    let home = match given {
        Some(home) => home,
        None => Home::make(&place).context("cannot make the private directory of the agent")?,
    };
    let alone = lead.as_ref().and_then(|lead| lead.alone);
    let own = lead.as_ref().map_or_else(Vec::new, |lead| lead.own.clone());
    let (spec, wings) = lead.map(|lead| (lead.spec, lead.wings)).unzip();
    let link = Link::new(LinkConfig {
        url: common.daemon_url()?,
        ca: common.daemon_ca(),
        job: place.job,
        node: place.node.clone(),
        role,
        spec,
        identity: Box::new(common.identity()),
    })?;
    let submitter = wings.map(|job| Submitter::new(job, home.notes(), Programs::default()));
    // Before anything takes time.
    let signals = signals::signals().context("cannot listen for signals")?;
    let var = |name: &str| std::env::var(name).ok();
    let cpus = cpus::keep_to_share(&place, &Programs::default(), var).await;
    let config = WorkerConfig {
        alone,
        cpus,
        left: place::time_left(|name| std::env::var(name).ok()),
        job: place.job,
        partition: var("SLURM_JOB_PARTITION"),
        node: place.node,
        programs: Programs::default(),
        lead: match role {
            Role::Lead => place.job,
            Role::Wing { lead } => lead,
        },
        role,
        grace: common.grace(),
        patience: if own.is_empty() { common.patience() } else { common.patience().min(OWN_PATIENCE) },
        own,
        output: Output::of_process(!common.no_prefix).context("cannot write to our output")?,
        home: home.clone(),
        common,
    };
    let served = Worker::new(config, link, submitter)?.serve(signals).await;
    if is_own {
        home.remove();
    }
    served
}
