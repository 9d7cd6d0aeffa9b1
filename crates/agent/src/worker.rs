//! A worker: follows the daemon's directives with the command on its node, and reports what happens.

mod daemon_absence;
mod leaving;
mod live_command;
mod peer_secrets;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use infill_api::{AgentAssignment, AgentRole};
use infill_model::{AgentEvent, CommandExit, GenerationMember, JobId, NodeName, WingOrder, WorkerStartup};

use super::args::CommandArgs;
use super::command::{CommandOutcome, LaunchSpec, RunningCommand};
use super::control;
use super::daemon_link::DaemonLink;
use super::daemon_loops;
use super::decide::{WorkerAction, WorkerStatus, decide_action};
use super::environment::{CommandEnvironment, kept_cpus_per_task, omp_threads};
use super::extended_allocation;
use super::gpu_use::{self, ExpectedUse};
use super::node_network::{free_port, is_taken};
use super::oom_kills::OomKillCounter;
use super::outbox::EventOutbox;
use super::output::OutputForwarder;
use super::progress::{self, ProgressMessage, ProgressTally};
use super::runtime_dir::RuntimeDir;
use super::signals::AgentSignal;
use super::slurm_context::env_variable;
use super::slurm_programs::SlurmPrograms;
use super::time_limit::TimeLimit;
use super::train_alone::ALONE_GENERATION;
use super::wings::WingSubmitter;
use super::worker_input::WorkerInput;

use daemon_absence::DaemonAbsence;
use leaving::{LeaveReason, PendingLeave};
use live_command::LiveCommand;

/// How often progress is reported. Rates are measured over stretches of 5 to 30 s, but people watch the
/// steps.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How long we wait for a signal after the command has ended. Slurm may signal the command and us in either
/// order, so a command that seems to end by itself may have been asked to.
const SIGNAL_SETTLE: Duration = Duration::from_millis(50);

/// How many events may wait for the worker. Its loops send more only once these were received.
const QUEUE: usize = 4;

/// The end that is reported for a command that was never started.
const NEVER_RAN: CommandExit = CommandExit { code: 0, asked: true, killed: false };

