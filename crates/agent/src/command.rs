//! The user's command: starts it, asks it to stop, kills it, and makes sure that none of its processes stay.

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
use super::processes::{CommandProcesses, MARK_VARIABLE, SignalHandling, send_signal};
use super::progress::ProgressTally;
use super::run_signal::RunSignal;

/// Exit codes with which shells report that a program is missing, or cannot be run.
const CODE_NOT_FOUND: i32 = 127;
const CODE_CANNOT_RUN: i32 = 126;

/// The exit code that shells report for a process that died of a signal, less the signal's number.
pub(crate) const SIGNAL_CODE_BASE: i32 = 128;

/// When one local rank fails, the others wait for it in vain. They get SIGTERM and this much time.
const FAILED_PEERS_GRACE: Duration = Duration::from_secs(5);

/// Longest time for which processes that would die of the rescale signal are spared. They get at most a
/// quarter of the time until the command is killed.
const SPARED_WAIT: Duration = Duration::from_secs(5);

/// How long we wait for a killed process. It is gone in milliseconds, unless the kernel waits for a file
/// system or a GPU.
const KILLED_WAIT: Duration = Duration::from_secs(5);

/// How often we check whether strays are gone: the first and the longest interval.
const STRAY_POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// A command that is killed within this time after its signal may just have been saving.
const SHORT_WAIT: Duration = Duration::from_secs(10);

/// How long we read on after the end. The last output of an ended process is in the pipe already; only a
/// process that escaped us could keep the pipe open.
const OUTPUT_DRAIN: Duration = Duration::from_secs(1);

