//! What every part of the daemon needs: services, and the state behind its lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, mpsc};
use tracing::Level;

use super::fleet::{Batch, Note, Output};
use super::health::Problem;
use super::leadership::Leadership;
use super::lines::Lines;
use super::metrics::Metrics;
use super::state::{Errands, State};
use crate::api::AgentReport;
use crate::config::Config;
use crate::generation::Arrival;
use crate::model::{AgentEvent, JobId, Secret, UnixTime};
use crate::slurm::SlurmApi;
use crate::slurm::munge::Identity;
use crate::store::{LeadStanding, Store, StoreError};

/// Batches of effects that may wait. One job has at most one batch a turn, so this is more than any site's
/// malleable jobs.
const QUEUE: usize = 4096;

/// Setting of the store that keeps the administrator's last order.
pub const CONTROL_SETTING: &str = "control";

/// Where turns send their effects.
type Sender = mpsc::Sender<Batch>;

/// What the daemon speaks to.
pub struct Services {
    /// Slurm.
    pub slurm: Arc<dyn SlurmApi>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who speaks?
    pub identity: Arc<dyn Identity>,
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
    /// The agents' lines.
    pub lines: Lines,
    /// To the executor.
    effects: Sender,
    /// Whether anything may be done.
    pub leadership: Leadership,
    /// Wakes the round loop before its interval is over.
    pub wake: Notify,
    /// Held while changes are being stored; since when the store fails.
    pub saving: tokio::sync::Mutex<Option<Instant>>,
    /// Held while a plan is computed for somebody who asks: each takes a processor.
    pub planning: tokio::sync::Mutex<()>,
    /// Prometheus.
    pub metrics: Metrics,
    /// All values.
    values: Mutex<State>,
}

impl Context {
    /// Of a daemon that has just been given the lead, with the queue of its effects.
    pub fn new(
        services: Services,
        state: State,
        standing: LeadStanding,
        now: UnixTime,
    ) -> (Context, mpsc::Receiver<Batch>) {
        let (effects, queue) = mpsc::channel(QUEUE);
        let Services { slurm, store, identity } = services;
        let context = Context {
            config: state.config.clone(),
            slurm,
            store,
            identity,
            lines: Lines::new(now),
            effects,
            leadership: Leadership::new(standing),
            wake: Notify::new(),
            saving: tokio::sync::Mutex::default(),
            planning: tokio::sync::Mutex::default(),
            metrics: Metrics::default(),
            values: Mutex::new(state),
        };
        (context, queue)
    }

    /// Locks the state. Never held over an await. A thread that panicked while holding it leaves the values
    /// whole: every change is made by replacing values.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub fn run_errands(&self, errands: Errands) {
        errands.notes.iter().for_each(log);
        for (words, permit) in errands.words {
            self.lines.tell(words, permit);
        }
        for batch in errands.batches {
            let job = batch.job;
            if self.effects.try_send(batch).is_err() {
                // The machine asks again after a while: a full queue loses nothing.
                tracing::warn!(%job, "the action queue is full");
            }
        }
        if errands.urgent {
            self.wake.notify_one();
        }
    }

    /// Takes in an agent whose identity was proved, and opens a line to it. Says no when it has no place in
    /// the job.
    pub fn admit(&self, lead: JobId, arrival: Arrival, secret: &Secret, now: UnixTime) -> bool {
        let agent = (arrival.slurm_job, arrival.node.clone());
        let mut state = self.state();
        let Some(out) = state.fleet.arrive(lead, arrival, now) else { return false };
        state.hear(None);
        self.lines.connect(agent, secret);
        let errands = state.absorb(out, now);
        self.run_errands(errands);
        true
    }

    /// Takes in what an agent reports. Says no when the secret is not its own: a newer agent may have taken
    /// its place.
    pub fn hear(&self, report: &AgentReport, secret: &Secret, now: UnixTime) -> bool {
        let mut state = self.state();
        if !self.lines.knows(&(report.job, report.node.clone()), secret) {
            return false;
        }
        state.fleet.seen(report.job, &report.node, now);
        let Some(out) = state.fleet.report(report, now) else { return true };
        report.events.iter().for_each(|event| state.hear(Some(event.kind())));
        let mut errands = state.absorb(out, now);
        errands.urgent |= report.events.contains(&AgentEvent::Leaving);
        self.run_errands(errands);
        true
    }

    /// Notes that the store fails, and says so once.
    pub fn store_failed(&self, e: &StoreError) {
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
