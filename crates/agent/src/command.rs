//! The user's command: starts it, asks it to stop, kills it, and sees to it that nothing of it is left.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use regex::bytes::Regex;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use infill_model::CommandExit;

use super::oom_kills::OomKillCounter;
use super::out_of_memory;
use super::output::{OutputForwarder, OutputReader, OutputStream};
use super::processes::{CommandProcesses, MARK_VARIABLE, send_signal};
use super::progress::ProgressTally;

/// Exit codes with which shells say that a program is missing, or cannot be run.
const CODE_NOT_FOUND: i32 = 127;
const CODE_CANNOT_RUN: i32 = 126;

/// What a process that died of a signal returns in shells, less the signal's number.
const SIGNAL_CODE_BASE: i32 = 128;

/// When one local rank fails, the others get SIGTERM and so much time: they wait for it in vain.
const FAILED_PEERS_GRACE: Duration = Duration::from_secs(5);

/// A killed process is gone in milliseconds, unless the kernel waits for a file system or a GPU. Then we go
/// on.
const KILLED_WAIT: Duration = Duration::from_secs(5);

/// How often we look whether strays are gone: first and longest interval.
const STRAY_POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// The last output of a process that has ended is in the pipe already; only what escaped us could keep it
/// open.
const OUTPUT_DRAIN: Duration = Duration::from_secs(1);

