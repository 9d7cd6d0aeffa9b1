//! A worker: does what the daemon says with the command on its node, and tells the daemon what happened.

mod absence;
mod alive;
mod leaving;
mod secrets;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use infill_api::{Assignment, Role};
use infill_model::{AgentEvent, CommandExit, GenerationMember, JobId, NodeName, WingOrder, WorkerStartup};

use super::alone::ALONE;
use super::args::CommandArgs;
use super::command::{Ended, Launch, Running};
use super::control;
use super::duty::{Act, Present, decide};
use super::environment::{Surroundings, kept_cpus_per_task, threads};
use super::home::Home;
use super::kills::Kills;
use super::limit::Limit;
use super::link::{Link, free_port, is_taken};
use super::news::News;
use super::outbox::Outbox;
use super::output::Output;
use super::own;
use super::programs::Programs;
use super::progress::{self, Message, Tally};
use super::signals::Told;
use super::talk;
use super::wings::Submitter;

use absence::Absence;
use alive::Alive;
use leaving::{Leaving, Reason};

/// How often progress is reported. Rates are averaged over minutes, and people look at steps.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Slurm may signal the command and us in either order: a command that ends by itself may have been told to.
const SIGNAL_SETTLE: Duration = Duration::from_millis(50);

/// News that wait for the worker: its loops bring more only once these were heard.
const QUEUE: usize = 4;

/// How an end is told of a command that was never started.
const NEVER_RAN: CommandExit = CommandExit { code: 0, asked: true, killed: false };

/// What a worker has to know.
pub(crate) struct WorkerConfig {
    /// The malleable job.
    pub lead: JobId,
    /// Lead or wing.
    pub role: Role,
    /// Time between the rescale signal and SIGKILL.
    pub grace: Duration,
    /// For how long the daemon may be away before a worker with nothing to do does something about it.
    pub patience: Duration,
    /// Of a lead that may train alone then: how many failures of its command are retried.
    pub alone: Option<u32>,
    /// Of a lead that is a job of the main queue: its nodes, ours first. Else none.
    pub own: Vec<NodeName>,
    /// How many CPUs we have, if that is a part of the node's.
    pub cpus: Option<u32>,
    /// What was left of the Slurm job when we began, if it has a limit.
    pub left: Option<Duration>,
    /// Our Slurm job.
    pub job: JobId,
    /// Its partition.
    pub partition: Option<String>,
    /// Our node.
    pub node: NodeName,
    /// Slurm's programs.
    pub programs: Programs,
    /// Where the command's output goes.
    pub output: Output,
    /// Private directory on this node.
    pub home: Home,
    /// Flags and command.
    pub common: CommandArgs,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// The exit code for the process.
    pub code: i32,
    /// Whether it left because its node is wanted, or the job's time is up.
    pub left: bool,
}

/// Worker of a lead or wing.
pub(crate) struct Worker {
    config: WorkerConfig,
    link: Arc<Link>,
    outbox: Arc<Outbox>,
    tally: Tally,
    orders: Option<watch::Sender<Vec<WingOrder>>>,
    tasks: JoinSet<()>,
    /// To ourselves, from our own tasks.
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    running: Option<(u64, Running)>,
    ended: Option<(u64, AgentEvent, CommandExit)>,
    assignment: Option<Assignment>,
    opening: Openings,
    absence: Absence,
    /// What is special of a command that stays alive over changes.
    alive: Alive,
    leaving: Option<Leaving>,
    exit: Option<i32>,
}

/// Times of the change from one generation to the next.
struct Openings {
    /// Of the last command that was stopped here: until it had saved, if it said so, and until it had exited.
    stopped: Option<(Option<f64>, f64)>,
    /// Since then, or since the agent's start, nothing runs.
    idle_since: Instant,
    /// Of the command that runs, until its first progress was told.
    next: Option<WorkerStartup>,
}

impl Worker {
    /// Opens the progress socket and starts the loops that speak to the daemon. `submitter` is the lead's.
    pub fn new(config: WorkerConfig, link: Link, submitter: Option<Submitter>) -> anyhow::Result<Worker> {
        let listener =
            progress::open_socket(&config.home.socket()).context("cannot open the progress socket")?;
        let control =
            control::open_socket(&config.home.control()).context("cannot open the control socket")?;
        let (tally, outbox) = (Tally::new(), Arc::new(Outbox::default()));
        let mut tasks = JoinSet::new();
        tasks.spawn(progress::listen(listener, tally.clone()));
        let orders = submitter.map(|submitter| {
            let (sender, receiver) = watch::channel(Vec::new());
            let outbox = outbox.clone();
            tasks.spawn(submitter.serve(receiver, move |event| outbox.push(event)));
            sender
        });
        let now = Instant::now();
        let absence = Absence::new(config.patience, Limit::new(config.left, now));
        let news = mpsc::channel(QUEUE);
        tasks.spawn(control::listen(control, news.0.clone()));
        Ok(Worker {
            config,
            link: Arc::new(link),
            outbox,
            tally,
            orders,
            tasks,
            news,
            running: None,
            ended: None,
            assignment: None,
            opening: Openings { stopped: None, idle_since: now, next: None },
            absence,
            alive: Alive::default(),
            leaving: None,
            exit: None,
        })
    }

