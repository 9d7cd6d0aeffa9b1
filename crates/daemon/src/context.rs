//! The context that all parts of the daemon share: services, and the state behind its lock.

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

/// The store's setting that holds how long collectives take on the site's nodes.
pub(crate) const COLLECTIVES_SETTING: &str = "collectives";

/// The external services of the daemon.
pub struct DaemonServices {
    /// Reads from Slurm and changes its jobs.
    pub slurm: Arc<dyn SlurmApi>,
    /// Keeps records and history.
    pub store: Arc<dyn Store>,
    /// Verifies who sent a request.
    pub identity: Arc<dyn IdentityVerifier>,
}

/// The answer to an agent's hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAdmission {
    /// The agent belongs to the job.
    Admitted,
    /// The agent does not belong to the job. It must leave.
    Refused,
    /// The daemon does not know the job, but has not read a snapshot yet: its records may be lost.
    Early,
}

/// Locks for writes to the store. Writes of one kind run one at a time, and no kind waits for another.
#[derive(Debug, Default)]
pub struct SaveLocks {
    /// Held while changes of jobs are stored. New generations wait for that. The value is when the store last
    /// failed; `None` while it works.
    pub jobs: tokio::sync::Mutex<Option<Instant>>,
    /// Held while history and profiles are written, replaced or deleted, because two of these at the same
    /// time would undo each other.
    pub learned: tokio::sync::Mutex<()>,
    /// Held while an order to pause, drain or resume is stored.
    pub control: tokio::sync::Mutex<()>,
    /// Held while the browsers' sessions are saved for the next daemon.
    pub sessions: tokio::sync::Mutex<()>,
}

/// The services and the state of a running daemon.
pub struct DaemonContext {
    /// The configuration.
    pub config: Arc<Config>,
    /// Reads from Slurm and changes its jobs.
    pub slurm: Arc<dyn SlurmApi>,
    /// Keeps records and history.
    pub store: Arc<dyn Store>,
    /// Verifies who sent a request.
    pub identity: Arc<dyn IdentityVerifier>,
    /// Decides which requests are served.
    pub access: AccessControl,
    /// The channels to the agents.
    pub agent_channels: AgentChannels,
    /// The queues of effects to the executor.
    pub effect_queues: EffectQueues,
    /// Whether this daemon may act and answer.
    pub leadership: LeadershipState,
    /// Decides when the next round begins.
    pub round_trigger: RoundTrigger,
    /// Checks for main jobs that were submitted since the last snapshot.
    pub new_job_check: NewJobCheck,
    /// Locks for writes to the store.
    pub save_locks: SaveLocks,
    /// Cached answers to readers.
    pub response_cache: ResponseCache,
    /// Notices to administrators.
    pub notices: NoticeQueue,
    /// The Prometheus metrics.
    pub metrics: DaemonMetrics,
    state: Mutex<DaemonState>,
}

impl DaemonContext {
    /// The context of a daemon that has just taken the lead, and the queues of its effects.
    pub fn new(
        services: DaemonServices,
        state: DaemonState,
        standing: LeadStanding,
        now: UnixTime,
    ) -> (DaemonContext, EffectReceivers) {
        let (effect_queues, receivers) = EffectQueues::new();
        let interval = Duration::from_secs_f64(state.config.daemon.poll_interval_secs);
        let DaemonServices { slurm, store, identity } = services;
        let context = DaemonContext {
            config: state.config.clone(),
            slurm,
            store,
            identity,
            access: AccessControl::new(DaemonNames::new(&state.config)),
            agent_channels: AgentChannels::new(now),
            effect_queues,
            leadership: LeadershipState::new(standing),
            round_trigger: RoundTrigger::new(interval),
            new_job_check: NewJobCheck::default(),
            save_locks: SaveLocks::default(),
            response_cache: ResponseCache::default(),
            notices: NoticeQueue::new(&state.config.notify),
            metrics: DaemonMetrics::default(),
            state: Mutex::new(state),
        };
        (context, receivers)
    }

