//! What every part of the daemon needs: services, and the state behind its lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

use super::doors::Doors;
use super::health::Problem;
use super::lanes::{Lanes, Queues};
use super::leadership::Leadership;
use super::lines::{AgentPass, Lines, NoLine};
use super::metrics::Metrics;
use super::names::Names;
use super::notices::Notices;
use super::recheck::Recheck;
use super::state::{Errands, State};
use super::told::Told;
use super::waking::{Call, Waking};
use infill_api::AgentReport;
use infill_lifecycle::{
    Arrival,
    fleet::{Note, Output},
};
use infill_model::{AgentEvent, JobId, UnixTime, clock::now, config::Config};
use infill_slurm::{SlurmApi, identity::Identity};
use infill_store::{LeadStanding, Store, StoreError};

/// Setting of the store that keeps the administrator's last order.
pub(crate) const CONTROL_SETTING: &str = "control";

/// The store's setting with how long collectives take on the site's nodes.
pub(crate) const COLLECTIVES_SETTING: &str = "collectives";

/// What the daemon speaks to.
pub struct Services {
    /// Slurm.
    pub slurm: Arc<dyn SlurmApi>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who speaks?
    pub identity: Arc<dyn Identity>,
}

/// Whether an agent has a place in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It has.
    Taken,
    /// It has none: it must leave.
    Refused,
    /// The daemon knows of none, but has not looked at Slurm yet either: its records may be lost.
    Early,
}

/// Who writes to the store: of each kind one at a time, and none waits for another kind.
#[derive(Debug, Default)]
pub struct Saving {
    /// Held while changes of jobs are being stored, which new generations wait for; since when the store
    /// fails.
    pub jobs: tokio::sync::Mutex<Option<Instant>>,
    /// Held while history and what was learned are written, replaced or forgotten: whoever does one of these
    /// meanwhile would undo another.
    pub learned: tokio::sync::Mutex<()>,
    /// Held while the browsers' sessions are kept for the next daemon.
    pub sessions: tokio::sync::Mutex<()>,
}

/// See the module's text.
pub struct Context {
    /// The configuration.
    pub config: Arc<Config>,
    /// Slurm.
    pub slurm: Arc<dyn SlurmApi>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who speaks?
    pub identity: Arc<dyn Identity>,
    /// Who may come in.
    pub doors: Doors,
    /// The agents' lines.
    pub lines: Lines,
    /// The ways of effects to the executor.
    pub lanes: Lanes,
    /// Whether anything may be done.
    pub leadership: Leadership,
    /// Says when the next round begins.
    pub wake: Waking,
    /// Whether what the last round has seen still holds.
    pub recheck: Recheck,
    /// Who writes to the store.
    pub saving: Saving,
    /// What readers are told.
    pub told: Told,
    /// Who is told of what administrators should know.
    pub notices: Notices,
    /// Prometheus.
    pub metrics: Metrics,
    /// All values.
    values: Mutex<State>,
}

impl Context {
    /// Of a daemon that has just been given the lead, with the queues of its effects.
    pub fn new(services: Services, state: State, standing: LeadStanding, now: UnixTime) -> (Context, Queues) {
        let (lanes, queues) = Lanes::new();
        let interval = Duration::from_secs_f64(state.config.daemon.poll_interval_secs);
        let Services { slurm, store, identity } = services;
        let context = Context {
            config: state.config.clone(),
            slurm,
            store,
            identity,
            doors: Doors::new(Names::new(&state.config)),
            lines: Lines::new(now),
            lanes,
            leadership: Leadership::new(standing),
            wake: Waking::new(interval),
            recheck: Recheck::default(),
            saving: Saving::default(),
            told: Told::default(),
            notices: Notices::new(&state.config.notify),
            metrics: Metrics::default(),
            values: Mutex::new(state),
        };
        (context, queues)
    }

