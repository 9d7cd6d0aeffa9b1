//! The batch script around `infill run`.
//!
//! When Slurm preempts a job, it tells the steps at once and the batch script only at the end of the grace
//! time. What a script does beside or after `infill run` would hold the node until then, and a main job would
//! wait. So the script is ended as soon as a step was told; the job is requeued and its script begins anew.
//! While
//! `infill run` lives, that step is its own. Afterwards it is a sentry.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use infill_model::JobId;

use super::executable;
use super::processes::{own_processes, process_environment, send_signal};
use super::runtime_dir::{AgentEnd, RuntimeDir};
use super::signals::{AgentSignal, listen_for_signals};
use super::slurm_context::{SlurmContext, is_job_step};
use super::step;

/// For what a script does on SIGTERM, before it is killed. A main job waits for it.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// How often we look whether the script has ended.
const POLL: Duration = Duration::from_millis(20);

/// A script that ends within this time after `infill run` needs no sentry: most do.
const SHORT_REST: Duration = Duration::from_millis(500);

/// Slurm may tell the script and the step in either order.
const SIGNAL_SETTLE: Duration = Duration::from_millis(50);

/// Marks sentries, and the steps in which they watch.
const SENTRY_VARIABLE: &str = "INFILL_SENTRY";

/// Stays behind when `infill run` has ended and its batch script goes on; infill starts it by itself
#[derive(Args, Clone, Debug)]
pub struct SentryArgs {
    /// Where the one in the step says that it was told to leave.
    #[arg(long)]
    home: Option<PathBuf>,
}

/// What a process of the job is to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessRole {
    /// It belongs to the batch script.
    Script,
    /// It is a sentry, or the step in which one watches.
    Sentry,
    /// It belongs to a step, or to another job.
    Other,
}

fn process_role(job: JobId, environment: &[Vec<u8>]) -> ProcessRole {
    let value = |name: &str| {
        let found = environment.iter().find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        found.map(|value| String::from_utf8_lossy(value).into_owned())
    };
    if value("SLURM_JOB_ID") != Some(job.to_string()) {
        return ProcessRole::Other;
    }
    match value(SENTRY_VARIABLE) {
        Some(_) => ProcessRole::Sentry,
        None if is_job_step(value("SLURM_STEP_ID").as_deref()) => ProcessRole::Other,
        None => ProcessRole::Script,
    }
}

/// Our processes of this job that are this part of it, without ourselves.
async fn job_processes(job: JobId, wanted: ProcessRole) -> Vec<i32> {
    let own = std::process::id();
    let look = move || {
        let others = own_processes().map(|(pid, _)| pid).filter(|pid| u32::try_from(*pid) != Ok(own));
        others.filter(|pid| process_role(job, &process_environment(*pid)) == wanted).collect()
    };
    // Reading /proc takes 10 ms and more on a node with thousands of processes.
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

/// Ends the batch script of this job, with all that it has started outside of steps.
pub(crate) async fn end_script(job: JobId) {
    tracing::info!(
        "the node is wanted: ending the batch script; it begins anew when the job is started again"
    );
    let deadline = Instant::now() + TERM_GRACE;
    let mut signal = libc::SIGTERM;
    loop {
        let left = job_processes(job, ProcessRole::Script).await;
        if left.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            signal = libc::SIGKILL;
        }
        if signal != 0 {
            left.iter().for_each(|pid| send_signal(*pid, signal));
        }
        if signal == libc::SIGKILL {
            return;
        }
        // What was asked once is only waited for.
        signal = 0;
        sleep(POLL).await;
    }
}

/// Leaves a sentry behind, in the batch script of this job.
pub(crate) fn leave_sentry() {
    let sentry = executable::program_path_here().and_then(|program| {
        Command::new(program)
            .arg("sentry")
            .env(SENTRY_VARIABLE, "1")
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .process_group(0)
            .spawn()
    });
    if let Err(error) = sentry {
        tracing::warn!(%error, "nobody watches over the rest of the script: if Slurm preempts it, main jobs wait");
    }
}

