//! All that the daemon knows, as values behind one lock: the fleet, the scene, what is to be written, what is
//! wrong.
//!
//! What follows from a change of one of them reaches the others in [`DaemonState::apply_output`], and the
//! outside as
//! [`PendingActions`], which the [`super::context::DaemonContext`] hands on before it lets go of the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::Level;

use super::agent_channels::OrderPermit;
use super::clock_jump::ClockJumpDetector;
use super::health::{HealthProblem, HealthState, ProblemTopic};
use super::profile_lookups::ProfileLookups;
use super::usage_recorder::UsageRecorder;
use super::write_queue::WriteQueue;
use crate::timeline::{NodeUse, PlannedUse, USE_HOLDS_SECS, UsageHour};
use infill_advisor::ProgressOutcome;
use infill_api::RoundView;
use infill_lifecycle::fleet::{
    AgentOrder, EffectBatch, FinishedJob, FleetOutcome, JobEnd, JobFleet, LearningEvent, LogNote,
    WorkerProgress,
};
use infill_model::{
    AgentEventKind, ControlState, DaemonMode, Gap, GenerationStop, JobId, LiveChange, NodeName, Profile,
    ProfileFilter, ProfileKey, RoundReport, Snapshot, UnixTime, UserId, WindowEnd, config::Config,
};
use infill_planner::round::{AdvisorMode, RoundConstraints, RoundInput, RoundState};
use infill_store::Measurement;

/// What has to be done outside after a change, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "errands are to be run"]
pub struct PendingActions {
    /// For the log.
    pub notes: Vec<LogNote>,
    /// What agents are to be told, and how much of it.
    pub words: Vec<(Vec<AgentOrder>, OrderPermit)>,
    /// What is to be done at Slurm, once everything is stored.
    pub batches: Vec<EffectBatch>,
    /// Whether the planner should look soon.
    pub urgent: bool,
}

/// See the module's text.
pub struct DaemonState {
    /// The configuration.
    pub config: Arc<Config>,
    /// Malleable jobs.
    pub fleet: JobFleet,
    /// What rounds are made of.
    pub scene: RoundState,
    /// What is to be written.
    pub ledger: WriteQueue,
    /// What is wrong.
    pub health: HealthState,
    /// Which stored profiles are known.
    pub lookups: ProfileLookups,
    /// Order of an administrator.
    pub control: ControlState,
    /// The last trusted snapshot.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The last round.
    pub round: Option<RoundView>,
    /// Slurm's and REST's version.
    pub endpoint: Option<(String, String)>,
    /// Start of the daemon.
    pub started_at: UnixTime,
    /// Whether the daemon could have heard what was said.
    pub attention: ClockJumpDetector,
    /// What is recorded for people.
    pub chronicle: UsageRecorder,
    /// What agents said since the last round, for the metrics; `None`: hello.
    pub heard: BTreeMap<Option<AgentEventKind>, u64>,
}

impl DaemonState {
    /// Knows nothing yet.
    pub fn new(config: Arc<Config>, now: UnixTime) -> Self {
        DaemonState {
            fleet: JobFleet::new(&config),
            scene: RoundState::new(config.clone(), now),
            ledger: WriteQueue::default(),
            health: HealthState::default(),
            lookups: ProfileLookups::default(),
            control: ControlState::Normal,
            snapshot: None,
            round: None,
            endpoint: None,
            started_at: now,
            attention: ClockJumpDetector::default(),
            chronicle: UsageRecorder::default(),
            heard: BTreeMap::new(),
            config,
        }
    }

    /// Whether anything may be done at all.
    pub fn is_acting(&self) -> bool {
        self.config.daemon.mode == DaemonMode::Act
    }

    /// Has the fleet take in a trusted snapshot that was read from `read_at` on.
    pub fn update_fleet(&mut self, snapshot: &Snapshot, read_at: UnixTime, now: UnixTime) -> PendingActions {
        let (out, unclear) = self.fleet.ingest_snapshot(snapshot, read_at, now);
        if unclear.is_empty() {
            self.health.clear_problem(ProblemTopic::Requests);
        } else {
            self.health.raise_problem(HealthProblem::Requests(unclear));
        }
        let mut errands = self.apply_output(out, now);
        errands.notes.extend(self.note_bad_records(snapshot));
        errands
    }

    /// Takes note of records that Slurm shows and that cannot be read in full. Said once, and shown for as
    /// long as it is so.
    fn note_bad_records(&mut self, snapshot: &Snapshot) -> Option<LogNote> {
        let Some(which) = &snapshot.unread else {
            self.health.clear_problem(ProblemTopic::Records);
            return None;
        };
        let problem = HealthProblem::Records(which.clone());
        let text = problem.to_string();
        self.health.raise_problem(problem).then_some(LogNote { level: Level::WARN, job: None, text })
    }

