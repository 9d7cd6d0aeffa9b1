//! The whole state of the daemon, as values behind one lock: the fleet, the state of the rounds, the write
//! queue and the present problems.
//!
//! [`DaemonState::apply_output`] applies the outcome of a change of the fleet to the other values. What must
//! happen outside the state becomes [`PendingActions`]. The [`super::context::DaemonContext`] runs these
//! before it releases the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::Level;

use super::agent_channels::SendScope;
use super::clock_jump::ClockJumpDetector;
use super::control_orders::ControlOrder;
use super::delay_watch::DelayWatch;
use super::health::{DelayProblem, HealthProblem, HealthState, ProblemTopic};
use super::profile_lookups::ProfileLookups;
use super::usage_recorder::UsageRecorder;
use super::write_queue::WriteQueue;
use crate::timeline::{NodeUse, PlannedUse, USE_HOLDS_SECS, UsageHour};
use infill_advisor::ProgressOutcome;
use infill_api::{ControlOrigin, RoundView};
use infill_lifecycle::fleet::{
    AgentOrder, EffectBatch, FinishedJob, FleetOutcome, JobEnd, JobFleet, LearningEvent, LogNote,
    WorkerProgress,
};
use infill_model::config::DelayAction;
use infill_model::{
    AgentEventKind, ControlState, DaemonMode, GenerationStop, JobId, LiveChange, MainDelay, NodeName,
    Profile, ProfileFilter, ProfileKey, RoundReport, Snapshot, UnixTime, UserId, WindowEnd, config::Config,
};
use infill_planner::round::{AdvisorMode, RoundConstraints, RoundInput, RoundState};
use infill_store::Measurement;

/// What must happen outside the state after a change. [`DaemonContext::run_actions`] does it in the order of
/// the fields. Only the handler of reports reads `urgent`.
///
/// [`DaemonContext::run_actions`]: super::context::DaemonContext::run_actions
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "actions must be run"]
pub struct PendingActions {
    /// Lines for the log.
    pub notes: Vec<LogNote>,
    /// Orders to agents, and how much of each may be sent.
    pub orders: Vec<(Vec<AgentOrder>, SendScope)>,
    /// Effects at Slurm. Those that give nodes back are carried out at once, all others once everything is
    /// stored.
    pub batches: Vec<EffectBatch>,
    /// Whether the next round should begin soon.
    pub urgent: bool,
}

/// The state of a daemon.
pub struct DaemonState {
    /// The configuration.
    pub config: Arc<Config>,
    /// The malleable jobs.
    pub fleet: JobFleet,
    /// What rounds are planned from.
    pub round_state: RoundState,
    /// Rows that wait for the store.
    pub write_queue: WriteQueue,
    /// The present problems.
    pub health: HealthState,
    /// Which stored profiles are in memory.
    pub profile_lookups: ProfileLookups,
    /// The last order to pause, drain or resume.
    pub control: ControlOrder,
    /// The last trusted snapshot; `None` before the first one.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The last round; `None` before the first one.
    pub round: Option<RoundView>,
    /// The versions of Slurm and of its REST API; `None` before Slurm answers.
    pub endpoint: Option<(String, String)>,
    /// When the daemon started.
    pub started_at: UnixTime,
    /// Detects times in which the daemon could not hear agents.
    pub clock_jump: ClockJumpDetector,
    /// Records what nodes and node-time were used for.
    pub usage_recorder: UsageRecorder,
    /// Counts main jobs that were delayed.
    pub delay_watch: DelayWatch,
    /// Agents' events since the last round, for the metrics. `None` stands for a hello.
    pub agent_events: BTreeMap<Option<AgentEventKind>, u64>,
}

impl DaemonState {
    /// The state before anything was read.
    pub fn new(config: Arc<Config>, now: UnixTime) -> Self {
        DaemonState {
            fleet: JobFleet::new(&config),
            round_state: RoundState::new(config.clone(), now),
            write_queue: WriteQueue::default(),
            health: HealthState::default(),
            profile_lookups: ProfileLookups::default(),
            control: ControlOrder::default(),
            snapshot: None,
            round: None,
            endpoint: None,
            started_at: now,
            clock_jump: ClockJumpDetector::default(),
            usage_recorder: UsageRecorder::default(),
            delay_watch: DelayWatch::default(),
            agent_events: BTreeMap::new(),
            config,
        }
    }

