//! Turns the `infill run` of a batch script into a job step.
//!
//! Slurm sends SIGTERM to steps as soon as it preempts a job, but to the batch shell only at the end of the
//! grace time. So an agent that must leave quickly has to be a step.

use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::args::RunArgs;
use super::executable;
use super::node_gpus::{self, GPUS_ON_NODE_VARIABLE};
use super::runtime_dir::{AgentEnd, AgentPhase, RuntimeDir};
use super::script_end;
use super::signals::EXIT_TERMINATED;
use super::slurm_context::{SlurmContext, env_variable};
use super::slurm_programs::SlurmPrograms;
use super::time_limit;
use infill_model::JobId;

/// Options of `srun` for one task on each node. The task has the whole node, and survives the loss of others.
pub(crate) const SRUN_OPTIONS: [&str; 7] = [
    "--overlap",
    "--no-kill",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--ntasks-per-node=1",
    "--cpu-bind=none",
    "--input=none",
];

/// Variables that would give the step a share of the node only (`--cpus-per-task` implies `--exact`).
pub(crate) const SHARE_VARIABLES: [&str; 3] =
    ["SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK"];

/// The variable of `--gpus`: how many GPUs the malleable job wants, where GPUs are lent.
const GPUS_WANTED: &str = "SLURM_GPUS";

/// Carries the user's `SLURM_CPUS_PER_TASK` past `srun` to the command.
pub(crate) const KEPT_CPUS_PER_TASK: &str = "INFILL_CPUS_PER_TASK";

/// Signals that ask a job to end.
const END_SIGNALS: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// How often a killed agent is started again. If a machine kills it more often, it means to.
const MAX_REVIVALS: u32 = 3;

/// How long we go on trying to start a step. A slurmctld takes about as long to come back, or another to take
/// over. If the daemon needs the node, it has had the job requeued by then.
const STEP_PATIENCE: Duration = Duration::from_secs(600);

/// Pause between two tries. A slurmctld that has just started does not know its nodes for some seconds. An
/// srun that comes then asks again only after a minute.
const STEP_PAUSE: Duration = Duration::from_secs(5);

/// How often Slurm is asked while the agent has not started. It may wait for Slurm while its node is wanted.
/// Nothing else notifies the script before the end of the grace time, and the daemon may not see it.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);

/// How long an srun that was asked to end has, before it is killed.
const SRUN_TERM_GRACE: Duration = Duration::from_millis(500);

/// Runs `srun … infill run --in-step …` with the same arguments and returns its exit code. An agent that dies
/// without a proper end (killed for memory, say) is started again. So is an agent that never started because
/// slurmctld or slurmd were away. Otherwise the job and the training would end with the agent.
pub(crate) async fn run_step(args: &RunArgs, context: &SlurmContext) -> io::Result<i32> {
    script_end::dismiss_sentries(context.job).await;
    let home = RuntimeDir::create_for(context)?;
    let mut signals = forwarded_signals()?;
    let gpus =
        node_gpus::step_gpus(args.spec.extend.is_some(), context, &SlurmPrograms::default(), env_variable)
            .await;
    let mut revivals = 0;
    let mut asked_to_end = false;
    let mut node_is_lost = false;
    let mut since = Instant::now();
    let code = {
        let wanted = wait_until_wanted(&home, context.job, SlurmPrograms::default());
        tokio::pin!(wanted);
        loop {
            if asked_to_end {
                break EXIT_TERMINATED;
            }
            home.clear_previous_run();
            let mut child = Command::from(srun_command(args, home.path(), gpus)?).spawn()?;
            let end = wait_for_srun(&mut child, &mut signals, &mut asked_to_end, wanted.as_mut()).await?;
            let Some(code) = end else {
                node_is_lost = true;
                break EXIT_TERMINATED;
            };
            match after_step(code, home.agent_phase(), revivals, since.elapsed()) {
                _ if asked_to_end => break code,
                AfterStep::End => break code,
                AfterStep::Again => {
                    revivals += 1;
                    since = Instant::now();
                    tracing::warn!(code, revivals, "the agent is gone; starting it again");
                }
                AfterStep::Later => {
                    tracing::warn!(code, "Slurm did not start the agent's step; trying again");
                    tokio::select! {
                        biased;
                        Some(signal) = signals.recv() => asked_to_end |= END_SIGNALS.contains(&signal),
                        () = wanted.as_mut() => {
                            node_is_lost = true;
                            break EXIT_TERMINATED;
                        }
                        () = sleep(STEP_PAUSE) => {}
                    }
                }
            }
        }
    };
    let left = node_is_lost || home.recorded_end() == Some(AgentEnd::Left);
    home.remove();
    let in_script = std::env::var("ENVIRONMENT").is_ok_and(|value| value == "BATCH");
    // The rest of a main job's script is its owner's business.
    if !in_script || args.spec.extend.is_some() {
        return Ok(code);
    }
    if !left {
        script_end::leave_sentry();
    } else if !asked_to_end {
        // If Slurm has asked the script to end as well, it ends in its own way.
        script_end::end_script(context.job).await;
    }
    Ok(code)
}

