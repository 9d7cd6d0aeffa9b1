//! What a worker does without the daemon, and at the end of its time.

use std::time::Duration;

use tokio::time::Instant;

use infill_model::{CommandExit, GenerationMember};

use super::super::alone::{self, Alone, Terms};
use super::super::limit::{self, Due, Limit, SILENCE};
use super::super::news::{News, Solitude};
use super::super::unasked;
use super::leaving::Reason;
use super::{Openings, Worker, WorkerConfig};

/// What is kept free at the end of a job, for Slurm to requeue it: so much, or half of what is left.
const REQUEUE_TIME: Duration = Duration::from_secs(5);

/// What is done about a daemon that is away.
pub(super) struct Absence {
    /// Training alone.
    pub(super) alone: Alone,
    /// Failures of the command that trained alone.
    failures: u32,
    /// The end of the job's time.
    pub(super) limit: Limit,
    /// When we began, until it was looked whether we are in the way.
    began: Option<Instant>,
    /// After how long an absence it is said (again) that we wait.
    next_word: Duration,
}

impl Absence {
    /// Of a worker that says something after so long, and whose job has this limit.
    pub(super) fn new(patience: Duration, limit: Limit) -> Absence {
        Absence { alone: Alone::No, failures: 0, limit, began: Some(Instant::now()), next_word: patience }
    }
}

impl Worker {
    pub(super) fn may_train_alone(&mut self, solitude: Option<Solitude>) {
        let solitude = solitude.filter(|_| self.running.is_none() && !self.is_leaving());
        let Some(solitude) = solitude else {
            self.absence.alone = Alone::No;
            return;
        };
        self.absence.alone = Alone::Yes(solitude);
        self.start(&self.alone_member(), false);
    }

    fn alone_member(&self) -> GenerationMember {
        let WorkerConfig { node, own, common, .. } = &self.config;
        alone::member(node, own, common.first_plan())
    }

    /// The command that trained alone has ended. The daemon never hears of it.
    pub(super) fn stopped_alone(&mut self, exit: CommandExit) {
        self.opening = Openings { stopped: None, idle_since: Instant::now(), next: None };
        self.absence.failures += u32::from(!exit.asked && exit.code != 0);
        let most = self.config.alone.unwrap_or_default();
        match exit {
            CommandExit { asked: true, .. } => {
                // The door opens.
                self.absence.alone = Alone::No;
                self.leave_if_done();
                self.act(false);
            }
            CommandExit { code: 0, .. } => self.exit = Some(0),
            CommandExit { code, .. } if self.absence.failures > most => self.exit = Some(code),
            CommandExit { .. } => self.start(&self.alone_member(), false),
        }
    }

    /// Whoever has just begun and hears nothing looks once whether a main job waits. One of the main queue is
    /// in nobody's way.
    pub(super) fn look_who_waits(&mut self) {
        let Some(began) = self.absence.began else { return };
        let partition = self.config.partition.clone().filter(|_| self.config.own.is_empty());
        let Some(partition) = partition.filter(|_| self.assignment.is_none() && self.ended.is_none()) else {
            self.absence.began = None;
            return;
        };
        if began.elapsed() < unasked::FIRST_WORD {
            return;
        }
        self.absence.began = None;
        let (link, programs) = (self.link.clone(), self.config.programs.clone());
        let tell = self.news.0.clone();
        self.tasks.spawn(async move {
            if unasked::is_in_the_way(&link, &programs, &partition).await {
                // A worker that has ended wants to know nothing more.
                tell.send(News::InTheWay).await.ok();
            }
        });
    }

    /// Gives the node back on which there is nothing to do.
    pub(super) fn make_way(&mut self) {
        if self.running.is_none() && self.assignment.is_none() && !self.is_leaving() {
            tracing::info!("no word from the daemon, and a main job waits: giving the node back");
            self.leave(Reason::ForOthers, Duration::ZERO);
        }
    }

    /// With nothing running and nobody to say what comes next, a wing gives its node back after a while; a
    /// lead waits, or trains alone.
    pub(super) fn bear_absence(&mut self) {
        let (away, patience) = (self.link.away(), self.config.patience);
        if away <= patience {
            self.absence.next_word = patience;
            return;
        }
        match &self.ended {
            _ if !self.is_lead() => self.exit = Some(0),
            Some((_, _, exit)) if !exit.asked && exit.code == 0 => self.exit = Some(0),
            // Of a failure nobody can say whether it was the command's own, or the echo of a lost worker.
            _ if self.config.alone.is_some() => {
                if matches!(self.absence.alone, Alone::No) {
                    // What is a main job's own it has whatever infill says.
                    let for_good = !self.config.own.is_empty() && self.link.is_refused();
                    match for_good {
                        true => tracing::warn!("the daemon refuses this job: it trains on what is its own"),
                        false => {
                            tracing::warn!(
                                away_secs = away.as_secs(),
                                "the daemon stays away: training alone"
                            );
                        }
                    }
                    let terms = Terms { patience, for_good };
                    self.absence.alone = Alone::Preparing;
                    let (link, tell) = (self.link.clone(), self.news.0.clone());
                    let (programs, job) = (self.config.programs.clone(), self.config.job);
                    self.tasks.spawn(alone::prepare(link, programs, job, terms, tell));
                }
                return;
            }
            _ if away > self.absence.next_word => {
                tracing::warn!(away_secs = away.as_secs(), "the daemon stays away: waiting for it");
                self.absence.next_word = away * 2;
                return;
            }
            _ => return,
        }
        tracing::warn!(code = self.exit, "the daemon stays away; leaving");
    }

    /// Sees to it that the job does not meet its time limit. In time, the daemon calls a wing back itself.
    pub(super) fn mind_limit(&mut self) {
        let (away, now) = (self.link.away(), Instant::now());
        // What a main job's limit is, its owner has said.
        if (!self.is_lead() && away < SILENCE) || !self.config.own.is_empty() {
            return;
        }
        match self.absence.limit.due(self.config.grace, away, now) {
            Due::Nothing => {}
            Due::Look => {
                self.absence.limit.ask(now);
                let look = limit::look(self.config.programs.clone(), self.config.job);
                let tell = self.news.0.clone();
                // A worker that has ended wants to know nothing more.
                self.tasks
                    .spawn(async move { tell.send(News::Looked(look.await)).await.unwrap_or_default() });
            }
            Due::Leave => {
                let left = self.absence.limit.left(now).unwrap_or_default();
                tracing::warn!(
                    left_secs = left.as_secs(),
                    "the job's time limit is near: saving and leaving"
                );
                self.leave(Reason::ForLimit, self.config.grace.min(left - REQUEUE_TIME.min(left / 2)));
            }
        }
    }
}