    /// Applies an administrator's order. Delays before it no longer count.
    pub(crate) fn set_control(&mut self, order: ControlOrder) {
        self.control = order;
        self.delay_watch.forget_delays();
        self.health.clear_problem(ProblemTopic::Delays);
    }

    /// Counts the delays of a round, and stops growth where there are too many, as `[safety]` says. Returns
    /// the new order if it has changed.
    pub(crate) fn check_delays(&mut self, delays: &[MainDelay], now: UnixTime) -> Option<ControlOrder> {
        let limits = &self.config.safety;
        let Some(found) = self.delay_watch.record_delays(delays, limits, now) else {
            // A pause stays with its reason until somebody resumes. A warning is over with its window.
            if limits.on_delays == DelayAction::Warn {
                self.health.clear_problem(ProblemTopic::Delays);
            }
            return None;
        };
        let control = found.control_after(self.control.state);
        let problem = HealthProblem::Delays(DelayProblem { found, limits: limits.clone() });
        if !self.health.has_problem(ProblemTopic::Delays) {
            tracing::error!("{problem}");
        }
        self.health.raise_problem(problem);
        if control == self.control.state {
            return None;
        }
        let origin = ControlOrigin { at: now, by: None, automatic: true };
        self.control = ControlOrder { state: control, origin: Some(origin) };
        Some(self.control.clone())
    }

    /// Whether the daemon acts at Slurm, or only observes.
    pub fn is_acting(&self) -> bool {
        self.config.daemon.mode == DaemonMode::Act
    }

    /// Updates the fleet with a trusted snapshot. `read_at`: when reading it began.
    pub fn update_fleet(&mut self, snapshot: &Snapshot, read_at: UnixTime, now: UnixTime) -> PendingActions {
        let (out, unclear) = self.fleet.ingest_snapshot(snapshot, read_at, now);
        if unclear.is_empty() {
            self.health.clear_problem(ProblemTopic::Requests);
        } else {
            self.health.raise_problem(HealthProblem::Requests(unclear));
        }
        let mut actions = self.apply_output(out, now);
        actions.notes.extend(self.note_bad_records(snapshot));
        actions
    }

    /// Raises or clears the problem that some of Slurm's records cannot be read in full. Returns a line for
    /// the log when the problem is new.
    fn note_bad_records(&mut self, snapshot: &Snapshot) -> Option<LogNote> {
        let Some(which) = &snapshot.unread else {
            self.health.clear_problem(ProblemTopic::Records);
            return None;
        };
        let problem = HealthProblem::Records(which.clone());
        let text = problem.to_string();
        self.health.raise_problem(problem).then_some(LogNote { level: Level::WARN, job: None, text })
    }

    /// Updates the state of the rounds with a trusted snapshot. Call it after [`Self::update_fleet`].
    pub fn update_rounds(&mut self, snapshot: Snapshot, now: UnixTime) -> PendingActions {
        let ended =
            self.round_state.ingest_snapshot(&snapshot, &self.fleet.job_facts(now), self.advisor_mode(), now);
        self.write_queue.add_gaps(ended);
        if let Some(secs) = self.round_state.node_times().start_secs() {
            self.fleet.set_start_secs(secs);
        }
        let partition = &self.config.slurm.partition;
        let gaps = self.round_state.gaps();
        let advisor = self.round_state.job_advisor();
        let usage = self.usage_recorder.record_snapshot(
            &snapshot,
            partition,
            gaps,
            |job| self.fleet.job_activity(job, advisor.probe_size(job).is_some()),
            now,
        );
        self.write_queue.add_usage(usage);
        self.snapshot = Some(Arc::new(snapshot));
        let priorities = self.round_state.priorities();
        let outcome = self.fleet.set_promises(|job| priorities.promised_at(job));
        self.apply_output(outcome, now)
    }

    /// What nodes were used for in the hours that the store may not have yet.
    pub(crate) fn recent_hours(&self) -> Vec<Arc<UsageHour>> {
        self.write_queue.unsaved_hours().cloned().chain(self.usage_recorder.current_hour()).collect()
    }

