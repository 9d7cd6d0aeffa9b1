//! `infill run --on-node CMD`: a command of the user that prepares a node, such as one that copies data to
//! its disk. It runs on each node before the agent there says hello. So the others train meanwhile, and a
//! node whose preparation fails costs them nothing.

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use infill_model::JobId;

use super::args::CommandArgs;
use super::command::{LaunchSpec, RunningCommand};
use super::output::OutputForwarder;
use super::progress::ProgressTally;
use super::signals::AgentSignal;
use super::slurm_context::SlurmContext;
use super::slurm_programs::SlurmPrograms;
use super::time_limit;

/// The exit code of `timeout` for a command that took too long.
const CODE_TIMED_OUT: i32 = 124;

/// Time between SIGTERM and SIGKILL for a command that takes too long.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// Why a node is not prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupFailure {
    /// The command exited with this code.
    Failed(i32),
    /// It did not end within these seconds.
    TimedOut(u32),
    /// The node is wanted, or the job's time is up.
    Left,
    /// This process could not write output.
    Unable,
}

impl fmt::Display for SetupFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupFailure::Failed(code) => write!(f, "the command of --on-node failed with code {code}"),
            SetupFailure::TimedOut(secs) => {
                write!(f, "the command of --on-node did not end within {secs} s (--on-node-secs)")
            }
            SetupFailure::Left => f.write_str("the node was wanted while the command of --on-node ran"),
            SetupFailure::Unable => f.write_str("cannot run the command of --on-node: no output"),
        }
    }
}

impl SetupFailure {
    /// A command that reports this failure and fails in the same way. On a lead it stands for the training
    /// command, so that the daemon tries the job elsewhere if it ran elsewhere, and else lets it fail.
    pub(crate) fn failing_command(self) -> Vec<String> {
        let code = if let SetupFailure::Failed(code) = self { code } else { CODE_TIMED_OUT };
        let script = "echo \"infill: $1\" >&2; exit \"$2\"";
        ["sh", "-c", script, "sh", &self.to_string(), &code.to_string()].map(str::to_owned).to_vec()
    }
}

/// Runs the command of `--on-node`, if there is one, for the job `lead`.
///
/// # Errors
/// When it fails, takes too long, or the node is wanted meanwhile. None of its processes are left then. A
/// signal that comes after its end stays in `signals`, for the worker.
pub(crate) async fn prepare_node(
    common: &CommandArgs,
    lead: JobId,
    context: &SlurmContext,
    programs: SlurmPrograms,
    signals: &mut mpsc::Receiver<AgentSignal>,
) -> Result<(), SetupFailure> {
    let Some(script) = &common.on_node else { return Ok(()) };
    tracing::info!(command = script, node = %context.node, "preparing this node (--on-node)");
    let started = Instant::now();
    // Slurm signals each step only once, and may have done so before we listened.
    let wanted = async {
        if !time_limit::is_preempted(programs, context.job).await {
            std::future::pending::<()>().await;
        }
    };
    run_script(script, common.on_node_secs, lead, context, signals, wanted).await?;
    tracing::info!(secs = started.elapsed().as_secs_f64(), "this node is prepared");
    Ok(())
}

async fn run_script(
    script: &str,
    max_secs: u32,
    lead: JobId,
    context: &SlurmContext,
    signals: &mut mpsc::Receiver<AgentSignal>,
    wanted: impl Future<Output = ()>,
) -> Result<(), SetupFailure> {
    let output = OutputForwarder::to_own_streams(false).map_err(|_| SetupFailure::Unable)?;
    let mut running = RunningCommand::start(LaunchSpec {
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ranks: vec![(0, vec![("INFILL_JOB_ID".into(), lead.to_string())])],
        remote: None,
        mark: format!("on-node-{}-{}-{}", context.job, context.node, std::process::id()),
        signal: libc::SIGTERM,
        output,
        regex: None,
        tally: ProgressTally::new(),
        kills: None,
    });
    let deadline = Instant::now() + Duration::from_secs(max_secs.into());
    let mut failure = None;
    tokio::pin!(wanted);
    let ended = loop {
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => if signal == AgentSignal::Leave {
                // A main job may wait for the node, and a half-prepared one is worth nothing.
                failure = Some(SetupFailure::Left);
                running.kill();
            },
            () = &mut wanted, if failure.is_none() => {
                failure = Some(SetupFailure::Left);
                running.kill();
            }
            () = sleep_until(deadline), if failure.is_none() => {
                failure = Some(SetupFailure::TimedOut(max_secs));
                running.stop(TERM_GRACE);
            }
            ended = running.wait_for_end() => break ended,
        }
    };
    match failure {
        Some(failure) => Err(failure),
        None if ended.exit.code == 0 => Ok(()),
        None => Err(SetupFailure::Failed(ended.exit.code)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Each run has a job of its own, because the job is in the mark of its processes.
    fn context() -> SlurmContext {
        static JOBS: AtomicU32 = AtomicU32::new(7);
        SlurmContext { job: JobId(JOBS.fetch_add(1, Ordering::Relaxed)), node: "n1".into(), in_step: true }
    }

    /// Runs a script with two seconds. `wanted_after`: when Slurm wants the node.
    async fn run(script: &str, wanted_after: Option<Duration>) -> (Result<(), SetupFailure>, Duration) {
        let (_sender, mut signals) = mpsc::channel(1);
        let wanted = async {
            match wanted_after {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let started = Instant::now();
        let result = run_script(script, 2, JobId(5), &context(), &mut signals, wanted).await;
        (result, started.elapsed())
    }

    #[tokio::test]
    async fn a_command_that_fails_or_hangs_is_named() {
        assert_eq!(run("test $INFILL_JOB_ID = 5", None).await.0, Ok(()));
        assert_eq!(run("exit 3", None).await.0, Err(SetupFailure::Failed(3)));
        assert_eq!(run("no-such-program-here", None).await.0, Err(SetupFailure::Failed(127)));
        let (result, secs) = run("sleep 60", None).await;
        assert_eq!(result, Err(SetupFailure::TimedOut(2)));
        assert!(secs < Duration::from_secs(20), "{secs:?}");
    }

    #[tokio::test]
    async fn a_node_that_is_wanted_does_not_wait_for_its_preparation() {
        let script = "trap '' TERM; sleep 60";
        let (result, secs) = run(script, Some(Duration::from_millis(100))).await;
        assert_eq!(result, Err(SetupFailure::Left));
        assert!(secs < Duration::from_millis(1900), "{secs:?}");
        let (sender, mut signals) = mpsc::channel(1);
        sender.send(AgentSignal::Leave).await.unwrap();
        let result = run_script(script, 60, JobId(5), &context(), &mut signals, std::future::pending()).await;
        assert_eq!(result, Err(SetupFailure::Left));
    }

    #[tokio::test]
    async fn a_signal_after_the_preparation_is_left_for_the_worker() {
        let (sender, mut signals) = mpsc::channel(1);
        let context = context();
        let prepared =
            run_script("true", 60, JobId(5), &context, &mut signals, std::future::pending::<()>()).await;
        assert_eq!(prepared, Ok(()));
        sender.send(AgentSignal::Leave).await.unwrap();
        assert_eq!(signals.try_recv(), Ok(AgentSignal::Leave));
    }
}