    /// Locks the state. The lock is never held over an await. Every change replaces values, so a thread that
    /// panicked leaves them consistent.
    pub fn lock_state(&self) -> MutexGuard<'_, DaemonState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let missed = state.clock_jump.detect_jump(Instant::now(), now());
        if missed != 0.0 {
            tracing::warn!(
                "heard nothing for {missed:.0} s (stopped, or the clock was set): deadlines of agents move by that"
            );
            state.fleet.shift_times(missed);
        }
        state
    }

    /// Whether the metrics may name accounts: the site wants it, and no private data would show by that.
    pub(crate) fn shows_accounts(&self) -> bool {
        let private = self.access.private_data();
        self.config.http.account_metrics && !(private.hides_spending() || private.jobs)
    }

    /// Changes the fleet and runs the resulting actions under one lock, so that agents never receive an older
    /// state after a newer one.
    pub fn change_fleet(&self, now: UnixTime, change: impl FnOnce(&mut DaemonState) -> FleetOutcome) {
        let mut state = self.lock_state();
        let outcome = change(&mut state);
        let actions = state.apply_output(outcome, now);
        self.run_actions(actions);
    }

    /// Runs actions. Callers hold the lock of the state where others may run actions too, so that all keep
    /// their order.
    pub(crate) fn run_actions(&self, actions: PendingActions) {
        actions.notes.iter().for_each(log_note);
        for (orders, scope) in actions.orders {
            self.agent_channels.send_orders(orders, scope);
        }
        for batch in actions.batches {
            self.effect_queues.send_batch(batch);
        }
    }

    /// Whether effects that take nodes must wait, because a main job has been submitted since the snapshot.
    /// Requests the next round then. See [`NewJobCheck::must_defer_growth`].
    pub(crate) async fn must_defer_growth(&self) -> bool {
        let overtaken = self.new_job_check.must_defer_growth(self.slurm.as_ref()).await;
        if overtaken {
            self.round_trigger.request_round(RoundUrgency::Ordinary, None);
        }
        overtaken
    }

    /// Admits an agent that has proved its identity, and opens a channel to it.
    pub fn admit_agent(
        &self,
        lead: JobId,
        hello: AuthenticatedHello,
        pass: AgentPass,
        now: UnixTime,
    ) -> AgentAdmission {
        let agent = (hello.slurm_job, hello.node.clone());
        let mut state = self.lock_state();
        let Some(outcome) = state.fleet.handle_hello(lead, hello, now) else {
            return if state.snapshot.is_none() { AgentAdmission::Early } else { AgentAdmission::Refused };
        };
        state.count_event(None);
        self.agent_channels.open_channel(agent, pass);
        let actions = state.apply_output(outcome, now);
        self.run_actions(actions);
        AgentAdmission::Admitted
    }

    /// Handles a report of an agent.
    ///
    /// # Errors
    /// When the pass is not the agent's own or its request is a repetition (a newer agent may have taken its
    /// place), or when the agent reports too often.
    pub fn handle_report(
        &self,
        report: &AgentReport,
        pass: &AgentPass,
        now: UnixTime,
    ) -> Result<(), ChannelError> {
        let mut state = self.lock_state();
        self.agent_channels.check_report(&(report.job, report.node.clone()), pass, Instant::now())?;
        state.fleet.record_heartbeat(report.job, &report.node, now);
        let Some(outcome) = state.fleet.handle_report(report, now) else { return Ok(()) };
        report.events.iter().for_each(|event| state.count_event(Some(event.kind())));
        let actions = state.apply_output(outcome, now);
        let urgency = if report.events.contains(&AgentEvent::Leaving) {
            Some(RoundUrgency::Urgent)
        } else {
            actions.urgent.then_some(RoundUrgency::Ordinary)
        };
        let user = state.fleet.agent_owner(report.job);
        self.run_actions(actions);
        if let Some(urgency) = urgency {
            self.round_trigger.request_round(urgency, user.map(|uid| uid.0));
        }
        Ok(())
    }

    /// Raises the problem that the store fails, and logs it if it is new.
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