    /// What gaps are planned to be used for after the snapshot of `seen`. Empty where that snapshot is older
    /// than [`USE_HOLDS_SECS`].
    pub fn planned_uses(&self, seen: UnixTime, now: UnixTime) -> Vec<PlannedUse> {
        if now.secs_since(seen) > USE_HOLDS_SECS as f64 {
            return Vec::new();
        }
        let mut uses = Vec::new();
        for gap in self.round_state.gaps().gaps.iter().filter(|gap| !gap.node.is_place()) {
            let node = gap.node.host();
            let end = match gap.end {
                WindowEnd::Known { at, .. } => Some(at.max(seen)),
                WindowEnd::Unknown => None,
            };
            let used = gap.holder.map_or(NodeUse::Idle, NodeUse::Job);
            uses.push(PlannedUse { node: node.clone(), from: seen, to: end, used });
            if let Some(end) = end {
                uses.push(PlannedUse { node, from: end, to: None, used: NodeUse::Wanted });
            }
        }
        uses
    }

    /// Moves everything that is still open into the write queue, because the daemon ends.
    pub(crate) fn flush_records(&mut self) {
        self.write_queue.add_usage(self.usage_recorder.current_usage());
        self.write_queue.close_measurements();
    }

    fn advisor_mode(&self) -> AdvisorMode {
        let probes = self.is_acting() && self.control.state == ControlState::Normal;
        if probes { AdvisorMode::Probe } else { AdvisorMode::Watch }
    }

    /// The input of a round; `None` before the first trusted snapshot. `trusted`: whether this round has read
    /// a trusted snapshot.
    pub fn round_input(&self, trusted: bool, now: UnixTime) -> Option<RoundInput> {
        self.snapshot.as_ref()?;
        let constraints = RoundConstraints {
            may_grow: self.control.state == ControlState::Normal
                && !self.health.has_problem(ProblemTopic::Store),
            drain: self.control.state == ControlState::Draining,
            snapshot_is_trusted: trusted,
        };
        Some(self.round_state.round_input(&self.fleet.job_facts(now), constraints, now))
    }

    /// Applies the outcome of a change of the fleet to the other values. Returns what must happen outside.
    pub(crate) fn apply_output(&mut self, out: FleetOutcome, now: UnixTime) -> PendingActions {
        let mut actions = PendingActions { notes: out.notes, ..PendingActions::default() };
        for progress in &out.progress {
            actions.urgent |= self.record_worker_progress(progress, now, &mut actions.notes);
        }
        for job in out.interrupted {
            if let Some((key, outcome)) = self.round_state.job_advisor_mut().finish_generation(job, now) {
                self.record_outcome(job, &key, outcome, now, &mut actions.notes);
            }
            self.write_queue.close_measurement(job);
        }
        for JobEnd { job, finished } in out.ended {
            finished.iter().for_each(|finished| self.record_ended_job(finished, now));
            self.round_state.job_advisor_mut().forget_job(job);
            self.round_state.priorities_mut().forget_job(job);
        }
        out.stops.iter().for_each(|event| self.record_stop(event, now));
        out.out_of_memory.iter().for_each(|event| self.record_out_of_memory(event, now));
        out.live_changes.iter().for_each(|event| self.record_live_change(event, now));
        out.arrived.iter().for_each(|(node, secs)| self.round_state.record_start(node, *secs));
        for (node, strike) in out.strikes {
            let why = strike.why.clone();
            if self.round_state.breaker_mut().record_strike(&node, strike) {
                let text = format!("{node} is left alone for a while: {why}");
                actions.notes.push(LogNote { level: Level::WARN, job: None, text });
            }
        }
        out.acquitted.into_iter().for_each(|job| self.round_state.breaker_mut().acquit_job(job));
        for (node, why) in out.tripped_nodes {
            self.round_state.breaker_mut().trip_node(&node, &why, now);
            let text = format!("{node} is left alone for a while: it {why}");
            actions.notes.push(LogNote { level: Level::ERROR, job: None, text });
        }
        self.write_queue.add_generations(out.generations);
        self.write_queue.mark_dirty(out.changed);
        for job in &out.stepped_jobs {
            let facts = self.fleet.facts_for_job(*job, now);
            let notice = facts.and_then(|facts| self.round_state.save_warning(&facts)).map(|w| w.to_string());
            self.fleet.set_notice(*job, notice);
        }
        actions.orders = out
            .stepped_jobs
            .into_iter()
            .map(|job| {
                let scope = if self.write_queue.is_stored(job) {
                    SendScope::Everything
                } else {
                    SendScope::NothingNew
                };
                (self.fleet.agent_orders(job), scope)
            })
            .collect();
        actions.batches = out.batches;
        if !self.is_acting() {
            actions.batches.iter_mut().for_each(|b| b.effects.clear());
        }
        actions
    }

