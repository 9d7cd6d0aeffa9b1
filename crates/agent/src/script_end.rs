//! Ends the batch script around `infill run` when the node is wanted.
//!
//! When Slurm preempts a job, it signals the steps at once, but the batch script only at the end of the grace
//! time. Whatever a script does besides or after `infill run` would hold the node until then, and a main job
//! would wait. So the script is ended as soon as a step gets the signal. The job is requeued, and its script
//! starts again. While `infill run` lives, that step is its own. Afterwards it is a sentry.

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
use super::slurm_context::{SlurmContext, env_variable, is_job_step};
use super::step;

/// Time that a script has after SIGTERM, before it is killed. It is short because a main job waits.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// How often we check whether the script has ended.
const POLL: Duration = Duration::from_millis(20);

/// A script that ends within this time after `infill run` needs no sentry. Most scripts do.
const SHORT_REST: Duration = Duration::from_millis(500);

/// How long we wait for a signal to the script: Slurm may signal the script and the step in either order.
const SIGNAL_SETTLE: Duration = Duration::from_millis(50);

/// Marks sentries, and the steps in which they watch.
const SENTRY_VARIABLE: &str = "INFILL_SENTRY";

/// Stays behind when `infill run` has ended and its batch script goes on; infill starts it itself
#[derive(Args, Clone, Debug)]
pub struct SentryArgs {
    /// The private directory in which the sentry of the step records that it was asked to leave.
    #[arg(long)]
    home: Option<PathBuf>,
}

/// The part of the job to which a process belongs.
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
    if variable_in(environment, "SLURM_JOB_ID") != Some(job.to_string()) {
        return ProcessRole::Other;
    }
    match variable_in(environment, SENTRY_VARIABLE) {
        Some(_) => ProcessRole::Sentry,
        None if is_job_step(variable_in(environment, "SLURM_STEP_ID").as_deref()) => ProcessRole::Other,
        None => ProcessRole::Script,
    }
}

/// The value of a variable in the environment of a process.
fn variable_in(environment: &[Vec<u8>], name: &str) -> Option<String> {
    let value = environment.iter().find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// The processes of our user that play this role in the job, without ourselves.
async fn job_processes(job: JobId, role: ProcessRole) -> Vec<i32> {
    // Reading /proc takes 10 ms and more on a node with thousands of processes.
    tokio::task::spawn_blocking(move || scan_job_processes(job, role)).await.unwrap_or_default()
}

fn scan_job_processes(job: JobId, role: ProcessRole) -> Vec<i32> {
    let own = std::process::id();
    own_processes()
        .map(|(pid, _)| pid)
        .filter(|pid| u32::try_from(*pid) != Ok(own))
        .filter(|pid| process_role(job, &process_environment(*pid)) == role)
        .collect()
}

/// Ends the batch script of this job, with all processes that it has started outside of steps.
pub(crate) async fn end_script(job: JobId) {
    tracing::info!(
        "the node is wanted: ending the batch script; it runs again when the job is started again"
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
        // Each process is asked once; then we only wait.
        signal = 0;
        sleep(POLL).await;
    }
}

/// Starts a sentry that stays behind in the batch script of this job.
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
        tracing::warn!(
            %error,
            "cannot start a sentry for the rest of the script: if Slurm preempts the job, main jobs wait"
        );
    }
}

/// Ends the sentries of earlier runs in this script, because we watch ourselves now.
pub(crate) async fn dismiss_sentries(job: JobId) {
    job_processes(job, ProcessRole::Sentry).await.into_iter().for_each(|pid| send_signal(pid, libc::SIGTERM));
}

/// `infill sentry`: in the batch script it starts itself as a step, and ends the script when Slurm asks that
/// step to leave. Returns the exit code for the process.
///
/// # Errors
/// When it does not run in a Slurm job, or the private directory or the step cannot be made.
pub async fn run_sentry(args: SentryArgs) -> anyhow::Result<i32> {
    let context = SlurmContext::from_env(env_variable).context("infill sentry must run in a Slurm job")?;
    let mut signals = listen_for_signals().context("cannot listen for signals")?;
    if context.in_step {
        while signals.recv().await.is_some_and(|signal| signal != AgentSignal::Leave) {}
        if let Some(home) = args.home.as_deref().and_then(RuntimeDir::open_given) {
            home.record_end(AgentEnd::Left);
        }
        return Ok(0);
    }
    let early_signal = timeout(SHORT_REST, signals.recv()).await;
    if early_signal.is_ok() || job_processes(context.job, ProcessRole::Script).await.is_empty() {
        return Ok(0);
    }
    let home = RuntimeDir::create_for(&context).context("cannot make the private directory of the sentry")?;
    home.clear_previous_run();
    let mut child = Command::from(step::srun_sentry(home.path())?).spawn()?;
    let dismissed = tokio::select! {
        biased;
        _ = signals.recv() => true,
        _ = child.wait() => timeout(SIGNAL_SETTLE, signals.recv()).await.is_ok(),
    };
    if dismissed {
        step::forward_signal(&child, libc::SIGTERM);
    }
    let is_node_wanted = home.recorded_end() == Some(AgentEnd::Left) && !dismissed;
    home.remove();
    if is_node_wanted {
        end_script(context.job).await;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_shows_the_role_of_a_process() {
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

    /// The script ignores SIGTERM, and has a child in a session of its own.
    #[tokio::test]
    async fn all_processes_of_a_script_are_ended_and_no_step() {
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
