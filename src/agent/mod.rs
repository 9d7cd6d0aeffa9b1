//! The agent: `infill run` in a lead's batch script and `infill worker` in its wings.
//!
//! One worker runs on each node of a malleable job. It says hello to the daemon, learns its place in the
//! present generation by long polls, and runs the user's command in that place: starts it, asks it to save
//! and exit, kills it when it does not, and tells the daemon what happened. What the daemon says is a level,
//! never an edge, so that either side may restart, repeat itself or be away for a while.
//!
//! | file | what it does |
//! |---|---|
//! | `args`, `place` | the command line; where in Slurm we are |
//! | `step` | makes the batch script's `infill run` a job step, so that preemption reaches it at once |
//! | `worker`, `duty` | the worker's loop; the pure decision what to do next |
//! | `link`, `outbox`, `identity` | requests to the daemon; events that wait for it; proof of who we are |
//! | `command`, `processes`, `environment`, `output`, `progress` | the user's command |
//! | `wings` | submits the lead's wings |
//! | `standalone` | `infill run` outside Slurm |

mod args;
mod command;
mod duty;
mod environment;
pub mod identity;
mod link;
mod outbox;
mod output;
mod place;
mod processes;
mod progress;
mod standalone;
mod step;
mod wings;
mod worker;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Context;

use crate::api::Role;
use crate::model::JobId;

pub use args::{CommandArgs, RunArgs, RunSignal, SpecArgs, WorkerArgs};

use link::{Link, LinkConfig};
use output::Output;
use place::Place;
use wings::{Submitter, WingJob};
use worker::{Worker, WorkerConfig};

/// `infill run`: runs the command as worker 0 of a malleable job. Returns the exit code for the process.
///
/// In a batch script it has `srun` run it again as a job step; outside Slurm it runs the
/// command once, alone.
pub async fn run(args: RunArgs) -> anyhow::Result<i32> {
    let Some(place) = Place::from_env(|name| std::env::var(name).ok()) else {
        return standalone::run(&args).await;
    };
    if !args.in_step && !place.in_step {
        return step::run_step(&args, &place).await.context("cannot run the job step with srun");
    }
    let spec = args.spec.to_spec(&args.common)?;
    let wings = WingJob {
        lead: place.job,
        worker_args: args.common.to_words(),
        url: args.common.daemon_url()?,
        output: args.output_file.clone(),
        error: args.error_file.clone(),
    };
    serve(place, Role::Lead, args.common, Some((spec, wings))).await
}

/// `infill worker`: one worker of a wing. Returns the exit code for the process.
pub async fn worker(args: WorkerArgs) -> anyhow::Result<i32> {
    let place = Place::from_env(|name| std::env::var(name).ok())
        .context("infill worker runs in a job step of a wing; SLURM_JOB_ID or SLURMD_NODENAME is not set")?;
    serve(place, Role::Wing { lead: JobId(args.lead) }, args.common, None).await
}

/// Puts a worker together and lets it serve until its end.
async fn serve(
    place: Place,
    role: Role,
    common: CommandArgs,
    lead: Option<(crate::model::RunSpec, WingJob)>,
) -> anyhow::Result<i32> {
    let dir = place::private_dir(&place).context("cannot make the private directory of the agent")?;
    let (spec, wings) = lead.unzip();
    let link = Link::new(LinkConfig {
        url: common.daemon_url()?,
        job: place.job,
        node: place.node.clone(),
        role,
        spec,
        identity: Box::new(identity::Slurm::default()),
    })?;
    let submitter = wings.map(|job| Submitter::new(job, dir.join("wings"), wings::Programs::default()));
    let config = WorkerConfig {
        lead: match role {
            Role::Lead => place.job,
            Role::Wing { lead } => lead,
        },
        role,
        grace: common.grace(),
        patience: common.patience(),
        output: Output::of_process(!common.no_prefix).context("cannot write to our output")?,
        dir: dir.clone(),
        common,
    };
    let signals = worker::signals().context("cannot listen for signals")?;
    let code = Worker::new(config, link, submitter)?.serve(signals).await;
    remove_private(dir);
    code
}

/// The directory holds a socket and what was noted for a restart; after a proper end neither is wanted.
fn remove_private(dir: PathBuf) {
    if let Err(error) = std::fs::remove_dir_all(&dir) {
        tracing::debug!(dir = %dir.display(), %error, "cannot remove the private directory");
    }
}