    /// Whether the profile of `key` may learn from a job whose lead is on this node. The node's type must be
    /// known, and the stored profiles of the program must be in memory.
    fn may_learn(&self, key: &ProfileKey, lead: Option<&NodeName>) -> bool {
        let has_type = lead.is_some_and(|node| self.round_state.type_at(node).is_some());
        has_type && !key.name.is_empty() && self.profile_lookups.covers_key(key)
    }

    /// Records a change of membership during which the command stayed alive.
    fn record_live_change(&mut self, event: &LearningEvent<LiveChange>, now: UnixTime) {
        let key = self.round_state.profile_key(&event.program, event.lead.as_ref());
        if self.may_learn(&key, event.lead.as_ref()) {
            self.round_state.job_advisor_mut().record_live_change(&key, &event.event, now);
        }
    }

    /// Records that a command ran out of memory.
    fn record_out_of_memory(&mut self, event: &LearningEvent<u32>, now: UnixTime) {
        let key = self.round_state.profile_key(&event.program, event.lead.as_ref());
        if self.may_learn(&key, event.lead.as_ref()) {
            self.round_state.job_advisor_mut().record_out_of_memory(&key, event.event, now);
        }
    }

    /// Records a job that has ended. The lengths of similar jobs are predicted from its length.
    fn record_ended_job(&mut self, finished: &FinishedJob, now: UnixTime) {
        let (_, unit) = self.round_state.remaining_work(&finished.facts);
        let ended = finished.ended_job(unit, now);
        let estimate = finished.facts.progress.first_estimate(unit);
        self.round_state.priorities_mut().length_predictor.record_end(
            ended.job,
            now,
            ended.work_secs,
            &estimate,
        );
        self.write_queue.add_ended_job(ended);
    }

    /// Records how a worker has stopped.
    fn record_stop(&mut self, event: &LearningEvent<GenerationStop>, now: UnixTime) {
        let key = self.round_state.profile_key(&event.program, event.lead.as_ref());
        let may_learn = self.may_learn(&key, event.lead.as_ref());
        self.round_state.record_stop(&key, &event.event, may_learn, now);
        if may_learn {
            self.round_state.job_advisor_mut().set_job_name(&key, &event.program.job_name);
        }
    }

    /// Records the progress of a job. Returns whether the next round should begin soon.
    fn record_worker_progress(
        &mut self,
        progress: &WorkerProgress,
        now: UnixTime,
        notes: &mut Vec<LogNote>,
    ) -> bool {
        let key = self.round_state.profile_key(&progress.program, progress.lead.as_ref());
        // A job that has just started: no snapshot shows its node yet, or its stored profiles are not loaded.
        let lead_is_known =
            progress.lead.as_ref().is_some_and(|node| self.round_state.type_at(node).is_some());
        if !lead_is_known || !self.profile_lookups.covers_key(&key) {
            return false;
        }
        let crosses_leaves = self.round_state.spans_leaves(&progress.hosts);
        let report = progress.progress_report(crosses_leaves);
        let outcome = self.round_state.record_progress(progress.job, &key, &report, now);
        let urgent = outcome.probe_ended || outcome.drift.is_some();
        self.record_outcome(progress.job, &key, outcome, now, notes);
        urgent
    }