/// An environment variable: its name and value.
pub(crate) type EnvVariable = (Cow<'static, str>, String);

/// Everything that is needed to start the command.
pub(crate) struct LaunchSpec {
    /// Program and arguments.
    pub words: Vec<String>,
    /// For each local rank: its global rank, and its variables.
    pub ranks: Vec<(u32, Vec<EnvVariable>)>,
    /// The program that runs the command on further nodes, if there are any.
    pub remote: Option<RemoteLauncher>,
    /// Value of the variable that marks the command's processes; unique.
    pub mark: String,
    /// The rescale signal.
    pub signal: i32,
    /// Where its output goes.
    pub output: OutputForwarder,
    /// Expression that finds progress in its output.
    pub regex: Option<Regex>,
    /// Adds up the progress, and notes that memory ran out.
    pub tally: ProgressTally,
    /// Counts the command's processes that the kernel kills for lack of memory.
    pub kills: Option<OomKillCounter>,
}

/// A program that runs the command on further nodes, and prints the output from there. It passes the rescale
/// signal on, and on SIGTERM it kills the processes that it runs.
pub(crate) struct RemoteLauncher {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Environment variables that it gets besides ours.
    pub variables: Vec<EnvVariable>,
    /// Names of our variables that it must not inherit.
    pub without: Vec<&'static str>,
}

/// A running command.
pub(crate) struct RunningCommand {
    orders: mpsc::UnboundedSender<StopRequest>,
    ended: oneshot::Receiver<CommandOutcome>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CommandOutcome {
    /// Exit code, and whether the command was asked to stop or killed.
    pub exit: CommandExit,
    /// Seconds from the rescale signal to the end; 0 when none was sent.
    pub stop_secs: f64,
    /// Whether a local rank failed before it was asked to stop.
    pub failed_unasked: bool,
}

/// A request to stop. With `signal` it means: the rescale signal now, if it was not sent yet, and SIGKILL at
/// `kill_at` at the latest. Else it means SIGKILL alone, as if that came from elsewhere.
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

    /// Asks the command to stop within `grace`. A later call can only shorten the time.
    pub fn stop(&self, grace: Duration) {
        // A command that has just ended needs no request.
        self.orders.send(StopRequest { kill_at: Instant::now() + grace, signal: true }).ok();
    }

    /// Kills the command without asking it to save.
    pub fn kill(&self) {
        self.orders.send(StopRequest { kill_at: Instant::now(), signal: false }).ok();
    }

    /// Waits for the end. It may be cancelled and called again, but not after it has returned.
    pub async fn wait_for_end(&mut self) -> CommandOutcome {
        // The supervisor always sends an outcome, unless the runtime is shut down.
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

/// Watches over the processes of all local ranks, and records how they end.
/// The process that runs the command on further nodes.
struct RemoteProcess {
    pid: i32,
    /// Whether it was asked to end.
    signalled: bool,
}

/// Processes that have not been asked to stop, because they would die of the signal.
#[derive(Default)]
struct SparedProcesses {
    pids: Vec<i32>,
    /// When they are asked; `None` if there are none.
    until: Option<Instant>,
}

struct CommandSupervisor {
    children: JoinSet<(Option<i32>, ExitStatus)>,
    output: JoinSet<()>,
    processes: CommandProcesses,
    /// The process that runs the command on further nodes, until it has ended.
    remote: Option<RemoteProcess>,
    signal: i32,
    /// When the command was first asked to stop.
    asked_at: Option<Instant>,
    kill_at: Option<Instant>,
    killed: bool,
    /// Exit code of the first rank that failed; 0 as long as none has.
    code: i32,
    failed_unasked: bool,
    /// Whether a failed rank was killed, or returned the code that shells return for a killed process.
    by_sigkill: bool,
    kills: Option<OomKillCounter>,
    tally: ProgressTally,
    /// Whether a rank died of the very signal that we sent. It may have been a wrapper of a process that is
    /// saving now.
    died_of_signal: bool,
    spared: SparedProcesses,
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
            asked_at: None,
            kill_at: None,
            killed: false,
            code: 0,
            failed_unasked: false,
            by_sigkill: false,
            kills: launch.kills.clone(),
            tally: launch.tally.clone(),
            died_of_signal: false,
            spared: SparedProcesses::default(),
        };
        let tally = Some(launch.tally.clone());
        let regex = launch.regex.clone();
        let local_reader = OutputReader { regex, tally: tally.clone(), from_afar: false };
        for ((rank, _), child) in launch.ranks.iter().zip(children) {
            group.watch_child(*rank, child, &launch.output, &local_reader);
        }
        if let Some(child) = remote {
            group.remote = child_pid(&child).map(|pid| RemoteProcess { pid, signalled: false });
            let remote_reader = OutputReader { regex: None, tally, from_afar: true };
            group.watch_child(0, child, &launch.output, &remote_reader);
        }
        Ok(group)
    }

    /// Reads the output of a child, and waits for its end.
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

    /// Watches over the command until none of its processes are left.
    async fn supervise(mut self, mut orders: mpsc::UnboundedReceiver<StopRequest>) -> CommandOutcome {
        let mut memory_checks = interval(out_of_memory::RECENT_PERIOD / 2);
        memory_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.children.is_empty() {
            tokio::select! {
                biased;
                Some(order) = orders.recv() => self.handle_request(order).await,
                Some(Ok((id, status))) = self.children.join_next() => {
                    self.remote = self.remote.take().filter(|remote| Some(remote.pid) != id);
                    self.record_exit(status).await;
                }
                () = sleep_until_set(self.kill_at) => self.kill_all().await,
                () = sleep_until_set(self.spared.until) => self.ask_spared().await,
                _ = memory_checks.tick() => self.kills.iter_mut().for_each(OomKillCounter::record_count),
            }
        }
        let by_sigkill = self.by_sigkill;
        if self.failed_unasked && self.kills.as_ref().is_some_and(|kills| kills.killed_command(by_sigkill)) {
            tracing::warn!("the kernel has killed processes of the command: out of memory");
            self.tally.note_out_of_memory();
        }
        self.clear_strays(&mut orders).await;
        let drained = async { while self.output.join_next().await.is_some() {} };
        // A process that still holds the pipes does not belong to the command.
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
        let is_first = self.asked_at.is_none();
        self.asked_at.get_or_insert_with(Instant::now);
        self.shorten_deadline(order.kill_at);
        if is_first {
            self.remote.iter().for_each(|remote| send_signal(remote.pid, self.signal));
            let pids = self.processes.ask_all(self.signal).await;
            let patience = order.kill_at.saturating_duration_since(Instant::now()) / 4;
            let until = (!pids.is_empty()).then(|| Instant::now() + patience.min(SPARED_WAIT));
            self.spared = SparedProcesses { pids, until };
        }
    }

    /// Sends a signal to all processes. The process that runs the command on further nodes is asked to kill
    /// the command there before it is killed itself.
    async fn signal_all(&mut self, signal: i32) {
        match &mut self.remote {
            Some(remote) if signal == libc::SIGKILL && !remote.signalled => {
                remote.signalled = true;
                send_signal(remote.pid, libc::SIGTERM);
                self.shorten_deadline(Instant::now() + KILLED_WAIT);
            }
            Some(remote) => send_signal(remote.pid, signal),
            None => {}
        }
        self.processes.signal_all(signal).await;
    }

    /// Asks the processes that were spared: those that they serve have had time to save.
    async fn ask_spared(&mut self) {
        let spared = std::mem::take(&mut self.spared);
        self.processes.signal_some(&spared.pids, self.signal).await;
    }

    fn shorten_deadline(&mut self, kill_at: Instant) {
        self.kill_at = Some(self.kill_at.map_or(kill_at, |t| t.min(kill_at)));
    }

    async fn kill_all(&mut self) {
        if let Some(asked_at) = self.asked_at.filter(|_| !self.killed) {
            let handling = self.processes.signal_handling(self.signal).await;
            if let Some(why) = handling.and_then(|how| explain_kill(how, self.signal, asked_at.elapsed())) {
                tracing::warn!("{why}");
            }
            // On a starved node, the command may have ended without our knowledge.
            self.killed = handling.is_some() || self.remote.is_some();
        }
        self.kill_at = None;
        self.signal_all(libc::SIGKILL).await;
    }

    /// Records that a local rank has ended. If it failed, its peers are asked to end.
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

    /// Clears the processes that are left when all ranks have ended. It waits for them if they may still be
    /// saving, and kills them otherwise.
    async fn clear_strays(&mut self, orders: &mut mpsc::UnboundedReceiver<StopRequest>) {
        let mut pause = STRAY_POLL.0;
        let mut until = if self.died_of_signal { self.kill_at } else { None };
        let mut given_up_at = None;
        while self.processes.any_alive().await {
            let now = Instant::now();
            if self.spared.until.is_some_and(|t| now >= t) {
                self.ask_spared().await;
            }
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

/// Why a command that was asked to leave has to be killed, and what its owner may change. `None` if it had
/// little time, and may just have been saving.
fn explain_kill(handling: SignalHandling, signal: i32, waited: Duration) -> Option<String> {
    let name = RunSignal(signal);
    let does = match handling {
        SignalHandling::Ignored => "ignores",
        SignalHandling::Blocked => "blocks",
        SignalHandling::Taken if waited < SHORT_WAIT => return None,
        SignalHandling::Taken => {
            return Some(format!(
                "the command has not ended {:.0} s after SIG{name}, and is killed; if its libraries take the \
                 signal (NCCL of 2022 does), choose another --signal",
                waited.as_secs_f64()
            ));
        }
    };
    Some(format!("the command {does} SIG{name}, and is killed; choose another --signal"))
}

async fn sleep_until_set(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The process id of a child; `None` once it was waited for.
fn child_pid(child: &Child) -> Option<i32> {
    child.id().and_then(|id| i32::try_from(id).ok())
}

/// Starts one local rank.
fn spawn_rank(words: &[String], variables: &[EnvVariable], mark: &str) -> std::io::Result<Child> {
    let mut command = build_command(words, variables)?;
    command.env(MARK_VARIABLE, mark);
    command.spawn()
}

/// Starts the program that runs the command on further nodes. It has no mark, because it looks after the
/// processes that it starts there.
fn spawn_remote(remote: &RemoteLauncher) -> std::io::Result<Child> {
    let mut command = build_command(&remote.words, &remote.variables)?;
    for name in &remote.without {
        command.env_remove(name);
    }
    command.spawn()
}

/// Builds a program in a process group of its own, which dies with us.
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
                // Our process died before the kernel had noted the signal.
                libc::_exit(CODE_CANNOT_RUN);
            }
            Ok(())
        });
    }
    Ok(command)
}

#[cfg(test)]
mod tests;