/// A variable with its value.
pub(crate) type EnvVariable = (Cow<'static, str>, String);

/// What to start.
pub(crate) struct LaunchSpec {
    /// Program and arguments.
    pub words: Vec<String>,
    /// For each local rank: its rank of all, and its variables.
    pub ranks: Vec<(u32, Vec<EnvVariable>)>,
    /// What runs it on further nodes.
    pub remote: Option<RemoteLauncher>,
    /// Value of the variable that marks its processes; unique.
    pub mark: String,
    /// The rescale signal.
    pub signal: i32,
    /// Where its output goes.
    pub output: OutputForwarder,
    /// Expression that finds progress in its output.
    pub regex: Option<Regex>,
    /// Where that is added up, and noted that memory ran out.
    pub tally: ProgressTally,
    /// What counts those of its processes that the kernel kills for lack of memory.
    pub kills: Option<OomKillCounter>,
}

/// A program that runs the command on further nodes, and prints what it prints there. It hands the rescale
/// signal on, and on SIGTERM it kills what it runs.
pub(crate) struct RemoteLauncher {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Its variables.
    pub variables: Vec<EnvVariable>,
    /// Those of ours that it must not have.
    pub without: Vec<&'static str>,
}

/// A running command.
pub(crate) struct RunningCommand {
    orders: mpsc::UnboundedSender<StopRequest>,
    ended: oneshot::Receiver<CommandOutcome>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CommandOutcome {
    /// Code and circumstances.
    pub exit: CommandExit,
    /// Seconds from the rescale signal to the end; 0 when none was sent.
    pub stop_secs: f64,
    /// Whether a local rank had failed before anybody asked for anything.
    pub failed_unasked: bool,
}

/// A request to stop: the rescale signal now, if it was not sent yet, and SIGKILL after this time at the
/// latest. Or SIGKILL alone, as if it came from elsewhere.
struct StopRequest {
    kill_at: Instant,
    signal: bool,
}

impl RunningCommand {
    /// Starts the command. Call it from a thread that lives as long as the process: the kernel kills the
    /// command when the thread that started it ends.
    pub fn start(launch: LaunchSpec) -> RunningCommand {
        let (orders, order_receiver) = mpsc::unbounded_channel();
        let (end_sender, ended) = oneshot::channel();
        match CommandSupervisor::start_ranks(&launch) {
            Ok(group) => {
                tokio::spawn(async move { end_sender.send(group.supervise(order_receiver).await).ok() });
            }
            Err(error) => {
                tracing::error!(command = launch.words.first(), %error, "cannot start the command");
                let missing = error.kind() == std::io::ErrorKind::NotFound;
                let code = if missing { CODE_NOT_FOUND } else { CODE_CANNOT_RUN };
                end_sender.send(CommandOutcome::start_failure(code)).ok();
            }
        }
        RunningCommand { orders, ended }
    }

    /// Asks it to stop within `grace`. A later call can only make it shorter.
    pub fn stop(&self, grace: Duration) {
        // A command that has just ended needs no order.
        self.orders.send(StopRequest { kill_at: Instant::now() + grace, signal: true }).ok();
    }

    /// Kills it, without having asked it for anything.
    pub fn kill(&self) {
        self.orders.send(StopRequest { kill_at: Instant::now(), signal: false }).ok();
    }

    /// Waits for the end. May be cancelled and called again, but not after it has returned.
    pub async fn wait_for_end(&mut self) -> CommandOutcome {
        // The supervisor never ends without a word, unless the runtime is shut down.
        (&mut self.ended).await.unwrap_or(CommandOutcome::start_failure(CODE_CANNOT_RUN))
    }
}

impl CommandOutcome {
    fn start_failure(code: i32) -> CommandOutcome {
        CommandOutcome {
            exit: CommandExit { code, asked: false, killed: false },
            stop_secs: 0.0,
            failed_unasked: true,
        }
    }
}

/// The processes of all local ranks, and what became of them.
struct CommandSupervisor {
    children: JoinSet<(Option<i32>, ExitStatus)>,
    output: JoinSet<()>,
    processes: CommandProcesses,
    /// The process of what runs the command on further nodes, until that has ended.
    remote: Option<i32>,
    signal: i32,
    /// Whether that was told to end.
    remote_told: bool,
    asked_at: Option<Instant>,
    kill_at: Option<Instant>,
    killed: bool,
    /// Code of the first rank that failed; 0 as long as none has.
    code: i32,
    failed_unasked: bool,
    /// Whether a rank that failed was killed, or returned what shells return for one that was.
    by_sigkill: bool,
    kills: Option<OomKillCounter>,
    tally: ProgressTally,
    /// Whether a rank died of the very signal that we sent: it may have been a wrapper of what saves now.
    died_of_signal: bool,
}

impl CommandSupervisor {
    fn start_ranks(launch: &LaunchSpec) -> std::io::Result<CommandSupervisor> {
        let mut children = Vec::new();
        for (_, variables) in &launch.ranks {
            // When a later rank cannot start, dropping the earlier ones kills them.
            children.push(spawn_rank(&launch.words, variables, &launch.mark)?);
        }
        let remote = launch.remote.as_ref().map(spawn_remote).transpose()?;
        let groups = children.iter().filter_map(child_pid).collect();
        let mut group = CommandSupervisor {
            children: JoinSet::new(),
            output: JoinSet::new(),
            processes: CommandProcesses::new(groups, &launch.mark),
            remote: None,
            signal: launch.signal,
            remote_told: false,
            asked_at: None,
            kill_at: None,
            killed: false,
            code: 0,
            failed_unasked: false,
            by_sigkill: false,
            kills: launch.kills.clone(),
            tally: launch.tally.clone(),
            died_of_signal: false,
        };
        let tally = Some(launch.tally.clone());
        let here = OutputReader { regex: launch.regex.clone(), tally: tally.clone(), from_afar: false };
        for ((rank, _), child) in launch.ranks.iter().zip(children) {
            group.watch_child(*rank, child, &launch.output, &here);
        }
        if let Some(child) = remote {
            group.remote = child_pid(&child);
            group.watch_child(
                0,
                child,
                &launch.output,
                &OutputReader { regex: None, tally, from_afar: true },
            );
        }
        Ok(group)
    }

    /// Reads what a child prints, and waits for its end.
    fn watch_child(&mut self, rank: u32, mut child: Child, output: &OutputForwarder, reader: &OutputReader) {
        if let Some(pipe) = child.stdout.take() {
            self.output.spawn(output.clone().forward_lines(OutputStream::Out, rank, pipe, reader.clone()));
        }
        if let Some(pipe) = child.stderr.take() {
            self.output.spawn(output.clone().forward_lines(OutputStream::Err, rank, pipe, reader.clone()));
        }
        let id = child_pid(&child);
        self.children.spawn(async move {
            // Waiting fails only for a process that is not our child.
            (id, child.wait().await.unwrap_or_else(|_| ExitStatus::from_raw(CODE_CANNOT_RUN << 8)))
        });
    }

    /// Watches over the command until nothing of it is left.
    async fn supervise(mut self, mut orders: mpsc::UnboundedReceiver<StopRequest>) -> CommandOutcome {
        let mut looks = interval(out_of_memory::RECENT_PERIOD / 2);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.children.is_empty() {
            tokio::select! {
                biased;
                Some(order) = orders.recv() => self.handle_request(order).await,
                Some(Ok((id, status))) = self.children.join_next() => {
                    self.remote = self.remote.filter(|remote| Some(*remote) != id);
                    self.record_exit(status).await;
                }
                () = sleep_until_set(self.kill_at) => self.kill_all().await,
                _ = looks.tick() => self.kills.iter_mut().for_each(OomKillCounter::record_count),
            }
        }
        let by_sigkill = self.by_sigkill;
        if self.failed_unasked && self.kills.as_ref().is_some_and(|kills| kills.killed_command(by_sigkill)) {
            tracing::warn!("the kernel has killed processes of the command: out of memory");
            self.tally.note_out_of_memory();
        }
        self.clear_strays(&mut orders).await;
        let drained = async { while self.output.join_next().await.is_some() {} };
        // What still holds the pipes is none of the command's processes.
        timeout(OUTPUT_DRAIN, drained).await.ok();
        let stop_secs = self.asked_at.map_or(0.0, |t| t.elapsed().as_secs_f64());
        CommandOutcome {
            exit: CommandExit { code: self.code, asked: self.asked_at.is_some(), killed: self.killed },
            stop_secs,
            failed_unasked: self.failed_unasked,
        }
    }

    async fn handle_request(&mut self, order: StopRequest) {
        if !order.signal {
            self.signal_all(libc::SIGKILL).await;
            return;
        }
        let first = self.asked_at.is_none();
        self.asked_at.get_or_insert_with(Instant::now);
        self.shorten_deadline(order.kill_at);
        if first {
            self.signal_all(self.signal).await;
        }
    }

    /// Sends a signal to all processes. What runs the command elsewhere is told to kill it before it is
    /// killed itself.
    async fn signal_all(&mut self, signal: i32) {
        match self.remote {
            Some(remote) if signal == libc::SIGKILL && !self.remote_told => {
                self.remote_told = true;
                send_signal(remote, libc::SIGTERM);
                self.shorten_deadline(Instant::now() + KILLED_WAIT);
            }
            Some(remote) => send_signal(remote, signal),
            None => {}
        }
        self.processes.signal_all(signal).await;
    }

    fn shorten_deadline(&mut self, kill_at: Instant) {
        self.kill_at = Some(self.kill_at.map_or(kill_at, |t| t.min(kill_at)));
    }

    async fn kill_all(&mut self) {
        self.killed |= self.asked_at.is_some();
        self.kill_at = None;
        self.signal_all(libc::SIGKILL).await;
    }

    /// A local rank has ended.
    async fn record_exit(&mut self, status: ExitStatus) {
        let code = status.code().unwrap_or_else(|| SIGNAL_CODE_BASE + status.signal().unwrap_or(0));
        self.died_of_signal |= self.asked_at.is_some() && status.signal() == Some(self.signal);
        if self.code == 0 {
            self.code = code;
        }
        if code != 0 && self.asked_at.is_none() {
            self.failed_unasked = true;
            self.by_sigkill |= code == SIGNAL_CODE_BASE + libc::SIGKILL;
        }
        if code != 0 && self.asked_at.is_none() && !self.children.is_empty() && self.kill_at.is_none() {
            self.shorten_deadline(Instant::now() + FAILED_PEERS_GRACE);
            self.signal_all(libc::SIGTERM).await;
        }
    }

    /// All ranks have ended; waits for what they left if that may still be saving, and kills it otherwise.
    async fn clear_strays(&mut self, orders: &mut mpsc::UnboundedReceiver<StopRequest>) {
        let mut pause = STRAY_POLL.0;
        let mut until = if self.died_of_signal { self.kill_at } else { None };
        let mut given_up_at = None;
        while self.processes.any_alive().await {
            let now = Instant::now();
            if given_up_at.is_some_and(|t| now >= t) {
                tracing::warn!("processes of the command do not die; going on without them");
                return;
            }
            if until.is_none_or(|t| now >= t) {
                self.killed |= until.take().is_some();
                given_up_at.get_or_insert(now + KILLED_WAIT);
                self.processes.signal_all(libc::SIGKILL).await;
            }
            tokio::select! {
                Some(order) = orders.recv() => until = until.map(|t| t.min(order.kill_at)),
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(STRAY_POLL.1),
            }
        }
    }
}

async fn sleep_until_set(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The id of a child that has not been waited for.
fn child_pid(child: &Child) -> Option<i32> {
    child.id().and_then(|id| i32::try_from(id).ok())
}

/// Starts one local rank.
fn spawn_rank(words: &[String], variables: &[EnvVariable], mark: &str) -> std::io::Result<Child> {
    let mut command = build_command(words, variables)?;
    command.env(MARK_VARIABLE, mark);
    command.spawn()
}

/// Starts what runs the command on further nodes. It bears no mark: what it starts there is its own affair.
fn spawn_remote(remote: &RemoteLauncher) -> std::io::Result<Child> {
    let mut command = build_command(&remote.words, &remote.variables)?;
    for name in &remote.without {
        command.env_remove(name);
    }
    command.spawn()
}

/// A program in a process group of its own, which dies with us.
fn build_command(words: &[String], variables: &[EnvVariable]) -> std::io::Result<Command> {
    let Some((program, args)) = words.split_first() else {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "no command was given"));
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .envs(variables.iter().map(|(name, value)| (name.as_ref(), value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    // SAFETY: between fork and exec only async-signal-safe functions are called: prctl, getppid, _exit.
    unsafe {
        let parent = libc::getpid();
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                // We died before the kernel knew what to do then.
                libc::_exit(CODE_CANNOT_RUN);
            }
            Ok(())
        });
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::super::oom_kills::tests::Fake;
    use super::*;

    const JOB: &str = "system.slice/slurmstepd.scope/job_17";

    /// Runs a shell's script, which finds the counter of kills in `$1`, and says how it ended and whether
    /// memory ran out.
    async fn run(fake: &Fake, job: u32, script: &str) -> (CommandOutcome, bool) {
        let file = fake.say(JOB, 5);
        let tally = ProgressTally::new();
        let words = ["sh", "-c", script, "sh", &file.display().to_string()].map(str::to_owned);
        let mut running = RunningCommand::start(LaunchSpec {
            words: words.to_vec(),
            ranks: vec![(0, Vec::new()), (1, vec![("SECOND".into(), "1".to_owned())])],
            remote: None,
            mark: format!("{}.{job}", file.display()),
            signal: libc::SIGUSR1,
            output: OutputForwarder::to_writers(tokio::io::sink(), tokio::io::sink(), false),
            regex: None,
            tally: tally.clone(),
            kills: fake.kills(job),
        });
        (running.wait_for_end().await, tally.ran_out_of_memory())
    }

    #[tokio::test]
    async fn what_the_kernel_kills_for_memory_ran_out_of_memory() {
        const COUNTED: &str = "echo oom_kill 6 >\"$1\"; ";
        const SECOND: &str = "test -n \"$SECOND\" && exec sleep 60; ";
        let fake = Fake::new();
        let cases = [
            // The kernel kills a rank, what a shell ran, or what a launcher ran.
            (17, format!("{SECOND}{COUNTED}kill -9 $$"), 137, true),
            (17, format!("{SECOND}{COUNTED}sh -c 'kill -9 $$'; exit $?"), 137, true),
            (17, format!("{SECOND}{COUNTED}exit 1"), 1, true),
            // Where other jobs are in the cgroup, too, it was this one only if it was killed.
            (9, format!("{SECOND}{COUNTED}kill -9 $$"), 137, true),
            (9, format!("{SECOND}{COUNTED}exit 1"), 1, false),
            // Somebody else killed it.
            (17, format!("{SECOND}kill -9 $$"), 137, false),
            // It went on without what was killed.
            (17, format!("{COUNTED}exit 0"), 0, false),
        ];
        for (job, script, code, ran_out) in cases {
            let (ended, said) = run(&fake, job, &script).await;
            assert_eq!((ended.exit.code, said), (code, ran_out), "job {job}: {script}");
            assert_eq!(ended.failed_unasked, code != 0, "{script}");
        }
    }
}