    /// Serves until there is nothing left to do.
    pub async fn serve(mut self, mut signals: mpsc::Receiver<Told>) -> anyhow::Result<Served> {
        self.tasks.spawn(talk::poll(self.link.clone(), self.news.0.clone()));
        self.tasks.spawn(talk::report(self.link.clone(), self.outbox.clone()));
        // Slurm tells each step once, and may have done so before ours was there.
        self.ask_whether_preempted();
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let code = loop {
            tokio::select! {
                biased;
                Some(told) = signals.recv() => self.signalled(told),
                ended = end_of(&mut self.running) => {
                    // Nothing is taken out of the queue that is not heeded.
                    if !ended.exit.asked
                        && let Ok(Some(told)) = timeout(SIGNAL_SETTLE, signals.recv()).await
                    {
                        self.signalled(told);
                    }
                    self.stopped(ended);
                }
                Some(news) = self.news.1.recv() => self.hear(news),
                () = self.alive.overdue() => self.end_overdue(),
                _ = ticks.tick() => self.tick(),
            }
            if let Some(code) = self.exit {
                break code;
            }
        };
        let left = self.is_leaving();
        let is_away = self.link.away() > Duration::ZERO;
        let patience = self.outbox.patience(self.leaving.map(|l| l.since), is_away, Instant::now());
        if timeout(patience, self.outbox.emptied()).await.is_err() {
            tracing::warn!("left before the daemon had all reports");
        }
        self.tasks.shutdown().await;
        Ok(Served { code, left })
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Assigned(assignment) => self.assigned(assignment),
            News::Preempted if !self.leaves(Reason::Told) => self.signalled(Told::Leave),
            News::Preempted => {}
            News::Looked(left) => self.absence.limit.answered(left, Instant::now()),
            News::InTheWay => self.make_way(),
            News::Heard(heard) => self.heard(heard),
            News::Sealed(made) => self.sealed(made),
            News::Opened(sealed, secret) => self.opened(sealed, secret),
            News::MayTrainAlone(solitude) => self.may_train_alone(solitude),
            News::DaemonIsBack => {
                tracing::info!("the daemon is back: saving, to go on with it");
                self.stop(self.config.grace);
            }
        }
    }

    fn is_lead(&self) -> bool {
        self.config.role == Role::Lead
    }

    fn stop(&self, grace: Duration) {
        if let Some((_, running)) = &self.running {
            running.stop(grace);
        }
    }

    /// The command has ended.
    fn stopped(&mut self, ended: Ended) {
        let Some((generation, _)) = self.running.take() else { return };
        self.tell_progress(generation);
        let let_go = self.is_leaving() || self.alive.was_let_go();
        let exit = CommandExit { asked: ended.exit.asked || let_go, ..ended.exit };
        let took = Duration::try_from_secs_f64(ended.stop_secs).unwrap_or_default();
        if exit.asked && !exit.killed {
            self.absence.limit.stopped(took);
        }
        tracing::info!(
            generation,
            code = exit.code,
            asked = exit.asked,
            killed = exit.killed,
            stop_secs = ended.stop_secs,
            "the command has ended"
        );
        if generation == ALONE {
            self.stopped_alone(exit);
            return;
        }
        if !let_go && ended.failed_unasked && self.tally.ran_out_of_memory() {
            self.outbox.push(AgentEvent::OutOfMemory { generation });
        }
        // What leaves the others says nothing of what it takes to save.
        let stop_secs = if self.alive.was_let_go() { 0.0 } else { ended.stop_secs };
        let event = AgentEvent::Stopped { generation, exit, stop_secs, port: free_port() };
        let asked_at = Instant::now() - took;
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
        if let Some(orders) = self.orders.as_ref().filter(|_| !self.is_leaving()) {
            orders.send_replace(assignment.wings.clone());
        }
        let told = self.assignment.as_ref().and_then(|a| a.notice.as_ref());
        if let Some(notice) = assignment.notice.as_ref().filter(|n| Some(*n) != told) {
            tracing::warn!("{notice}");
        }
        self.assignment = Some(assignment);
        self.act_leaving();
        self.act(true);
    }

    /// Does what the assignment asks for. `again`: an end that was told before is told again.
    fn act(&mut self, again: bool) {
        let Some(assignment) = &self.assignment else { return };
        if self.is_leaving() {
            return;
        }
        let here = Present {
            running: self.running.as_ref().map(|(generation, _)| *generation),
            ended: self.ended.as_ref().map(|(generation, ..)| *generation),
            way: self.way(),
            is_lead: self.is_lead(),
        };
        match decide(&assignment.directive, here) {
            Act::Nothing if again => self.tell_ready(),
            Act::Nothing => {}
            Act::Start(member) => self.start(&member, false),
            Act::Warm(member) => self.start(&member, true),
            Act::Meet(member) => self.meet(&member, again),
            Act::Part(generation, urgent) => self.part(generation, urgent),
            Act::Stop if self.alive.is_saving() => self.rescue(),
            Act::Stop => self.stop(self.grace()),
            Act::Rescue => self.rescue(),
            Act::Tell(generation) if again || here.ended != Some(generation) => self.tell_end(generation),
            Act::Tell(_) => {}
            Act::Exit(code) => self.exit = Some(code),
        }
    }

    fn tell_end(&self, generation: u64) {
        let event = match &self.ended {
            Some((last, event, _)) if *last == generation => event.clone(),
            // It ended by itself, before it could be told of this generation.
            Some((last, _, exit))
                if *last < generation && !exit.asked && self.alive.generation().is_some() =>
            {
                AgentEvent::Stopped { generation, exit: *exit, stop_secs: 0.0, port: free_port() }
            }
            _ => AgentEvent::Stopped { generation, exit: NEVER_RAN, stop_secs: 0.0, port: free_port() },
        };
        self.outbox.push(event);
    }

    /// Starts the command as this member, or as a newcomer that may become it. Runs on the thread of `serve`,
    /// which lives as long as the process.
    fn start(&mut self, member: &GenerationMember, newcomer: bool) {
        if member.rank == 0 && is_taken(member.master_port) {
            tracing::warn!(port = member.master_port, "the rendezvous port is taken: asking for another");
            // To the daemon this generation was stopped: the next one has a fresh port, and nothing has
            // failed.
            let (generation, exit) = (member.generation, NEVER_RAN);
            let event = AgentEvent::Stopped { generation, exit, stop_secs: 0.0, port: free_port() };
            self.ended = Some((generation, event, exit));
            self.tell_end(generation);
            return;
        }
        let common = &self.config.common;
        let (socket, control) = (self.config.home.socket(), self.config.home.control());
        let around = Surroundings {
            control: Some(&control),
            cpus_per_task: kept_cpus_per_task(),
            threads: threads(self.config.cpus),
            elastic_signals: std::env::var("TORCHELASTIC_SIGNALS_TO_HANDLE").ok(),
            ..Surroundings::of(common, self.config.lead, &socket)
        };
        let ranks = (0..common.started_ranks())
            .map(|local| (around.rank(member, local), around.variables(member, local)))
            .collect();
        tracing::info!(
            generation = member.generation,
            rank = member.rank,
            world = member.world,
            "starting the command"
        );
        self.tally.restart();
        self.alive = Alive::new(newcomer);
        let (saved_secs, stop_secs) = self.opening.stopped.take().unzip();
        let idle_secs = self.opening.idle_since.elapsed().as_secs_f64();
        self.opening.next = Some(WorkerStartup { saved_secs: saved_secs.flatten(), stop_secs, idle_secs });
        let running = Running::start(Launch {
            words: common.words_of(&member.exec_plan),
            ranks,
            remote: own::remote(&self.config.own, member, common),
            mark: mark(self.config.home.path(), member.generation),
            signal: common.signal.0,
            output: self.config.output.clone(),
            regex: common.progress_regex.clone(),
            tally: self.tally.clone(),
            kills: Kills::here(self.config.job),
        });
        if member.generation != ALONE && !newcomer {
            self.link.set_running(Some(member.generation));
            self.outbox.push(AgentEvent::Started { generation: member.generation });
        }
        self.running = Some((member.generation, running));
    }

    fn tell_progress(&mut self, generation: u64) {
        let generation = self.alive.generation().unwrap_or(generation);
        if let Some((sum, secs)) = self.tally.take().filter(|_| generation != ALONE) {
            let Message { samples, step, loss, total, .. } = sum;
            let opening = self.opening.next.take();
            self.outbox.push(AgentEvent::Progress { generation, samples, secs, step, loss, total, opening });
        }
    }

    fn tick(&mut self) {
        match &self.running {
            Some((generation, _)) => {
                let generation = *generation;
                self.tell_progress(generation);
            }
            None if !self.is_leaving() => {
                self.look_who_waits();
                self.bear_absence();
            }
            None => {}
        }
        if !self.is_leaving() && self.exit.is_none() {
            self.mind_limit();
        }
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