    /// Has the scene take it in, once the fleet has.
    pub fn update_rounds(&mut self, snapshot: Snapshot, now: UnixTime) -> PendingActions {
        let ended =
            self.scene.ingest_snapshot(&snapshot, &self.fleet.job_facts(now), self.advisor_mode(), now);
        self.ledger.add_gaps(ended);
        if let Some(secs) = self.scene.node_times().start_secs() {
            self.fleet.set_start_secs(secs);
        }
        let partition = &self.config.slurm.partition;
        let gaps = self.scene.gaps();
        let library = self.scene.job_advisor();
        let noted = self.chronicle.record_snapshot(
            &snapshot,
            partition,
            gaps,
            |job| self.fleet.job_activity(job, library.probe_size(job).is_some()),
            now,
        );
        self.ledger.add_usage(noted);
        self.snapshot = Some(Arc::new(snapshot));
        let priorities = self.scene.priorities();
        let out = self.fleet.set_promises(|job| priorities.promised_at(job));
        self.apply_output(out, now)
    }

    /// What nodes were used for, of the hours that the store may not have yet.
    pub(crate) fn recent_hours(&self) -> Vec<Arc<UsageHour>> {
        self.ledger.unsaved_hours().cloned().chain(self.chronicle.current_hour()).collect()
    }

    /// What gaps are planned to be used for after what was `seen`; nothing where that is too long ago to go
    /// on from there.
    pub fn planned_uses(&self, seen: UnixTime, now: UnixTime) -> Vec<PlannedUse> {
        if now.secs_since(seen) > USE_HOLDS_SECS as f64 {
            return Vec::new();
        }
        let planned = |gap: &Gap| {
            let node = gap.node.host();
            let used = gap.holder.map_or(NodeUse::Idle, NodeUse::Job);
            let end = match gap.end {
                WindowEnd::Known { at, .. } => Some(at.max(seen)),
                WindowEnd::Unknown => None,
            };
            let wanted =
                end.map(|end| PlannedUse { node: node.clone(), from: end, to: None, used: NodeUse::Wanted });
            std::iter::once(PlannedUse { node, from: seen, to: end, used })
                .chain(wanted)
                .collect::<Vec<PlannedUse>>()
        };
        self.scene.gaps().gaps.iter().filter(|gap| !gap.node.is_place()).flat_map(planned).collect()
    }

    /// Has everything that goes on stored as it is: the daemon ends.
    pub(crate) fn flush_records(&mut self) {
        self.ledger.add_usage(self.chronicle.current_usage());
        self.ledger.close_measurements();
    }

    fn advisor_mode(&self) -> AdvisorMode {
        let probes = self.is_acting() && self.control == ControlState::Normal;
        if probes { AdvisorMode::Probe } else { AdvisorMode::Watch }
    }

    /// What the planner is to be asked now; `None` before the first trusted snapshot. `trusted`: whether that
    /// snapshot is of this round.
    pub fn round_input(&self, trusted: bool, now: UnixTime) -> Option<RoundInput> {
        self.snapshot.as_ref()?;
        let terms = RoundConstraints {
            may_grow: self.control == ControlState::Normal && !self.health.has_problem(ProblemTopic::Store),
            drain: self.control == ControlState::Draining,
            trusted,
        };
        Some(self.scene.round_input(&self.fleet.job_facts(now), terms, now))
    }

