//! Turns the `infill run` of a batch script into a job step.
//!
//! Slurm sends SIGTERM to steps as soon as it preempts a job, but to the batch shell only at the end of the
//! grace time: what must leave quickly has to be a step.

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

use super::args::{GPUS_ON_NODE_VARIABLE, RunArgs};
use super::batch_script;
use super::executable;
use super::runtime_dir::{AgentEnd, AgentPhase, RuntimeDir};
use super::signals::EXIT_TERMINATED;
use super::slurm_context::SlurmContext;
use super::slurm_programs::SlurmPrograms;
use super::time_limit;
use infill_model::JobId;

/// Options of `srun` for one task a node that has the whole node and outlives the loss of other nodes.
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

/// `--gpus`: where GPUs are lent, how many the malleable job wants.
const GPUS_WANTED: &str = "SLURM_GPUS";

/// Carries the user's `SLURM_CPUS_PER_TASK` past `srun` to the command.
pub(crate) const KEPT_CPUS_PER_TASK: &str = "INFILL_CPUS_PER_TASK";

/// Signals that ask a job to end.
const END_SIGNALS: [i32; 2] = [libc::SIGTERM, libc::SIGINT];

/// How often an agent that was killed is started again. A machine that kills it more often wants it dead.
const MAX_REVIVALS: u32 = 3;

/// For how long a step that Slurm does not start is tried again: about as long as a slurmctld takes to come
/// back, or another to take over. The daemon has had the job requeued by then if it needs the node.
const STEP_PATIENCE: Duration = Duration::from_secs(600);

/// Between two tries. A slurmctld that has just begun does not know its nodes for some seconds, and an srun
/// that comes then asks again only after a minute.
const STEP_PAUSE: Duration = Duration::from_secs(5);

/// An agent that has not begun for so long may wait for Slurm while its node is wanted: from then on Slurm is
/// asked after each such time. Nobody else tells the script before the end of the grace time, and the daemon
/// may not see it.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);

/// An srun that is told to end is killed after this.
const SRUN_TERM_GRACE: Duration = Duration::from_millis(500);

/// Runs `srun … infill run --in-step …` with the same arguments and returns its exit code. An agent that dies
/// without a proper end (killed for memory, say) is started again, and so is one that never began because
/// slurmctld or slurmd were away: its job would end with it, and the training with that.
pub(crate) async fn run_step(args: &RunArgs, place: &SlurmContext) -> io::Result<i32> {
    batch_script::dismiss_sentries(place.job).await;
    let home = RuntimeDir::create_for(place)?;
    let mut signals = forwarded_signals()?;
    let mut revivals = 0;
    let mut told = false;
    let mut lost = false;
    let mut since = Instant::now();
    let code = {
        let wanted = wait_until_wanted(&home, place.job, SlurmPrograms::default());
        tokio::pin!(wanted);
        loop {
            if told {
                break EXIT_TERMINATED;
            }
            home.clear_previous_run();
            let mut child = Command::from(srun_command(args, home.path())?).spawn()?;
            let end = wait_for_srun(&mut child, &mut signals, &mut told, wanted.as_mut()).await?;
            let Some(code) = end else {
                lost = true;
                break EXIT_TERMINATED;
            };
            match after_step(code, home.agent_phase(), revivals, since.elapsed()) {
                _ if told => break code,
                AfterStep::End => break code,
                AfterStep::Again => {
                    (revivals, since) = (revivals + 1, Instant::now());
                    tracing::warn!(code, revivals, "the agent is gone; starting it again");
                }
                AfterStep::Later => {
                    tracing::warn!(code, "Slurm did not start the agent's step; trying again");
                    tokio::select! {
                        biased;
                        Some(signal) = signals.recv() => told |= END_SIGNALS.contains(&signal),
                        () = wanted.as_mut() => {
                            lost = true;
                            break EXIT_TERMINATED;
                        }
                        () = sleep(STEP_PAUSE) => {}
                    }
                }
            }
        }
    };
    let left = lost || home.recorded_end() == Some(AgentEnd::Left);
    home.remove();
    // A script that Slurm has told as well ends in its own way.
    let in_script = std::env::var("ENVIRONMENT").is_ok_and(|value| value == "BATCH");
    match (in_script, left) {
        // What follows in a script of the main queue is its owner's.
        _ if args.spec.extend.is_some() => {}
        (true, true) if !told => batch_script::end_script(place.job).await,
        (true, false) => batch_script::leave_sentry(),
        _ => {}
    }
    Ok(code)
}

