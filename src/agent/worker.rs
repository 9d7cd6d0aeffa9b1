//! A worker: does what the daemon says with the command on its node, and tells the daemon what happened.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::api::{Assignment, Role};
use crate::model::{AgentEvent, Exit, JobId, Member, Opening, WingOrder};

use super::args::CommandArgs;
use super::command::{Ended, Launch, Running};
use super::duty::{Act, decide};
use super::environment::{Surroundings, kept_cpus_per_task};
use super::link::{Backoff, Link, LinkError, free_port};
use super::outbox::Outbox;
use super::output::Output;
use super::progress::{self, Tally};
use super::wings::Submitter;

/// How often progress is reported. Rates are averaged over minutes, and people look at steps.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Slurm may signal the command and us in either order: a command that ends by itself may have been told to.
const SIGNAL_SETTLE: Duration = Duration::from_millis(50);

/// Last reports of a worker whose node is wanted: a main job waits for us.
const LEAVE_FLUSH: Duration = Duration::from_millis(200);

/// Last reports of a worker that has time.
const FINISH_FLUSH: Duration = Duration::from_secs(5);

/// Exit code of a lead that left because of SIGTERM: what a shell says of a program that died of it.
const TERMINATED: i32 = 143;

/// Assignments and orders that wait for the worker. They are levels: what does not fit comes again.
const QUEUE: usize = 4;

/// A daemon that answers a long poll sooner, with nothing new, is asked again only after a pause.
const HASTY_ANSWER: Duration = Duration::from_secs(1);

/// How an end is told of a command that was never started.
const NEVER_RAN: Exit = Exit { code: 0, asked: true, killed: false };

/// What a worker has to know.
pub struct WorkerConfig {
    /// The malleable job.
    pub lead: JobId,
    /// Lead or wing.
    pub role: Role,
    /// Time between the rescale signal and SIGKILL.
    pub grace: Duration,
    /// How long an unreachable daemon is waited for once the command has ended.
    pub patience: Duration,
    /// Where the command's output goes.
    pub output: Output,
    /// Private directory on this node.
    pub dir: PathBuf,
    /// Flags and command.
    pub common: CommandArgs,
}

/// A signal to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// SIGTERM or SIGINT: the node is wanted, or the job's time is up.
    Leave,
    /// A user's signal to the whole step, which the command has got too.
    User(i32),
}

/// Worker of a lead or wing.
pub struct Worker {
    config: WorkerConfig,
    link: Arc<Link>,
    outbox: Arc<Outbox>,
    tally: Tally,
    socket: PathBuf,
    orders: Option<mpsc::Sender<Vec<WingOrder>>>,
    tasks: JoinSet<()>,
    running: Option<(u64, Running)>,
    ended: Option<(u64, AgentEvent, Exit)>,
    assignment: Option<Assignment>,
    opening: Openings,
    leaving: bool,
    exit: Option<i32>,
}

/// Times of the change from one generation to the next.
struct Openings {
    /// Of the last command that was stopped here: until it had saved, if it said so, and until it had exited.
    stopped: Option<(Option<f64>, f64)>,
    /// Since then, or since the agent's start, nothing runs.
    idle_since: Instant,
    /// Of the command that runs, until its first progress was told.
    next: Option<Opening>,
}

