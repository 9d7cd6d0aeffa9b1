//! What every part of the daemon needs: services, and the state behind its lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

use super::access_control::AccessControl;
use super::agent_channels::{AgentChannels, AgentPass, ChannelError};
use super::daemon_names::DaemonNames;
use super::effect_queue::{EffectQueues, EffectReceivers};
use super::health::HealthProblem;
use super::leadership::LeadershipState;
use super::metrics::DaemonMetrics;
use super::new_job_check::NewJobCheck;
use super::notices::NoticeQueue;
use super::response_cache::ResponseCache;
use super::round_trigger::{RoundTrigger, RoundUrgency};
use super::state::{DaemonState, PendingActions};
use infill_api::AgentReport;
use infill_lifecycle::{
    AuthenticatedHello,
    fleet::{FleetOutcome, LogNote},
};
use infill_model::{AgentEvent, JobId, UnixTime, clock::now, config::Config};
use infill_slurm::{SlurmApi, identity::IdentityVerifier};
use infill_store::{LeadStanding, Store, StoreError};

/// Setting of the store that keeps the administrator's last order.
pub(crate) const CONTROL_SETTING: &str = "control";

/// The store's setting with how long collectives take on the site's nodes.
pub(crate) const COLLECTIVES_SETTING: &str = "collectives";

/// What the daemon speaks to.
pub struct DaemonServices {
    /// Slurm.
    pub slurm: Arc<dyn SlurmApi>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who speaks?
    pub identity: Arc<dyn IdentityVerifier>,
}

/// Whether an agent has a place in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAdmission {
    /// It has.
    Taken,
    /// It has none: it must leave.
    Refused,
    /// The daemon knows of none, but has not looked at Slurm yet either: its records may be lost.
    Early,
}

/// Who writes to the store: of each kind one at a time, and none waits for another kind.
#[derive(Debug, Default)]
pub struct SaveLocks {
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
pub struct DaemonContext {
    /// The configuration.
    pub config: Arc<Config>,
    /// Slurm.
    pub slurm: Arc<dyn SlurmApi>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who speaks?
    pub identity: Arc<dyn IdentityVerifier>,
    /// Who may come in.
    pub doors: AccessControl,
    /// The agents' lines.
    pub lines: AgentChannels,
    /// The ways of effects to the executor.
    pub lanes: EffectQueues,
    /// Whether anything may be done.
    pub leadership: LeadershipState,
    /// Says when the next round begins.
    pub wake: RoundTrigger,
    /// Whether what the last round has seen still holds.
    pub recheck: NewJobCheck,
    /// Who writes to the store.
    pub saving: SaveLocks,
    /// What readers are told.
    pub told: ResponseCache,
    /// Who is told of what administrators should know.
    pub notices: NoticeQueue,
    /// Prometheus.
    pub metrics: DaemonMetrics,
    /// All values.
    values: Mutex<DaemonState>,
}

impl DaemonContext {
    /// Of a daemon that has just been given the lead, with the queues of its effects.
    pub fn new(
        services: DaemonServices,
        state: DaemonState,
        standing: LeadStanding,
        now: UnixTime,
    ) -> (DaemonContext, EffectReceivers) {
        let (lanes, queues) = EffectQueues::new();
        let interval = Duration::from_secs_f64(state.config.daemon.poll_interval_secs);
        let DaemonServices { slurm, store, identity } = services;
        let context = DaemonContext {
            config: state.config.clone(),
            slurm,
            store,
            identity,
            doors: AccessControl::new(DaemonNames::new(&state.config)),
            lines: AgentChannels::new(now),
            lanes,
            leadership: LeadershipState::new(standing),
            wake: RoundTrigger::new(interval),
            recheck: NewJobCheck::default(),
            saving: SaveLocks::default(),
            told: ResponseCache::default(),
            notices: NoticeQueue::new(&state.config.notify),
            metrics: DaemonMetrics::default(),
            values: Mutex::new(state),
        };
        (context, queues)
    }

    /// Locks the state. Never held over an await. A thread that panicked while holding it leaves the values
    /// whole: every change is made by replacing values.
    pub fn lock_state(&self) -> MutexGuard<'_, DaemonState> {
        let mut state = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let missed = state.attention.detect_jump(Instant::now(), now());
        if missed != 0.0 {
            tracing::warn!(
                "heard nothing for {missed:.0} s (stopped, or the clock was set): nobody is blamed for it"
            );
            state.fleet.shift_times(missed);
        }
        state
    }