    /// Brings what follows from a change of the fleet to where it belongs.
    pub(crate) fn apply_output(&mut self, out: FleetOutcome, now: UnixTime) -> PendingActions {
        let mut errands = PendingActions { notes: out.notes, ..PendingActions::default() };
        for measured in &out.measured {
            errands.urgent |= self.record_measurement(measured, now, &mut errands.notes);
        }
        for job in out.interrupted {
            if let Some((key, news)) = self.scene.job_advisor_mut().finish_generation(job, now) {
                self.record_outcome(job, &key, news, now, &mut errands.notes);
            }
            self.ledger.close_measurement(job);
        }
        for JobEnd { job, gone } in out.ended {
            gone.iter().for_each(|gone| self.record_ended_job(gone, now));
            self.scene.job_advisor_mut().forget_job(job);
            self.scene.priorities_mut().forget_job(job);
        }
        out.stops.iter().for_each(|stopped| self.record_stop(stopped, now));
        out.overflowed.iter().for_each(|overflowed| self.record_out_of_memory(overflowed, now));
        out.lived_through.iter().for_each(|lived| self.record_live_change(lived, now));
        out.arrived.iter().for_each(|(node, secs)| self.scene.record_start(node, *secs));
        for (node, strike) in out.strikes {
            let why = strike.why.clone();
            if self.scene.breaker_mut().record_strike(&node, strike) {
                let text = format!("{node} is left alone for a while: {why}");
                errands.notes.push(LogNote { level: Level::WARN, job: None, text });
            }
        }
        out.acquitted.into_iter().for_each(|job| self.scene.breaker_mut().acquit_job(job));
        for (node, why) in out.trips {
            self.scene.breaker_mut().trip_node(&node, &why, now);
            let text = format!("{node} {why}: left alone");
            errands.notes.push(LogNote { level: Level::ERROR, job: None, text });
        }
        self.ledger.add_generations(out.generations);
        self.ledger.mark_dirty(out.changed);
        for job in &out.turned {
            let facts = self.fleet.facts_for_job(*job, now);
            let notice = facts.and_then(|facts| self.scene.save_warning(&facts)).map(|w| w.to_string());
            self.fleet.set_notice(*job, notice);
        }
        errands.words = out
            .turned
            .into_iter()
            .map(|job: JobId| {
                let permit = if self.ledger.is_stored(job) { OrderPermit::Order } else { OrderPermit::Stop };
                (self.fleet.agent_orders(job), permit)
            })
            .collect();
        errands.batches = out.batches;
        if !self.is_acting() {
            errands.batches.iter_mut().for_each(|b| b.effects.clear());
        }
        errands
    }

    /// Whether something of a job whose lead is on this node may be learned for this signature: as below,
    /// what the store knows of its program must be known first.
    fn may_learn(&self, key: &ProfileKey, lead: Option<&NodeName>) -> bool {
        let typed = lead.is_some_and(|node| self.scene.type_at(node).is_some());
        typed && !key.name.is_empty() && self.lookups.covers_key(key)
    }

    /// Takes in a change that a job's command lived through.
    fn record_live_change(&mut self, lived: &LearningEvent<LiveChange>, now: UnixTime) {
        let key = self.scene.profile_key(&lived.program, lived.lead.as_ref());
        if self.may_learn(&key, lived.lead.as_ref()) {
            self.scene.job_advisor_mut().record_live_change(&key, &lived.what, now);
        }
    }

    /// Takes in that a command ran out of memory.
    fn record_out_of_memory(&mut self, overflowed: &LearningEvent<u32>, now: UnixTime) {
        let key = self.scene.profile_key(&overflowed.program, overflowed.lead.as_ref());
        if self.may_learn(&key, overflowed.lead.as_ref()) {
            self.scene.job_advisor_mut().record_out_of_memory(&key, overflowed.what, now);
        }
    }

    /// Takes in a job that has ended: how long jobs like it will run follows from how long it did.
    fn record_ended_job(&mut self, gone: &FinishedJob, now: UnixTime) {
        let (_, unit) = self.scene.remaining_work(&gone.facts);
        let ended = gone.ended_job(unit, now);
        let word = gone.facts.course.first_estimate(unit);
        self.scene.priorities_mut().outlook.record_end(ended.job, now, ended.work_secs, &word);
        self.ledger.add_ended_job(ended);
    }

    /// Takes in how a worker has stopped.
    fn record_stop(&mut self, stopped: &LearningEvent<GenerationStop>, now: UnixTime) {
        let key = self.scene.profile_key(&stopped.program, stopped.lead.as_ref());
        let counts = self.may_learn(&key, stopped.lead.as_ref());
        self.scene.record_stop(&key, &stopped.what, counts, now);
        if counts {
            self.scene.job_advisor_mut().set_job_name(&key, &stopped.program.job_name);
        }
    }

    /// Takes in how a job runs. Says whether the planner should look at once.
    fn record_measurement(
        &mut self,
        measured: &WorkerProgress,
        now: UnixTime,
        notes: &mut Vec<LogNote>,
    ) -> bool {
        let key = self.scene.profile_key(&measured.program, measured.lead.as_ref());
        // Just started: no look has shown the node yet, or the store has not told what is known of such jobs.
        let lead_is_known = measured.lead.as_ref().is_some_and(|node| self.scene.type_at(node).is_some());
        if !lead_is_known || !self.lookups.covers_key(&key) {
            return false;
        }
        let crosses = self.scene.spans_leaves(&measured.hosts);
        let news = self.scene.record_progress(measured.job, &key, &measured.progress_report(crosses), now);
        let urgent = news.probed || news.drift.is_some();
        self.record_outcome(measured.job, &key, news, now, notes);
        urgent
    }