/// What follows the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterStep {
    /// The end of it all.
    End,
    /// Another step, at once.
    Again,
    /// Another step, when slurmctld may be back.
    Later,
}

/// What follows the end of a step with this code, in which the agent came so far. Agents have been started
/// anew so often before, and none has lived for so long.
fn after_step(code: i32, life: AgentPhase, revivals: u32, lifeless: Duration) -> AfterStep {
    match life {
        _ if code == 0 => AfterStep::End,
        AgentPhase::Ended => AfterStep::End,
        // Slurm told the step to leave before the agent could hear it. Only the next one finds out why, and a
        // main job may be waiting.
        AgentPhase::None if code == EXIT_TERMINATED && revivals < MAX_REVIVALS => AfterStep::Again,
        AgentPhase::None if lifeless < STEP_PATIENCE => AfterStep::Later,
        AgentPhase::Began if revivals < MAX_REVIVALS => AfterStep::Again,
        AgentPhase::None | AgentPhase::Began => AfterStep::End,
    }
}

/// Waits for the end of `srun`, which gets the signals that we get; notes whether we were told to end. `None`
/// once the node is wanted: then srun is ended.
async fn wait_for_srun(
    child: &mut Child,
    signals: &mut mpsc::Receiver<i32>,
    told: &mut bool,
    mut wanted: Pin<&mut impl Future<Output = ()>>,
) -> io::Result<Option<i32>> {
    let status = loop {
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => {
                *told |= END_SIGNALS.contains(&signal);
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

/// Comes back when Slurm takes the node back while no agent lives here. One that lives looks for itself.
async fn wait_until_wanted(home: &RuntimeDir, job: JobId, programs: SlurmPrograms) {
    loop {
        sleep(BEGINS_WITHIN).await;
        let absent = || home.agent_phase() == AgentPhase::None;
        if absent() && time_limit::is_preempted(programs.clone(), job).await && absent() {
            tracing::warn!("Slurm takes the node back, and has not begun the agent's step");
            return;
        }
    }
}

/// The signals that Slurm and users send to batch scripts; `srun` hands them on to the step.
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

fn srun_command(args: &RunArgs, home: &Path) -> io::Result<std::process::Command> {
    let mut words = std::env::args_os().skip(1).collect::<Vec<_>>();
    // Before the first flag and after the subcommand, wherever global flags stand: just before the `--` of
    // CMD.
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let mut extra = vec!["--in-step".into(), "--home".into(), home.into()];
    for (flag, fd) in [("--output-file", libc::STDOUT_FILENO), ("--error-file", libc::STDERR_FILENO)] {
        if let Some(path) = output_file_of(fd) {
            extra.push(flag.into());
            extra.push(path.into_os_string());
        }
    }
    words.splice(at..at, extra);
    let mut srun = std::process::Command::new("srun");
    srun.args(SRUN_OPTIONS)
        .args(["--nodes=1", "--ntasks=1"])
        .arg(executable::program_path_here()?)
        .args(words);
    if let Ok(cpus) = std::env::var("SLURM_CPUS_PER_TASK") {
        srun.env(KEPT_CPUS_PER_TASK, cpus);
    }
    for name in SHARE_VARIABLES {
        srun.env_remove(name);
    }
    let gpus = |name| std::env::var(name).ok().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    if gpus(GPUS_WANTED) > gpus(GPUS_ON_NODE_VARIABLE) {
        // No step can have more than there are.
        srun.env_remove(GPUS_WANTED);
    }
    tracing::debug!(command = ?args.common.command, "starting the job step");
    Ok(srun)
}

/// The step in which a sentry watches.
pub(crate) fn srun_sentry(home: &Path) -> io::Result<std::process::Command> {
    let mut srun = std::process::Command::new("srun");
    srun.args(SRUN_OPTIONS).args(["--nodes=1", "--ntasks=1", "--job-name=infill-sentry"]);
    srun.arg(executable::program_path_here()?).arg("sentry").arg("--home").arg(home);
    for name in SHARE_VARIABLES {
        srun.env_remove(name);
    }
    Ok(srun)
}

/// The regular file that a descriptor writes to, if wings can append to it too. Sets O_APPEND, without which
/// this process and the wings would overwrite each other's lines after `infill run … > file`.
fn output_file_of(fd: RawFd) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    // SAFETY: fcntl with these commands only reads and sets the flags of an open descriptor; it fails on
    // others.
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
    fn what_follows_the_end_of_a_step() {
        let killed = 137;
        let soon = Duration::from_secs(1);
        let long = STEP_PATIENCE;
        for (code, life, revivals, lifeless, want) in [
            (0, AgentPhase::None, 0, soon, AfterStep::End),
            (3, AgentPhase::Ended, 0, soon, AfterStep::End),
            (killed, AgentPhase::Began, 0, soon, AfterStep::Again),
            (killed, AgentPhase::Began, MAX_REVIVALS, soon, AfterStep::End),
            // slurmctld is away.
            (1, AgentPhase::None, 0, soon, AfterStep::Later),
            (1, AgentPhase::None, MAX_REVIVALS, soon, AfterStep::Later),
            (1, AgentPhase::None, 0, long, AfterStep::End),
            // The node is wanted in the moment in which the agent comes back.
            (EXIT_TERMINATED, AgentPhase::None, 1, soon, AfterStep::Again),
            (EXIT_TERMINATED, AgentPhase::None, MAX_REVIVALS, soon, AfterStep::Later),
        ] {
            assert_eq!(
                after_step(code, life, revivals, lifeless),
                want,
                "{code} {life:?} {revivals} {lifeless:?}"
            );
        }
    }

    /// Whether a script whose agent lives or not learns that its node is wanted, where squeue says this, and
    /// how often squeue was asked.
    async fn learns(squeue: &str, lives: bool) -> (bool, usize) {
        let dir = tempfile::tempdir().unwrap();
        let asked = dir.path().join("asked");
        let squeue =
            write_script(dir.path().join("squeue"), &format!("{squeue}; echo >>{}", asked.display()));
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
        let home = RuntimeDir::open_given(&home).unwrap();
        if lives {
            std::fs::write(home.progress_socket(), "").unwrap();
        }
        let programs = SlurmPrograms { squeue, ..SlurmPrograms::default() };
        let times = || std::fs::read_to_string(&asked).unwrap_or_default().lines().count();
        let clock = StoppedClock::stop();
        let learned = tokio::spawn(async move { wait_until_wanted(&home, JobId(7), programs).await });
        let mut passed = Duration::ZERO;
        // The second look shows that the first was no reason to end.
        while passed < 2 * BEGINS_WITHIN || !(lives || learned.is_finished() || times() > 1) {
            assert!(passed < 100 * BEGINS_WITHIN, "it does not look");
            clock.advance_by(BEGINS_WITHIN).await;
            passed += BEGINS_WITHIN;
        }
        (learned.is_finished(), times())
    }

    #[tokio::test]
    async fn a_script_whose_step_does_not_begin_looks_for_itself() {
        let told = "echo 2026-11-24T22:03:25 2026-11-24T22:01:00";
        let before = "echo 2026-11-24T22:03:25 2026-11-24T22:05:00";
        assert!(learns(told, false).await.0);
        assert!(!learns("echo N/A", false).await.0);
        assert!(!learns(before, false).await.0);
        assert_eq!(learns(told, true).await, (false, 0), "the agent looks for itself");
    }
}