/// Sends the sentries of earlier runs in this script away: we watch ourselves now.
pub(crate) async fn dismiss_sentries(job: JobId) {
    job_processes(job, ProcessRole::Sentry).await.into_iter().for_each(|pid| send_signal(pid, libc::SIGTERM));
}

/// `infill sentry`: in the batch script it starts itself as a step, and ends the script when that was told to
/// leave.
pub async fn run_sentry(args: SentryArgs) -> anyhow::Result<i32> {
    let place =
        SlurmContext::from_env(|name| std::env::var(name).ok()).context("a sentry stands in a Slurm job")?;
    let mut told = listen_for_signals().context("cannot listen for signals")?;
    if place.in_step {
        while told.recv().await.is_some_and(|told| told != AgentSignal::Leave) {}
        if let Some(home) = args.home.as_deref().and_then(RuntimeDir::open_given) {
            home.record_end(AgentEnd::Left);
        }
        return Ok(0);
    }
    let rest = timeout(SHORT_REST, told.recv()).await;
    if rest.is_ok() || job_processes(place.job, ProcessRole::Script).await.is_empty() {
        return Ok(0);
    }
    let home = RuntimeDir::create_for(&place).context("cannot make the private directory of the sentry")?;
    home.clear_previous_run();
    let mut child = Command::from(step::srun_sentry(home.path())?).spawn()?;
    let dismissed = tokio::select! {
        biased;
        _ = told.recv() => true,
        _ = child.wait() => timeout(SIGNAL_SETTLE, told.recv()).await.is_ok(),
    };
    if dismissed {
        step::forward_signal(&child, libc::SIGTERM);
    }
    let wanted = home.recorded_end() == Some(AgentEnd::Left) && !dismissed;
    home.remove();
    if wanted {
        end_script(place.job).await;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_process_is() {
        for (variables, want) in [
            ("SLURM_JOB_ID=7", ProcessRole::Script),
            ("SLURM_JOB_ID=7 SLURM_STEP_ID=4294967291", ProcessRole::Script),
            ("SLURM_JOB_ID=7 SLURM_STEP_ID=0", ProcessRole::Other),
            ("SLURM_JOB_ID=7 INFILL_SENTRY=1", ProcessRole::Sentry),
            ("SLURM_JOB_ID=7 INFILL_SENTRY=1 SLURM_STEP_ID=2", ProcessRole::Sentry),
            ("SLURM_JOB_ID=77", ProcessRole::Other),
            ("MY_SLURM_JOB_ID=7", ProcessRole::Other),
            ("", ProcessRole::Other),
        ] {
            let environment: Vec<Vec<u8>> = variables.split(' ').map(|v| v.as_bytes().to_vec()).collect();
            assert_eq!(process_role(JobId(7), &environment), want, "{variables}");
        }
    }

    /// A script that ignores SIGTERM, with a child in a session of its own.
    #[tokio::test]
    async fn it_ends_all_of_a_script_and_no_step() {
        let job = JobId(4_000_000_000 + std::process::id() % 1000);
        let start = |step: Option<&str>, script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("SLURM_JOB_ID", job.to_string()).env_remove("SLURM_STEP_ID");
            command.envs(step.map(|id| ("SLURM_STEP_ID", id))).kill_on_drop(true);
            command.spawn().unwrap()
        };
        let mut stubborn = start(None, "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.05; done");
        let mut step = start(Some("0"), "exec sleep 1000");
        while job_processes(job, ProcessRole::Script).await.len() < 3 {
            sleep(POLL).await;
        }
        end_script(job).await;
        assert!(!timeout(Duration::from_secs(5), stubborn.wait()).await.unwrap().unwrap().success());
        while !job_processes(job, ProcessRole::Script).await.is_empty() {
            sleep(POLL).await;
        }
        assert!(step.try_wait().unwrap().is_none());
    }
}