impl Worker {
    /// Opens the progress socket and starts the loops that speak to the daemon. `submitter` is the lead's.
    pub fn new(config: WorkerConfig, link: Link, submitter: Option<Submitter>) -> anyhow::Result<Worker> {
        let socket = config.dir.join("progress");
        let listener = progress::open_socket(&socket).context("cannot open the progress socket")?;
        let (tally, outbox) = (Tally::new(), Arc::new(Outbox::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(progress::listen(listener, tally.clone()));
        let orders = submitter.map(|submitter| {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let outbox = outbox.clone();
            tasks.spawn(submitter.serve(receiver, move |event| outbox.push(event)));
            sender
        });
        Ok(Worker {
            config,
            link: Arc::new(link),
            outbox,
            tally,
            socket,
            orders,
            tasks,
            running: None,
            ended: None,
            assignment: None,
            opening: Openings { stopped: None, idle_since: Instant::now(), next: None },
            leaving: false,
            exit: None,
        })
    }

    /// Serves until there is nothing left to do. Returns the exit code for the process.
    pub async fn serve(mut self, mut signals: mpsc::Receiver<Told>) -> anyhow::Result<i32> {
        let (sender, mut assignments) = mpsc::channel(QUEUE);
        self.tasks.spawn(poll(self.link.clone(), sender));
        self.tasks.spawn(report(self.link.clone(), self.outbox.clone()));
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let code = loop {
            tokio::select! {
                biased;
                Some(told) = signals.recv() => self.signalled(told),
                ended = end_of(&mut self.running) => {
                    if let (false, Ok(Some(told))) = (ended.exit.asked, timeout(SIGNAL_SETTLE, signals.recv()).await) {
                        self.signalled(told);
                    }
                    self.stopped(ended);
                }
                Some(assignment) = assignments.recv() => self.assigned(assignment),
                _ = ticks.tick() => self.tick()?,
            }
            if let Some(code) = self.exit {
                break code;
            }
        };
        let hopeless = self.link.away() > Duration::ZERO;
        let wait = if self.leaving || hopeless { LEAVE_FLUSH } else { FINISH_FLUSH };
        if timeout(wait, self.outbox.emptied()).await.is_err() {
            tracing::warn!("left before the daemon had all reports");
        }
        self.tasks.shutdown().await;
        Ok(code)
    }

    fn is_lead(&self) -> bool {
        self.config.role == Role::Lead
    }

    fn signalled(&mut self, told: Told) {
        match told {
            Told::Leave if self.leaving => {
                tracing::info!("told to leave again: killing the command");
                self.stop(Duration::ZERO);
            }
            Told::Leave => {
                tracing::info!("told to leave");
                self.leaving = true;
                self.outbox.push(AgentEvent::Leaving);
                self.stop(self.link.leave_time());
                self.leave_if_done();
            }
            // The command saves and exits on this signal; without a note it would count as its own decision.
            Told::User(number) if number == self.config.common.signal.0 => self.stop(self.config.grace),
            Told::User(_) => {}
        }
    }

    fn stop(&self, grace: Duration) {
        if let Some((_, running)) = &self.running {
            running.stop(grace);
        }
    }

    fn leave_if_done(&mut self) {
        if self.leaving && self.running.is_none() {
            self.exit = Some(if self.is_lead() { TERMINATED } else { 0 });
        }
    }

    /// The command has ended.
    fn stopped(&mut self, ended: Ended) {
        let Some((generation, _)) = self.running.take() else { return };
        self.tell_progress(generation);
        let exit = Exit { asked: ended.exit.asked || self.leaving, ..ended.exit };
        tracing::info!(
            generation,
            code = exit.code,
            asked = exit.asked,
            killed = exit.killed,
            stop_secs = ended.stop_secs,
            "the command has ended"
        );
        let event = AgentEvent::Stopped { generation, exit, stop_secs: ended.stop_secs, port: free_port() };
        let asked_at = Instant::now() - Duration::try_from_secs_f64(ended.stop_secs).unwrap_or_default();
        let saved = self.tally.saved_at().and_then(|t| t.checked_duration_since(asked_at.into_std()));
        let stopped = exit.asked.then_some((saved.map(|s| s.as_secs_f64()), ended.stop_secs));
        self.opening = Openings { stopped, idle_since: Instant::now(), next: None };
        self.link.set_running(None);
        self.outbox.push(event.clone());
        self.ended = Some((generation, event, exit));
        self.leave_if_done();
        self.act(false);
    }

    fn assigned(&mut self, assignment: Assignment) {
        if let Some(orders) = self.orders.as_ref().filter(|_| !assignment.wings.is_empty() && !self.leaving) {
            // What does not fit now comes with the next poll.
            orders.try_send(assignment.wings.clone()).ok();
        }
        self.assignment = Some(assignment);
        self.act(true);
    }

    /// Does what the assignment asks for. `again`: an end that was told before is told again.
    fn act(&mut self, again: bool) {
        let Some(assignment) = &self.assignment else { return };
        if self.leaving {
            return;
        }
        let running = self.running.as_ref().map(|(generation, _)| *generation);
        let ended = self.ended.as_ref().map(|(generation, ..)| *generation);
        match decide(&assignment.directive, running, ended, self.is_lead()) {
            Act::Nothing => {}
            Act::Start(member) => self.start(&member),
            Act::Stop => self.stop(self.config.grace),
            Act::Tell(generation) if again => self.tell_end(generation),
            Act::Tell(_) => {}
            Act::Exit(code) => self.exit = Some(code),
        }
    }

    fn tell_end(&self, generation: u64) {
        let event = match &self.ended {
            Some((last, event, _)) if *last == generation => event.clone(),
            _ => AgentEvent::Stopped { generation, exit: NEVER_RAN, stop_secs: 0.0, port: free_port() },
        };
        self.outbox.push(event);
    }

    /// Starts the command as this member. Runs on the thread of `serve`, which lives as long as the process.
    fn start(&mut self, member: &Member) {
        let common = &self.config.common;
        let around = Surroundings {
            lead: self.config.lead,
            local_ranks: common.local_ranks(),
            local_ranks_given: common.nproc_per_node.is_some(),
            progress: &self.socket,
            cpus_per_task: kept_cpus_per_task(),
            elastic_signals: std::env::var("TORCHELASTIC_SIGNALS_TO_HANDLE").ok(),
            signal: common.signal.to_string(),
        };
        let ranks = (0..common.local_ranks())
            .map(|local| (around.rank(member, local), around.variables(member, local)))
            .collect();
        tracing::info!(
            generation = member.generation,
            rank = member.rank,
            world = member.world,
            "starting the command"
        );
        self.tally.restart();
        let (saved_secs, stop_secs) = self.opening.stopped.take().unzip();
        let idle_secs = self.opening.idle_since.elapsed().as_secs_f64();
        self.opening.next = Some(Opening { saved_secs: saved_secs.flatten(), stop_secs, idle_secs });
        let running = Running::start(Launch {
            words: common.command.clone(),
            ranks,
            mark: mark(&self.config.dir, member.generation),
            signal: common.signal.0,
            output: self.config.output.clone(),
            regex: common.progress_regex.clone(),
            tally: self.tally.clone(),
        });
        self.link.set_running(Some(member.generation));
        self.outbox.push(AgentEvent::Started { generation: member.generation });
        self.running = Some((member.generation, running));
    }

    fn tell_progress(&mut self, generation: u64) {
        if let Some((sum, secs)) = self.tally.take() {
            let (samples, step, loss) = (sum.samples, sum.step, sum.loss);
            let opening = self.opening.next.take();
            self.outbox.push(AgentEvent::Progress { generation, samples, secs, step, loss, opening });
        }
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        match &self.running {
            Some((generation, _)) => {
                let generation = *generation;
                self.tell_progress(generation);
            }
            None => self.lose_patience()?,
        }
        Ok(())
    }

    /// With nothing running and nobody to say what comes next, a worker gives its node back after a while.
    fn lose_patience(&mut self) -> anyhow::Result<()> {
        if self.link.away() <= self.config.patience {
            return Ok(());
        }
        match &self.ended {
            _ if !self.is_lead() => self.exit = Some(0),
            Some((_, _, exit)) if !exit.asked => self.exit = Some(exit.code),
            // It was stopped for a rescale and is not done: only a daemon can go on with it, or Slurm's time
            // limit.
            Some(_) => return Ok(()),
            None => bail!("the daemon has not answered for {} s", self.config.patience.as_secs()),
        }
        tracing::warn!(code = self.exit, "the daemon stays away; leaving");
        Ok(())
    }
}

/// Text that no other start of a command on this node has in its environment.
fn mark(dir: &std::path::Path, generation: u64) -> String {
    format!("{}.{generation}.{}", dir.display(), std::process::id())
}

async fn end_of(running: &mut Option<(u64, Running)>) -> Ended {
    match running {
        Some((_, running)) => running.ended().await,
        None => pending().await,
    }
}

/// Brings assignments, each time the daemon answers.
async fn poll(link: Arc<Link>, assignments: mpsc::Sender<Assignment>) {
    let (mut backoff, mut seen) = (Backoff::new(), (0, 0));
    loop {
        let asked_at = Instant::now();
        match link.poll(|epoch| if epoch == seen.0 { seen.1 } else { 0 }).await {
            Ok((epoch, assignment)) => {
                let fresh = (epoch, assignment.version) != seen;
                seen = (epoch, assignment.version);
                if assignments.send(assignment).await.is_err() {
                    return;
                }
                if fresh || asked_at.elapsed() > HASTY_ANSWER {
                    backoff.reset();
                    continue;
                }
            }
            Err(error) => log_refusal(&error, "asking for orders"),
        }
        sleep(backoff.next()).await;
    }
}

/// Delivers events.
async fn report(link: Arc<Link>, outbox: Arc<Outbox>) {
    let mut backoff = Backoff::new();
    loop {
        let events = outbox.take().await;
        match link.report(events).await {
            Ok(()) => {
                outbox.delivered();
                backoff.reset();
                continue;
            }
            Err(error @ LinkError::Refused { .. }) => {
                // The same events would be refused for ever, and keep back all that follow.
                log_refusal(&error, "reporting; these events are lost");
                outbox.delivered();
            }
            Err(_) => outbox.failed(),
        }
        tokio::select! {
            () = sleep(backoff.next()) => {}
            () = outbox.urgent() => {}
        }
    }
}

/// That the daemon is away was logged by the link, once.
fn log_refusal(error: &LinkError, doing: &str) {
    if let LinkError::Refused { .. } = error {
        tracing::warn!(%error, doing, "the daemon refuses us");
    }
}

/// Listens for the signals that Slurm and users send to a step.
pub fn signals() -> io::Result<mpsc::Receiver<Told>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let kinds = [
        (libc::SIGTERM, Told::Leave),
        (libc::SIGINT, Told::Leave),
        (libc::SIGUSR1, Told::User(libc::SIGUSR1)),
        (libc::SIGUSR2, Told::User(libc::SIGUSR2)),
        (libc::SIGHUP, Told::User(libc::SIGHUP)),
    ];
    for (number, told) in kinds {
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(
            async move { while stream.recv().await.is_some() && sender.send(told).await.is_ok() {} },
        );
    }
    Ok(receiver)
}