    /// Whether metrics tell accounts: the site wants it, and keeps nothing private that would tell of users.
    pub(crate) fn shows_accounts(&self) -> bool {
        let private = self.doors.private_data();
        self.config.http.account_metrics && !(private.hides_spending() || private.jobs)
    }

    /// Changes the fleet and runs what follows from it, in one go: nobody is told of an older state after a
    /// newer one.
    pub fn change_fleet(&self, now: UnixTime, change: impl FnOnce(&mut DaemonState) -> FleetOutcome) {
        let mut state = self.lock_state();
        let out = change(&mut state);
        let errands = state.apply_output(out, now);
        self.run_actions(errands);
    }

    /// Runs errands. Called with the state's lock held where others may have errands too, so that they keep
    /// their order.
    pub(crate) fn run_actions(&self, errands: PendingActions) {
        errands.notes.iter().for_each(log_note);
        for (words, permit) in errands.words {
            self.lines.send_orders(words, permit);
        }
        for batch in errands.batches {
            self.lanes.send_batch(batch);
        }
    }

    /// Whether a job has come since Slurm was looked at: nothing is taken then, and it is looked at anew.
    pub(crate) async fn has_new_jobs(&self) -> bool {
        let overtaken = self.recheck.has_new_jobs(self.slurm.as_ref()).await;
        if overtaken {
            self.wake.request_round(RoundUrgency::Ordinary, None);
        }
        overtaken
    }

    /// Takes in an agent whose identity was proved, and opens a line to it.
    pub fn admit_agent(
        &self,
        lead: JobId,
        arrival: AuthenticatedHello,
        pass: AgentPass,
        now: UnixTime,
    ) -> AgentAdmission {
        let agent = (arrival.slurm_job, arrival.node.clone());
        let mut state = self.lock_state();
        let Some(out) = state.fleet.handle_hello(lead, arrival, now) else {
            return if state.snapshot.is_none() { AgentAdmission::Early } else { AgentAdmission::Refused };
        };
        state.count_event(None);
        self.lines.open_channel(agent, pass);
        let errands = state.apply_output(out, now);
        self.run_actions(errands);
        AgentAdmission::Taken
    }

    /// Takes in what an agent reports.
    ///
    /// # Errors
    /// When the pass is not its own, or came before: a newer agent may have taken its place. Or when it
    /// reports in a loop.
    pub fn handle_report(
        &self,
        report: &AgentReport,
        pass: &AgentPass,
        now: UnixTime,
    ) -> Result<(), ChannelError> {
        let mut state = self.lock_state();
        self.lines.check_report(&(report.job, report.node.clone()), pass, Instant::now())?;
        state.fleet.record_heartbeat(report.job, &report.node, now);
        let Some(out) = state.fleet.handle_report(report, now) else { return Ok(()) };
        report.events.iter().for_each(|event| state.count_event(Some(event.kind())));
        let errands = state.apply_output(out, now);
        let call = match report.events.contains(&AgentEvent::Leaving) {
            true => Some(RoundUrgency::Urgent),
            false => errands.urgent.then_some(RoundUrgency::Ordinary),
        };
        let user = state.fleet.agent_owner(report.job);
        self.run_actions(errands);
        if let Some(call) = call {
            self.wake.request_round(call, user.map(|u| u.0));
        }
        Ok(())
    }

    /// Notes that the store fails, and says so once.
    pub(crate) fn store_failed(&self, e: &StoreError) {
        if matches!(e, StoreError::Deposed { .. }) {
            self.leadership.mark_lost();
        }
        self.metrics.store.up.set(0);
        if self.lock_state().health.raise_problem(HealthProblem::Store(e.to_string())) {
            tracing::error!("the store fails: {e}; nothing is started until it works again");
        }
    }
}

fn log_note(note: &LogNote) {
    let job = note.job.map(tracing::field::display);
    match note.level {
        Level::ERROR => tracing::error!(job, "{}", note.text),
        Level::WARN => tracing::warn!(job, "{}", note.text),
        Level::INFO => tracing::info!(job, "{}", note.text),
        _ => tracing::debug!(job, "{}", note.text),
    }
}