/// What follows the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterStep {
    /// `infill run` ends.
    End,
    /// Another step is started at once.
    Again,
    /// Another step is started when slurmctld may be back.
    Later,
}

/// What follows the end of a step with this code, in which the agent reached this phase. `revivals`: how
/// often an agent was started again before. `since_revival`: time since the last such start, or the first
/// one.
fn after_step(code: i32, phase: AgentPhase, revivals: u32, since_revival: Duration) -> AfterStep {
    match phase {
        _ if code == 0 => AfterStep::End,
        AgentPhase::Ended => AfterStep::End,
        // Slurm asked the step to leave before the agent could receive the signal. Only the next agent finds
        // out why, and a main job may be waiting.
        AgentPhase::None if code == EXIT_TERMINATED && revivals < MAX_REVIVALS => AfterStep::Again,
        AgentPhase::None if since_revival < STEP_PATIENCE => AfterStep::Later,
        AgentPhase::Began if revivals < MAX_REVIVALS => AfterStep::Again,
        AgentPhase::None | AgentPhase::Began => AfterStep::End,
    }
}

/// Waits for the end of `srun`, passes our signals on to it, and notes whether we were asked to end. Returns
/// its exit code; `None` if the node is wanted, after it has ended srun.
async fn wait_for_srun(
    child: &mut Child,
    signals: &mut mpsc::Receiver<i32>,
    asked_to_end: &mut bool,
    mut wanted: Pin<&mut impl Future<Output = ()>>,
) -> io::Result<Option<i32>> {
    let status = loop {
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => {
                *asked_to_end |= END_SIGNALS.contains(&signal);
                forward_signal(child, signal);
            }
            status = child.wait() => break status?,
            () = wanted.as_mut() => {
                forward_signal(child, libc::SIGTERM);
                if timeout(SRUN_TERM_GRACE, child.wait()).await.is_err() {
                    child.kill().await?;
                }
                return Ok(None);
            }
        }
    };
    Ok(Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))))
}

/// Returns when Slurm takes the node back while no agent has started here. An agent checks for itself.
async fn wait_until_wanted(home: &RuntimeDir, job: JobId, programs: SlurmPrograms) {
    loop {
        sleep(BEGINS_WITHIN).await;
        if home.agent_phase() == AgentPhase::None
            && time_limit::is_preempted(programs.clone(), job).await
            && home.agent_phase() == AgentPhase::None
        {
            tracing::warn!("Slurm takes the node back, and has not started the agent's step");
            return;
        }
    }
}