    /// Logs and stores what the advisor has learned from a job's progress.
    fn record_outcome(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        outcome: ProgressOutcome,
        now: UnixTime,
        notes: &mut Vec<LogNote>,
    ) {
        if let Some(factor) = outcome.drift {
            let text = format!("profile {}: runs at {factor:.2} times its old speed now", key.name);
            notes.push(LogNote { level: Level::INFO, job: Some(job), text });
        }
        let Some((nodes, stretch)) = outcome.stretch else { return };
        let measured = &stretch.rate;
        let text =
            format!("measured on {nodes} nodes: {} samples/s, error {}", measured.rate, measured.error);
        notes.push(LogNote { level: Level::DEBUG, job: Some(job), text });
        self.write_queue.add_measurement(Measurement {
            key: key.clone(),
            job,
            nodes,
            samples: stretch.samples,
            secs: stretch.secs,
            probe: outcome.measures_probe,
            at: now,
        });
        let name = self.fleet.job_details(job).map(|details| details.name.clone()).unwrap_or_default();
        self.round_state.job_advisor_mut().set_job_name(key, &name);
    }

    /// The orders that may be sent after these jobs' records were stored, or could not be. While the store
    /// fails, training goes on in new generations, but no wing is ordered.
    pub fn release_orders(&self, jobs: impl IntoIterator<Item = JobId>, stored: bool) -> PendingActions {
        let scope = if stored { SendScope::Everything } else { SendScope::Generations };
        let released = jobs.into_iter().filter(|job| !stored || self.write_queue.is_stored(*job));
        PendingActions {
            orders: released.map(|job| (self.fleet.agent_orders(job), scope)).collect(),
            ..PendingActions::default()
        }
    }

    /// Look-ups of profiles that may concern the present jobs and were not read yet.
    pub(crate) fn profiles_to_load(&self, now: UnixTime) -> Vec<ProfileFilter> {
        let facts = self.fleet.job_facts(now);
        let keys = facts
            .iter()
            .map(|job| self.round_state.profile_key(&job.program, job.location.lead_now.as_ref()));
        self.profile_lookups.missing_filters(keys, self.config.advisor.share_profiles)
    }

    /// Loads the stored profiles that a filter selects.
    pub(crate) fn load_profiles(&mut self, filter: ProfileFilter, profiles: Vec<Profile>, now: UnixTime) {
        self.profile_lookups.add_filter(filter);
        let dropped = self.round_state.job_advisor_mut().load_profiles(profiles, now);
        dropped.iter().for_each(|key| self.profile_lookups.drop_key(key));
    }

    /// Replaces profiles in memory by imported ones.
    pub(crate) fn replace_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) {
        let dropped = self.round_state.job_advisor_mut().replace_profiles(profiles, now);
        dropped.iter().for_each(|key| self.profile_lookups.drop_key(key));
    }

    /// Forgets profiles that were deleted from the store, and drops their waiting measurements, which would
    /// bring them back.
    pub fn forget_profiles(&mut self, filter: &ProfileFilter) {
        self.round_state.job_advisor_mut().forget_profiles(filter);
        self.write_queue.drop_measurements(filter);
    }

    /// Forgets jobs that ended long ago.
    pub fn forget_old_jobs(&mut self) {
        for job in self.fleet.forget_ended_jobs(|job| self.write_queue.is_stored(job)) {
            self.round_state.job_advisor_mut().forget_job(job);
        }
    }

    /// The owner of a malleable or main job; `None` for an unknown job.
    pub fn job_owner(&self, job: JobId) -> Option<UserId> {
        let owner = self.fleet.job_details(job).and_then(|details| details.user_id);
        owner.or_else(|| self.snapshot.as_ref()?.job(job).map(|main| main.user_id))
    }

    /// The owners of the malleable jobs of a report.
    pub fn job_owners(&self, report: &RoundReport) -> BTreeMap<JobId, UserId> {
        report.jobs.iter().filter_map(|verdict| Some((verdict.job, self.job_owner(verdict.job)?))).collect()
    }

    /// The host name or address at which other nodes reach a node.
    pub fn node_address(&self, node: &NodeName) -> String {
        self.known_address(node)
            .filter(|address| !address.is_empty())
            .unwrap_or_else(|| node.host().to_string())
    }

    /// The address of a node in the last snapshot.
    fn known_address(&self, node: &NodeName) -> Option<String> {
        let snapshot = self.snapshot.as_ref()?;
        Some(snapshot.node(node.single_places().first()?)?.address.clone())
    }

    /// Counts an agent's event for the metrics. `None` stands for a hello.
    pub fn count_event(&mut self, event: Option<AgentEventKind>) {
        *self.agent_events.entry(event).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