/// The settings of a worker.
pub(crate) struct WorkerConfig {
    /// The lead's job id, which stands for the malleable job.
    pub lead: JobId,
    /// Whether the worker belongs to a lead or a wing.
    pub role: AgentRole,
    /// Time between the rescale signal and SIGKILL.
    pub grace: Duration,
    /// How long the daemon may be away before a worker with nothing to do reacts.
    pub patience: Duration,
    /// How many failures of the command are retried while a lead trains alone; `None` if it may not.
    pub alone: Option<u32>,
    /// The nodes of a lead that is a job of the main queue, ours first; else empty.
    pub own: Vec<NodeName>,
    /// How many CPUs we have, if they are only a part of the node's.
    pub cpus: Option<u32>,
    /// Time that the Slurm job had left when we started, if it has a limit.
    pub left: Option<Duration>,
    /// Id of our Slurm job.
    pub job: JobId,
    /// Partition of our Slurm job, if Slurm says it.
    pub partition: Option<String>,
    /// Slurm's name of our node.
    pub node: NodeName,
    /// Where Slurm's programs are.
    pub programs: SlurmPrograms,
    /// Where the command's output goes.
    pub output: OutputForwarder,
    /// Private directory on this node.
    pub home: RuntimeDir,
    /// The user's flags and command.
    pub common: CommandArgs,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerResult {
    /// The exit code for the process.
    pub code: i32,
    /// Whether it left because its node is wanted, or the job's time is up.
    pub left: bool,
}

/// The worker of a lead or wing, with the state of its command.
pub(crate) struct Worker {
    config: WorkerConfig,
    link: Arc<DaemonLink>,
    outbox: Arc<EventOutbox>,
    tally: ProgressTally,
    orders: Option<watch::Sender<Vec<WingOrder>>>,
    tasks: JoinSet<()>,
    /// The channel on which our own tasks send us events.
    events: (mpsc::Sender<WorkerInput>, mpsc::Receiver<WorkerInput>),
    running: Option<(u64, RunningCommand)>,
    ended: Option<(u64, AgentEvent, CommandExit)>,
    assignment: Option<AgentAssignment>,
    startup: StartupTimes,
    absence: DaemonAbsence,
    /// The state of a command that stays alive over changes.
    live: LiveCommand,
    leaving: Option<PendingLeave>,
    exit: Option<i32>,
}

/// Times of the change from one generation to the next.
struct StartupTimes {
    /// Seconds that the last command took after it was asked to stop: until it had saved, if it reported
    /// that, and until it had exited. `None` if it was not asked to stop.
    stopped: Option<(Option<f64>, f64)>,
    /// When the last command ended, or the agent started.
    idle_since: Instant,
    /// The times of the running command, until its first progress was reported.
    next: Option<WorkerStartup>,
}

impl Worker {
    /// Opens the sockets for the command, and starts the tasks that serve them. Only a lead has a `submitter`
    /// of wings.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub fn new(
        config: WorkerConfig,
        link: DaemonLink,
        submitter: Option<WingSubmitter>,
    ) -> anyhow::Result<Worker> {
        let listener = progress::open_progress_socket(&config.home.progress_socket())
            .context("cannot open the progress socket")?;
        let control = control::open_control_socket(&config.home.control_socket())
            .context("cannot open the control socket")?;
        let tally = ProgressTally::new();
        let outbox = Arc::new(EventOutbox::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(progress::receive_datagrams(listener, tally.clone()));
        let orders = submitter.map(|submitter| {
            let (sender, receiver) = watch::channel(Vec::new());
            let outbox = outbox.clone();
            tasks.spawn(submitter.serve_orders(receiver, move |event| outbox.push(event)));
            sender
        });
        let now = Instant::now();
        let absence = DaemonAbsence::new(config.patience, TimeLimit::new(config.left, now));
        let events = mpsc::channel(QUEUE);
        tasks.spawn(control::accept_processes(control, events.0.clone()));
        Ok(Worker {
            config,
            link: Arc::new(link),
            outbox,
            tally,
            orders,
            tasks,
            events,
            running: None,
            ended: None,
            assignment: None,
            startup: StartupTimes { stopped: None, idle_since: now, next: None },
            absence,
            live: LiveCommand::default(),
            leaving: None,
            exit: None,
        })
    }

    /// Starts the loops that speak to the daemon, and serves until there is nothing left to do.
    pub async fn serve_until_done(
        mut self,
        mut signals: mpsc::Receiver<AgentSignal>,
    ) -> anyhow::Result<WorkerResult> {
        self.tasks.spawn(daemon_loops::poll_loop(self.link.clone(), self.events.0.clone()));
        self.tasks.spawn(daemon_loops::report_loop(self.link.clone(), self.outbox.clone()));
        // Slurm signals each step only once, and may have done so before ours had started.
        self.check_preemption();
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let code = loop {
            tokio::select! {
                biased;
                Some(signal) = signals.recv() => self.handle_signal(signal),
                ended = wait_for_command(&mut self.running) => {
                    // A signal that is taken out of the queue is always handled.
                    if !ended.exit.asked
                        && let Ok(Some(signal)) = timeout(SIGNAL_SETTLE, signals.recv()).await
                    {
                        self.handle_signal(signal);
                    }
                    self.handle_command_end(ended);
                }
                Some(event) = self.events.1.recv() => self.handle_event(event),
                () = self.live.wait_until_overdue() => self.kill_overdue(),
                _ = ticks.tick() => self.handle_tick(),
            }
            if let Some(code) = self.exit {
                break code;
            }
        };
        let left = self.is_leaving();
        let is_away = self.link.away_duration() > Duration::ZERO;
        let patience = self.outbox.flush_patience(self.leaving.map(|l| l.since), is_away, Instant::now());
        if timeout(patience, self.outbox.wait_until_empty()).await.is_err() {
            tracing::warn!("leaving before the daemon has received all reports");
        }
        self.tasks.shutdown().await;
        Ok(WorkerResult { code, left })
    }

    fn handle_event(&mut self, event: WorkerInput) {
        match event {
            WorkerInput::Assigned(assignment) => self.handle_assignment(assignment),
            WorkerInput::Preempted if !self.leaves_for(LeaveReason::Preempted) => {
                self.handle_signal(AgentSignal::Leave)
            }
            WorkerInput::Preempted => {}
            WorkerInput::Looked(left) => self.absence.limit.record_answer(left, Instant::now()),
            WorkerInput::InTheWay => self.yield_node(),
            WorkerInput::Heard(received) => self.handle_message(received),
            WorkerInput::Sealed(made) => self.handle_sealed(made),
            WorkerInput::Opened(sealed, secret) => self.handle_opened(sealed, secret),
            WorkerInput::MayTrainAlone(guard) => self.begin_alone(guard),
            WorkerInput::DaemonIsBack => {
                tracing::info!("the daemon is back: saving, to go on with it");
                self.stop_command(self.config.grace);
            }
        }
    }

    fn is_lead(&self) -> bool {
        self.config.role == AgentRole::Lead
    }

    fn stop_command(&self, grace: Duration) {
        if let Some((_, running)) = &self.running {
            running.stop(grace);
        }
    }

    /// Reports the end of the command, and does what follows from it.
    fn handle_command_end(&mut self, ended: CommandOutcome) {
        let Some((generation, _)) = self.running.take() else { return };
        self.report_progress(generation);
        let was_released = self.is_leaving() || self.live.was_released();
        let exit = CommandExit { asked: ended.exit.asked || was_released, ..ended.exit };
        let took = Duration::try_from_secs_f64(ended.stop_secs).unwrap_or_default();
        if exit.asked && !exit.killed {
            self.absence.limit.record_stop(took);
        }
        tracing::info!(
            generation,
            code = exit.code,
            asked = exit.asked,
            killed = exit.killed,
            stop_secs = ended.stop_secs,
            "the command has ended"
        );
        if generation == ALONE_GENERATION {
            self.handle_alone_end(exit);
            return;
        }
        if !was_released && ended.failed_unasked && self.tally.ran_out_of_memory() {
            self.outbox.push(AgentEvent::OutOfMemory { generation });
        }
        // The time of a command that leaves the others is not a time for saving.
        let stop_secs = if self.live.was_released() { 0.0 } else { ended.stop_secs };
        let event = AgentEvent::Stopped { generation, exit, stop_secs, port: free_port() };
        let asked_at = Instant::now() - took;
        let saved = self.tally.saved_at().and_then(|t| t.checked_duration_since(asked_at.into_std()));
        let stopped = exit.asked.then_some((saved.map(|s| s.as_secs_f64()), ended.stop_secs));
        self.startup = StartupTimes { stopped, idle_since: Instant::now(), next: None };
        self.link.set_running_generation(None);
        self.outbox.push(event.clone());
        self.ended = Some((generation, event, exit));
        self.finish_leave();
        self.apply_directive(false);
    }

    fn handle_assignment(&mut self, assignment: AgentAssignment) {
        if let Some(orders) = self.orders.as_ref().filter(|_| !self.is_leaving()) {
            orders.send_replace(assignment.wings.clone());
        }
        let last_notice = self.assignment.as_ref().and_then(|a| a.notice.as_ref());
        if let Some(notice) = assignment.notice.as_ref().filter(|n| Some(*n) != last_notice) {
            tracing::warn!("{notice}");
        }
        self.assignment = Some(assignment);
        self.apply_leaving_directive();
        self.apply_directive(true);
    }

    /// Does what the assignment asks for. `again`: repeats reports that were sent before.
    fn apply_directive(&mut self, again: bool) {
        let Some(assignment) = &self.assignment else { return };
        if self.is_leaving() {
            return;
        }
        let status = WorkerStatus {
            running: self.running.as_ref().map(|(generation, _)| *generation),
            ended: self.ended.as_ref().map(|(generation, ..)| *generation),
            change_mode: self.change_mode(),
            is_lead: self.is_lead(),
        };
        match decide_action(&assignment.directive, status) {
            WorkerAction::Nothing if again => self.report_ready(),
            WorkerAction::Nothing => {}
            WorkerAction::Start(member) => self.start_command(&member, false),
            WorkerAction::Warm(member) => self.start_command(&member, true),
            WorkerAction::Meet(member) => self.place_processes(&member, again),
            WorkerAction::Part(generation, urgent) => self.release_command(generation, urgent),
            WorkerAction::Stop if self.live.is_saving() => self.save_and_stop(),
            WorkerAction::Stop => self.stop_command(self.stop_grace()),
            WorkerAction::Rescue => self.save_and_stop(),
            WorkerAction::ReportEnd(generation) if again || status.ended != Some(generation) => {
                self.report_end(generation)
            }
            WorkerAction::ReportEnd(_) => {}
            WorkerAction::Exit(code) => self.exit = Some(code),
        }
    }

    fn report_end(&self, generation: u64) {
        let event = match &self.ended {
            Some((last, event, _)) if *last == generation => event.clone(),
            // The command ended by itself, before it could be notified of this generation.
            Some((last, _, exit))
                if *last < generation && !exit.asked && self.live.joined_generation().is_some() =>
            {
                AgentEvent::Stopped { generation, exit: *exit, stop_secs: 0.0, port: free_port() }
            }
            _ => AgentEvent::Stopped { generation, exit: NEVER_RAN, stop_secs: 0.0, port: free_port() },
        };
        self.outbox.push(event);
    }

    /// Starts the command as this member, or as a newcomer that may become it. It must run on the thread that
    /// lives as long as the process.
    fn start_command(&mut self, member: &GenerationMember, newcomer: bool) {
        if member.rank == 0 && is_taken(member.master_port) {
            tracing::warn!(port = member.master_port, "the rendezvous port is taken: asking for another");
            // The daemon gets the report that this generation was stopped. So the next one has a fresh port,
            // and nothing counts as failed.
            let generation = member.generation;
            let exit = NEVER_RAN;
            let event = AgentEvent::Stopped { generation, exit, stop_secs: 0.0, port: free_port() };
            self.ended = Some((generation, event, exit));
            self.report_end(generation);
            return;
        }
        self.config.common.settle_ranks(member);
        self.watch_gpus(member.generation);
        let common = &self.config.common;
        let socket = self.config.home.progress_socket();
        let control = self.config.home.control_socket();
        let environment = CommandEnvironment {
            control: Some(&control),
            cpus_per_task: kept_cpus_per_task(),
            threads: omp_threads(self.config.cpus, common),
            interface: self.link.interface(),
            elastic_signals: std::env::var("TORCHELASTIC_SIGNALS_TO_HANDLE").ok(),
            ..CommandEnvironment::from_args(common, self.config.lead, &socket)
        };
        let ranks = (0..common.started_ranks())
            .map(|local| (environment.global_rank(member, local), environment.rank_variables(member, local)))
            .collect();
        if self.is_lead() {
            common.explain_launcher();
        }
        tracing::info!(
            generation = member.generation,
            rank = member.rank,
            world = member.world,
            processes = common.local_ranks(),
            "starting the command"
        );
        self.tally.restart();
        self.live = LiveCommand::new(newcomer);
        let (saved_secs, stop_secs) = self.startup.stopped.take().unzip();
        let idle_secs = self.startup.idle_since.elapsed().as_secs_f64();
        self.startup.next = Some(WorkerStartup { saved_secs: saved_secs.flatten(), stop_secs, idle_secs });
        let launch = LaunchSpec {
            words: common.command_for_plan(&member.exec_plan),
            ranks,
            remote: extended_allocation::remote_launcher(&self.config.own, member, common),
            mark: start_mark(self.config.home.path(), member.generation),
            signal: common.signal.0,
            output: self.config.output.clone(),
            regex: common.progress_regex.clone(),
            tally: self.tally.clone(),
            kills: OomKillCounter::for_job(self.config.job),
        };
        let running = RunningCommand::start(common.container.wrap_launch(launch, self.config.home.path()));
        if member.generation != ALONE_GENERATION && !newcomer {
            self.link.set_running_generation(Some(member.generation));
            self.outbox.push(AgentEvent::Started { generation: member.generation });
        }
        self.running = Some((member.generation, running));
    }

    /// Tells the daemon with the next reports what the command can use of the node's GPUs, and watches it.
    fn watch_gpus(&mut self, generation: u64) {
        let expected = ExpectedUse::new(&self.config.common, env_variable);
        self.link.set_gpu_use(expected.map(ExpectedUse::gpu_use));
        if let Some(expected) = expected {
            self.tasks.spawn(gpu_use::watch_use(expected, self.link.clone(), generation));
        }
    }

    fn report_progress(&mut self, generation: u64) {
        let generation = self.live.joined_generation().unwrap_or(generation);
        if let Some((sum, secs)) = self.tally.take().filter(|_| generation != ALONE_GENERATION) {
            let ProgressMessage { samples, step, loss, total, weight, .. } = sum;
            let startup = self.startup.next.take();
            self.outbox.push(AgentEvent::Progress {
                generation,
                samples,
                secs,
                step,
                loss,
                total,
                weight,
                startup,
            });
        }
    }

    fn handle_tick(&mut self) {
        match &self.running {
            Some((generation, _)) => {
                let generation = *generation;
                self.report_progress(generation);
            }
            None if !self.is_leaving() => {
                self.check_main_queue();
                self.handle_absence();
            }
            None => {}
        }
        if !self.is_leaving() && self.exit.is_none() {
            self.watch_limit();
        }
    }
}

/// A mark for the environment of one start of the command. No other start on this node has the same.
fn start_mark(dir: &std::path::Path, generation: u64) -> String {
    format!("{}.{generation}.{}", dir.display(), std::process::id())
}

async fn wait_for_command(running: &mut Option<(u64, RunningCommand)>) -> CommandOutcome {
    match running {
        Some((_, running)) => running.wait_for_end().await,
        None => pending().await,
    }
}