/// Listens for the signals that Slurm and users send to batch scripts. `srun` passes them on to the step.
fn forwarded_signals() -> io::Result<mpsc::Receiver<i32>> {
    let (sender, receiver) = mpsc::channel(4);
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(
            async move { while stream.recv().await.is_some() && sender.send(number).await.is_ok() {} },
        );
    }
    Ok(receiver)
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn forward_signal(child: &Child, signal: i32) {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // SAFETY: kill has no memory effects; the child has not been waited for, so the id is its own.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The arguments of the step's agent. `extra`: our own flags. They must come after the subcommand, wherever
/// the global flags are, so they go just before the training command: the last `command_words` words.
fn step_words(mut words: Vec<OsString>, command_words: usize, extra: Vec<OsString>) -> Vec<OsString> {
    let command = words.split_off(words.len().saturating_sub(command_words));
    if words.last().is_some_and(|word| word == "--") {
        words.pop();
    }
    words.extend(extra);
    words.push("--".into());
    words.extend(command);
    words
}

/// The command that starts the agent's step. `gpus`: how many GPUs the step asks for, if the job has not
/// requested any.
fn srun_command(args: &RunArgs, home: &Path, gpus: Option<u32>) -> io::Result<std::process::Command> {
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut extra = vec!["--in-step".into(), "--home".into(), home.into()];
    for (flag, fd) in [("--output-file", libc::STDOUT_FILENO), ("--error-file", libc::STDERR_FILENO)] {
        if let Some(path) = output_file_of(fd) {
            extra.push(flag.into());
            extra.push(path.into_os_string());
        }
    }
    let words = step_words(given, args.common.command.len(), extra);
    let mut srun = std::process::Command::new("srun");
    srun.args(SRUN_OPTIONS)
        .args(["--nodes=1", "--ntasks=1"])
        .args(gpus.map(|gpus| format!("--gres=gpu:{gpus}")))
        .arg(executable::program_path_here()?)
        .args(words);
    if let Ok(cpus) = std::env::var("SLURM_CPUS_PER_TASK") {
        srun.env(KEPT_CPUS_PER_TASK, cpus);
    }
    for name in SHARE_VARIABLES {
        srun.env_remove(name);
    }
    if gpus_from_env(GPUS_WANTED) > gpus_from_env(GPUS_ON_NODE_VARIABLE) {
        // A step cannot have more GPUs than its node.
        srun.env_remove(GPUS_WANTED);
    }
    // A job that another job has submitted inherits the variable.
    match env_variable(GPUS_ON_NODE_VARIABLE) {
        Some(held) => srun.env(node_gpus::HELD_VARIABLE, held),
        None => srun.env_remove(node_gpus::HELD_VARIABLE),
    };
    tracing::debug!(command = ?args.common.command, ?gpus, "starting the job step");
    Ok(srun)
}

/// The number of GPUs in a variable of our environment; 0 without it.
fn gpus_from_env(name: &str) -> u32 {
    env_variable(name).and_then(|gpus| gpus.parse().ok()).unwrap_or(0)
}

/// The command that starts the step in which a sentry watches.
pub(crate) fn srun_sentry(home: &Path) -> io::Result<std::process::Command> {
    let mut srun = std::process::Command::new("srun");
    srun.args(SRUN_OPTIONS).args(["--nodes=1", "--ntasks=1", "--job-name=infill-sentry"]);
    srun.arg(executable::program_path_here()?).arg("sentry").arg("--home").arg(home);
    for name in SHARE_VARIABLES {
        srun.env_remove(name);
    }
    Ok(srun)
}

/// The regular file that a descriptor writes to, if wings can append to it too. Sets O_APPEND: without it,
/// this process and the wings would overwrite each other's lines after `infill run … > file`.
fn output_file_of(fd: RawFd) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    // SAFETY: fcntl with these commands only reads and sets the flags of an open descriptor, and fails for a
    // descriptor that is not open.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_APPEND) < 0 {
            return None;
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use infill_testkit::{clock::StoppedClock, write_script};

    #[test]
    fn our_flags_come_before_the_command_whether_dashes_were_given_or_not() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let step = |line: &str, command: usize| step_words(words(line), command, words("--in-step --home h"));
        let expected = words("--url u run --grace 9 --in-step --home h -- python t.py -- x");
        assert_eq!(step("--url u run --grace 9 -- python t.py -- x", 4), expected);
        assert_eq!(step("--url u run --grace 9 python t.py -- x", 4), expected);
    }

    #[test]
    fn a_step_that_ended_too_early_is_followed_by_another() {
        let killed = 137;
        let soon = Duration::from_secs(1);
        let long = STEP_PATIENCE;
        for (code, phase, revivals, since_revival, want) in [
            (0, AgentPhase::None, 0, soon, AfterStep::End),
            (3, AgentPhase::Ended, 0, soon, AfterStep::End),
            (killed, AgentPhase::Began, 0, soon, AfterStep::Again),
            (killed, AgentPhase::Began, MAX_REVIVALS, soon, AfterStep::End),
            // slurmctld is away.
            (1, AgentPhase::None, 0, soon, AfterStep::Later),
            (1, AgentPhase::None, MAX_REVIVALS, soon, AfterStep::Later),
            (1, AgentPhase::None, 0, long, AfterStep::End),
            // The node is wanted at the moment at which the agent is started again.
            (EXIT_TERMINATED, AgentPhase::None, 1, soon, AfterStep::Again),
            (EXIT_TERMINATED, AgentPhase::None, MAX_REVIVALS, soon, AfterStep::Later),
        ] {
            assert_eq!(
                after_step(code, phase, revivals, since_revival),
                want,
                "{code} {phase:?} {revivals} {since_revival:?}"
            );
        }
    }

    /// Whether a script notices that its node is wanted if squeue gives this answer, and how often squeue was
    /// asked. `agent_runs`: whether its agent has started.
    async fn notices(squeue: &str, agent_runs: bool) -> (bool, usize) {
        let dir = tempfile::tempdir().unwrap();
        let call_log = dir.path().join("calls");
        let squeue =
            write_script(dir.path().join("squeue"), &format!("{squeue}; echo >>{}", call_log.display()));
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
        let home = RuntimeDir::open_given(&home).unwrap();
        if agent_runs {
            std::fs::write(home.progress_socket(), "").unwrap();
        }
        let programs = SlurmPrograms { squeue, ..SlurmPrograms::default() };
        let calls = || std::fs::read_to_string(&call_log).unwrap_or_default().lines().count();
        let clock = StoppedClock::stop();
        let wait = tokio::spawn(async move { wait_until_wanted(&home, JobId(7), programs).await });
        let mut passed = Duration::ZERO;
        // The second call shows that the first was not a reason to end.
        while passed < 2 * BEGINS_WITHIN || !(agent_runs || wait.is_finished() || calls() > 1) {
            assert!(passed < 100 * BEGINS_WITHIN, "it does not ask squeue");
            clock.advance_by(BEGINS_WITHIN).await;
            passed += BEGINS_WITHIN;
        }
        (wait.is_finished(), calls())
    }

    #[tokio::test]
    async fn a_script_whose_step_does_not_start_asks_squeue_itself() {
        let preempted = "echo 2026-11-24T22:03:25 2026-11-24T22:01:00";
        let preempted_before = "echo 2026-11-24T22:03:25 2026-11-24T22:05:00";
        assert!(notices(preempted, false).await.0);
        assert!(!notices("echo N/A", false).await.0);
        assert!(!notices(preempted_before, false).await.0);
        assert_eq!(notices(preempted, true).await, (false, 0), "the agent asks itself");
    }
}