    /// Locks the state. Never held over an await. A thread that panicked while holding it leaves the values
    /// whole: every change is made by replacing values.
    pub fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let missed = state.attention.look(Instant::now(), now());
        if missed != 0.0 {
            tracing::warn!(
                "heard nothing for {missed:.0} s (stopped, or the clock was set): nobody is blamed for it"
            );
            state.fleet.forgive(missed);
        }
        state
    }

    /// Whether metrics tell accounts: the site wants it, and keeps nothing private that would tell of users.
    pub(crate) fn tells_accounts(&self) -> bool {
        let private = self.doors.private();
        self.config.http.account_metrics && !(private.hides_spending() || private.jobs)
    }

    /// Changes the fleet and runs what follows from it, in one go: nobody is told of an older state after a
    /// newer one.
    pub fn change(&self, now: UnixTime, change: impl FnOnce(&mut State) -> Output) {
        let mut state = self.state();
        let out = change(&mut state);
        let errands = state.absorb(out, now);
        self.run_errands(errands);
    }

    /// Runs errands. Called with the state's lock held where others may have errands too, so that they keep
    /// their order.
    pub(crate) fn run_errands(&self, errands: Errands) {
        errands.notes.iter().for_each(log);
        for (words, permit) in errands.words {
            self.lines.tell(words, permit);
        }
        for batch in errands.batches {
            self.lanes.send(batch);
        }
    }

    /// Whether a job has come since Slurm was looked at: nothing is taken then, and it is looked at anew.
    pub(crate) async fn is_overtaken(&self) -> bool {
        let overtaken = self.recheck.is_overtaken(self.slurm.as_ref()).await;
        if overtaken {
            self.wake.call(Call::Ordinary, None);
        }
        overtaken
    }

    /// Takes in an agent whose identity was proved, and opens a line to it.
    pub fn admit(&self, lead: JobId, arrival: Arrival, pass: AgentPass, now: UnixTime) -> Admission {
        let agent = (arrival.slurm_job, arrival.node.clone());
        let mut state = self.state();
        let Some(out) = state.fleet.arrive(lead, arrival, now) else {
            return if state.snapshot.is_none() { Admission::Early } else { Admission::Refused };
        };
        state.hear(None);
        self.lines.connect(agent, pass);
        let errands = state.absorb(out, now);
        self.run_errands(errands);
        Admission::Taken
    }

    /// Takes in what an agent reports.
    ///
    /// # Errors
    /// When the pass is not its own, or came before: a newer agent may have taken its place. Or when it
    /// reports in a loop.
    pub fn hear(&self, report: &AgentReport, pass: &AgentPass, now: UnixTime) -> Result<(), NoLine> {
        let mut state = self.state();
        self.lines.hears(&(report.job, report.node.clone()), pass, Instant::now())?;
        state.fleet.seen(report.job, &report.node, now);
        let Some(out) = state.fleet.report(report, now) else { return Ok(()) };
        report.events.iter().for_each(|event| state.hear(Some(event.kind())));
        let errands = state.absorb(out, now);
        let call = match report.events.contains(&AgentEvent::Leaving) {
            true => Some(Call::Urgent),
            false => errands.urgent.then_some(Call::Ordinary),
        };
        let user = state.fleet.owner(report.job);
        self.run_errands(errands);
        if let Some(call) = call {
            self.wake.call(call, user.map(|u| u.0));
        }
        Ok(())
    }

    /// Notes that the store fails, and says so once.
    pub(crate) fn store_failed(&self, e: &StoreError) {
        if matches!(e, StoreError::Deposed { .. }) {
            self.leadership.lose();
        }
        self.metrics.store.up.set(0);
        if self.state().health.raise(Problem::Store(e.to_string())) {
            tracing::error!("the store fails: {e}; nothing is started until it works again");
        }
    }
}

fn log(note: &Note) {
    let job = note.job.map(tracing::field::display);
    match note.level {
        Level::ERROR => tracing::error!(job, "{}", note.text),
        Level::WARN => tracing::warn!(job, "{}", note.text),
        Level::INFO => tracing::info!(job, "{}", note.text),
        _ => tracing::debug!(job, "{}", note.text),
    }
}