    fn record_outcome(
        &mut self,
        job: JobId,
        key: &ProfileKey,
        news: ProgressOutcome,
        now: UnixTime,
        notes: &mut Vec<LogNote>,
    ) {
        if let Some(factor) = news.drift {
            let text = format!("profile {}: runs at {factor:.2} times its old speed now", key.name);
            notes.push(LogNote { level: Level::INFO, job: Some(job), text });
        }
        let Some((nodes, stretch)) = news.stretch else { return };
        let (rate, error) = (stretch.rate.rate, stretch.rate.error);
        let text = format!("measured on {nodes} nodes: {rate} samples/s, error {error}");
        notes.push(LogNote { level: Level::DEBUG, job: Some(job), text });
        let samples = stretch.samples;
        let secs = stretch.secs;
        let probe = news.probe;
        self.ledger.add_measurement(Measurement {
            key: key.clone(),
            job,
            nodes,
            samples,
            secs,
            probe,
            at: now,
        });
        let name = self.fleet.job_details(job).map(|a| a.name.clone()).unwrap_or_default();
        self.scene.job_advisor_mut().set_job_name(key, &name);
    }

    /// What agents may be told now that these jobs' records were stored, or could not be: while the store
    /// fails, training still goes on in new generations, but nothing is ordered.
    pub fn release_orders(&self, jobs: impl IntoIterator<Item = JobId>, stored: bool) -> PendingActions {
        let permit = if stored { OrderPermit::Order } else { OrderPermit::Run };
        let settled = jobs.into_iter().filter(|job| !stored || self.ledger.is_stored(*job));
        PendingActions {
            words: settled.map(|job| (self.fleet.agent_orders(job), permit)).collect(),
            ..PendingActions::default()
        }
    }

    /// Profiles in the store that may concern the present jobs and were not read yet.
    pub(crate) fn profiles_to_load(&self, now: UnixTime) -> Vec<ProfileFilter> {
        let facts = self.fleet.job_facts(now);
        let keys = facts.iter().map(|f| self.scene.profile_key(&f.program, f.place.lead_now.as_ref()));
        self.lookups.missing_filters(keys, self.config.advisor.share_profiles)
    }

    /// Takes in the stored profiles that a filter names.
    pub(crate) fn load_profiles(&mut self, filter: ProfileFilter, profiles: Vec<Profile>, now: UnixTime) {
        self.lookups.add_filter(filter);
        let dropped = self.scene.job_advisor_mut().load_profiles(profiles, now);
        dropped.iter().for_each(|key| self.lookups.drop_key(key));
    }

    /// Takes in profiles that somebody has brought, in place of what is known of them.
    pub(crate) fn replace_profiles(&mut self, profiles: Vec<Profile>, now: UnixTime) {
        let dropped = self.scene.job_advisor_mut().replace_profiles(profiles, now);
        dropped.iter().for_each(|key| self.lookups.drop_key(key));
    }

    /// Forgets profiles that were deleted from the store, with the measurements that would bring them back
    /// there.
    pub fn forget_profiles(&mut self, filter: &ProfileFilter) {
        self.scene.job_advisor_mut().forget_profiles(filter);
        self.ledger.drop_measurements(filter);
    }

    /// Forgets jobs that ended long ago.
    pub fn forget_old_jobs(&mut self) {
        for job in self.fleet.forget_ended_jobs(|job| self.ledger.is_stored(job)) {
            self.scene.job_advisor_mut().forget_job(job);
        }
    }

    /// Whose job it is, of the main queue or ours; `None` for one that nobody knows here.
    pub fn job_owner(&self, job: JobId) -> Option<UserId> {
        let ours = self.fleet.job_details(job).and_then(|a| a.user_id);
        ours.or_else(|| self.snapshot.as_ref()?.job(job).map(|j| j.user_id))
    }

    /// Whose the malleable jobs of a report are.
    pub fn job_owners(&self, report: &RoundReport) -> BTreeMap<JobId, UserId> {
        report.jobs.iter().filter_map(|v| Some((v.job, self.job_owner(v.job)?))).collect()
    }

    /// Host at which other nodes reach a node.
    pub fn node_address(&self, node: &NodeName) -> String {
        let known = self
            .snapshot
            .as_ref()
            .and_then(|s: &Arc<Snapshot>| Some(s.node(node.single_places().first()?)?.address.clone()));
        known.filter(|a| !a.is_empty()).unwrap_or_else(|| node.host().to_string())
    }

    /// Counts what an agent said, for the metrics.
    pub fn count_event(&mut self, what: Option<AgentEventKind>) {
        *self.heard.entry(what).or_default() += 1;
    }
}

#[cfg(test)]
mod tests;
