//! The fleet, and the step of one job.

use std::collections::{BTreeMap, BTreeSet};

use tracing::Level;

use super::agent_orders::{AgentId, AgentOrder, can_read_directive, required_capability};
use super::fleet_job::{FleetJob, JobDetails};
use super::fleet_outcome::{EffectBatch, FleetOutcome, JobEnd, LearningEvent};
use super::lead_starts::LastTrustedSnapshot;
use super::start_conflict::StartConflict;
use super::wing_numbers::ReservedWingNumbers;
use crate::{
    CLAIM_SECS, Effect, JobLifecycle, LifecycleSettings, MemoryOverflow, START_SECS, StepOutcome,
    TargetContext,
};
use infill_model::{
    GapSet, GenerationRecord, JobId, JobPlan, LeadRecord, LendingMode, LendingRules, NodeCount, NodeName,
    NodeStrike, RoundReport, UnixTime, WindowEnd, WorkerShare, config::Config,
};

/// Before start times are measured, a wing that Slurm shows running may take this many times as long as a
/// wing that waits: a prolog may take a minute or more.
const UNMEASURED_TIMES: f64 = 5.0;

/// Once start times are measured, a wing that runs may take this many times the measured time, but at most
/// [`MAX_START_SECS`].
const START_TIMES: f64 = 3.0;

/// Longest time that a wing that runs may take to start, seconds.
const MAX_START_SECS: f64 = 600.0;

/// Largest number of wings, ended ones included, as a multiple of `slurm.max_wings`. slurmctld keeps ended
/// wings for a while (MinJobAge), and they count towards MaxJobCount, too.
const KEPT_TIMES: usize = 3;

/// Number of ended jobs that infill still shows.
const MAX_ENDED: usize = 200;

/// All malleable jobs.
#[derive(Clone, Debug)]
pub struct JobFleet {
    pub(super) settings: LifecycleSettings,
    /// How infill lends parts of nodes; `None` if it lends whole nodes.
    pub(super) lending_rules: Option<LendingRules>,
    /// Largest number of wings of all jobs together.
    max_wings: usize,
    /// Number of ended wings that slurmctld still keeps.
    pub(super) ended_wings: usize,
    /// Jobs by lead.
    pub(super) jobs: BTreeMap<JobId, FleetJob>,
    /// Wing numbers that the store has reserved for wings.
    pub wing_numbers: ReservedWingNumbers,
    /// Cancelled wings without a lead, each with the time of the cancellation.
    pub(super) orphans: BTreeMap<JobId, UnixTime>,
    /// Wings of main jobs that have not said hello, each with the time when it was first seen.
    pub(super) waiting_wings: BTreeMap<JobId, UnixTime>,
    /// Malleable jobs in the way of a main job that takes nodes back.
    pub(super) start_conflict: StartConflict,
    pub(super) last_snapshot: LastTrustedSnapshot,
    /// When a malleable job last used each node.
    pub(super) left_at: BTreeMap<NodeName, UnixTime>,
}

impl JobFleet {
    /// A fleet without jobs.
    pub fn new(config: &Config) -> Self {
        let qos = &config.slurm.qos;
        let settings = LifecycleSettings {
            partition: config.slurm.partition.clone(),
            qos: (!qos.is_empty()).then(|| qos.clone()),
            wing_start_secs: config.agent.wing_start_secs,
            prolog_secs: UNMEASURED_TIMES * config.agent.wing_start_secs,
            claim_secs: CLAIM_SECS,
            lead_start_secs: config.agent.lead_start_secs,
            backoff_secs: config.daemon.backoff_secs,
            backoff_max_secs: config.daemon.backoff_max_secs,
        };
        JobFleet {
            settings,
            lending_rules: (config.gaps.lend == LendingMode::Gpus).then(|| config.nodes.clone()),
            max_wings: config.slurm.max_wings as usize,
            ended_wings: 0,
            jobs: BTreeMap::new(),
            wing_numbers: ReservedWingNumbers::default(),
            orphans: BTreeMap::new(),
            waiting_wings: BTreeMap::new(),
            start_conflict: StartConflict::default(),
            last_snapshot: LastTrustedSnapshot::default(),
            left_at: BTreeMap::new(),
        }
    }

    /// Sets how long recent starts took on the slowest nodes, from the order to the agent's hello, seconds.
    pub fn set_start_secs(&mut self, measured_secs: f64) {
        let least_secs = self.settings.wing_start_secs;
        let most_secs = least_secs.max(MAX_START_SECS);
        self.settings.prolog_secs = (START_TIMES * measured_secs).clamp(least_secs, most_secs);
        self.settings.claim_secs = (CLAIM_SECS + measured_secs).min(most_secs);
    }

    /// Number of places of a node for each worker of a job that asks for this share; 1 without a share.
    pub(super) fn places_per_worker(&self, share: Option<WorkerShare>) -> u32 {
        share.zip(self.lending_rules.as_ref()).map_or(1, |(share, rules)| share.place_count(rules))
    }

    /// Restores jobs from their stored records.
    pub fn restore_jobs(&mut self, leads: Vec<LeadRecord>, now: UnixTime) -> FleetOutcome {
        let mut out = FleetOutcome::default();
        for lead in leads {
            match JobLifecycle::from_record(lead.state) {
                Ok(mut lifecycle) => {
                    lifecycle.resume_after_restart(now);
                    let details = JobDetails {
                        submitted_at: lead.submitted_at,
                        user_id: lead.user_id,
                        ..JobDetails::default()
                    };
                    self.jobs.insert(lead.job, FleetJob::new(lifecycle, details));
                }
                Err(e) => {
                    let text = format!("left out a job whose record is unreadable: {e}");
                    out.add_note(Level::WARN, lead.job, text);
                }
            }
        }
        out
    }

    /// When each job was promised its rate, of those that were.
    pub fn promises(&self) -> impl Iterator<Item = (JobId, UnixTime)> {
        let open = self.jobs.iter().filter(|(_, entry)| !entry.has_ended());
        open.filter_map(|(job, entry)| Some((*job, entry.lifecycle.counts.promised_at?)))
    }

    /// Takes in what is promised now, so that the records of these jobs say it to the next daemon.
    pub fn set_promises(&mut self, promised_at: impl Fn(JobId) -> Option<UnixTime>) -> FleetOutcome {
        let mut out = FleetOutcome::default();
        for (job, entry) in self.jobs.iter_mut().filter(|(_, entry)| !entry.has_ended()) {
            let promised_at = promised_at(*job);
            if entry.lifecycle.counts.promised_at != promised_at {
                entry.lifecycle.counts.promised_at = promised_at;
                out.changed.insert(*job);
                out.batches.push(EffectBatch { job: *job, effects: Vec::new() });
            }
        }
        out
    }

    /// The lifecycle of one job.
    pub fn job_lifecycle(&self, job: JobId) -> Option<&JobLifecycle> {
        self.jobs.get(&job).map(|e| &e.lifecycle)
    }

    /// Sets the notice to a job's owner.
    pub fn set_notice(&mut self, job: JobId, notice: Option<String>) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.details.notice = notice;
        }
    }

    /// The data of one job beyond its lifecycle.
    pub fn job_details(&self, job: JobId) -> Option<&JobDetails> {
        self.jobs.get(&job).map(|e| &e.details)
    }

    /// The lifecycles of all jobs, including ended jobs that infill still shows.
    pub fn job_lifecycles(&self) -> impl Iterator<Item = &JobLifecycle> {
        self.jobs.values().map(|e| &e.lifecycle)
    }

    /// Nodes, or single places of nodes, that a malleable job holds or has ordered, each with that job.
    pub fn occupied_nodes(&self) -> BTreeMap<NodeName, JobId> {
        let mut occupied = BTreeMap::new();
        for lifecycle in self.job_lifecycles() {
            for node in lifecycle.occupied_nodes().into_keys() {
                occupied.extend(node.single_places().into_iter().map(|place| (place, lifecycle.job)));
            }
        }
        occupied
    }

    /// Lets all jobs make a step at this time.
    pub fn step_all_jobs(&mut self, now: UnixTime) -> FleetOutcome {
        let mut out = FleetOutcome::default();
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            out.merge(self.step_job(job, StepOutcome::default(), now));
        }
        out
    }

    /// Moves all reference times by `secs`, a period in which the daemon received nothing: see
    /// [`JobLifecycle::shift_times`].
    pub fn shift_times(&mut self, secs: f64) {
        for entry in self.jobs.values_mut() {
            entry.shift_times(secs);
        }
        let wing_times = self.orphans.values_mut().chain(self.waiting_wings.values_mut());
        for time in wing_times.chain(self.left_at.values_mut()) {
            *time = time.plus_secs(secs);
        }
    }

    /// Sets the target of one job. `gaps` contain the windows of the nodes.
    pub fn set_target(&mut self, plan: &JobPlan, gaps: &GapSet, now: UnixTime) -> FleetOutcome {
        let others = self.job_lifecycles().filter(|lifecycle| lifecycle.job != plan.job);
        let others_nodes = others.flat_map(|lifecycle| lifecycle.occupied_nodes().into_keys());
        let others_places: BTreeSet<NodeName> = others_nodes.flat_map(|node| node.single_places()).collect();
        let backfill = self.last_snapshot.backfill.clone();
        let context = TargetContext {
            window: &|node| window_end(gaps, node),
            free: &|node| !node.single_places().iter().any(|place| others_places.contains(place)),
            startable_secs: &|node| backfill.startable_secs(&window_end(gaps, node), now),
            wings_left: self.wings_left(),
        };
        let Some(entry) = self.jobs.get_mut(&plan.job) else { return FleetOutcome::default() };
        let mut outcome = StepOutcome::default();
        entry.lifecycle.set_target(plan, &context, &mut self.wing_numbers, &self.settings, now, &mut outcome);
        self.step_job(plan.job, outcome, now)
    }

    /// Whether the daemon should read a snapshot now because a launched lead has had time to start, and no
    /// snapshot has shown yet whether it did.
    pub fn awaits_lead_start(&self, now: UnixTime) -> bool {
        let awaiting = self.job_lifecycles().filter(|lifecycle| lifecycle.awaits_start_on().is_some());
        let mut launched = awaiting.filter_map(|lifecycle| lifecycle.obstacles.launched_at);
        launched.any(|launched_at| {
            let due = launched_at.plus_secs(START_SECS);
            due <= now && self.last_snapshot.read_at < due
        })
    }

    /// Number of wings that all jobs together may still order.
    fn wings_left(&self) -> usize {
        let wings: usize = self.job_lifecycles().map(|lifecycle| lifecycle.wings.len()).sum();
        let kept_by_slurm = self.max_wings.saturating_mul(KEPT_TIMES).saturating_sub(self.ended_wings);
        self.max_wings.min(kept_by_slurm).saturating_sub(wings)
    }

    /// Handles an effect that was carried out.
    pub fn effect_done(&mut self, job: JobId, effect: &Effect, now: UnixTime) -> FleetOutcome {
        match (effect, self.jobs.get_mut(&job)) {
            (Effect::Launch { .. }, Some(entry)) => entry.lifecycle.record_launch(now),
            _ => return FleetOutcome::default(),
        }
        self.step_job(job, StepOutcome::default(), now)
    }

    /// Handles an effect that failed. `is_transient` says that a retry may help.
    pub fn effect_failed(
        &mut self,
        job: JobId,
        effect: &Effect,
        why: &str,
        is_transient: bool,
        now: UnixTime,
    ) -> FleetOutcome {
        let mut outcome = StepOutcome::default();
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.lifecycle.effect_failed(effect, why, is_transient, &self.settings, now, &mut outcome);
        }
        self.step_job(job, outcome, now)
    }

    /// Handles an effect that was dropped because its plan is out of date.
    pub fn effect_outdated(&mut self, job: JobId, effect: &Effect, now: UnixTime) -> FleetOutcome {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.lifecycle.effect_outdated(effect, now);
        }
        self.step_job(job, StepOutcome::default(), now)
    }

    /// Handles a plan for a job that is out of date: the job's older target does not replace it.
    pub fn plan_outdated(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.lifecycle.plan_outdated();
        }
    }

    /// Moves one job on as far as possible. Returns the consequences of this step and of the event before it,
    /// which are in `outcome`.
    pub(super) fn step_job(&mut self, job: JobId, mut outcome: StepOutcome, now: UnixTime) -> FleetOutcome {
        let mut out = FleetOutcome::default();
        let Some(entry) = self.jobs.get_mut(&job) else { return out };
        entry.lifecycle.step(&self.settings, now, &mut outcome);
        if entry.was_interrupted() {
            out.interrupted.push(job);
        }
        entry.note_pause(now);
        entry.note_waiting(now);
        entry.note_training(now);
        entry.note_end();
        if entry.has_ended() {
            out.ended.push(JobEnd { job, finished: entry.finished_job(now).map(Box::new) });
        }
        for note in &outcome.notes {
            out.add_note(Level::INFO, job, note);
        }
        if let Some((generation, nodes, why)) = outcome.started {
            let count = NodeCount(nodes.len());
            let text = format!("generation {generation} begins on {count}: {why}");
            out.add_note(Level::INFO, job, text);
            entry.details.rates.clear();
            out.generations.push(GenerationRecord { job, generation, started_at: now, nodes, why });
        }
        let source = LearningEvent {
            program: entry.program_identity(),
            lead: entry.lifecycle.lead_node().cloned(),
            event: (),
        };
        out.stops = outcome.stops.into_iter().map(|stop| source.with_event(stop)).collect();
        out.live_changes = outcome.live_change.into_iter().map(|change| source.with_event(change)).collect();
        if let Some(MemoryOverflow { nodes, lead }) = outcome.out_of_memory {
            out.out_of_memory.push(LearningEvent { program: source.program, lead, event: nodes });
        }
        out.arrived = outcome.arrived;
        // A wing script of an older agent may name a program that an upgrade has replaced. The failure of
        // such a wing is not the node's fault.
        if let Some(user) = entry.details.user_id.filter(|_| entry.lifecycle.outdated_lead_reason().is_none())
        {
            out.strikes = outcome
                .strikes
                .into_iter()
                .map(|(node, why)| (node, NodeStrike { job, user, why, at: now }))
                .collect();
        }
        if outcome.acquitted {
            out.acquitted.push(job);
        }
        if outcome.effects.iter().any(|e| matches!(e, Effect::Launch { .. })) {
            entry.details.launched_at = Some(now);
        }
        out.stepped_jobs.insert(job);
        if entry.refresh_durable_state() || !outcome.effects.is_empty() {
            out.changed.insert(job);
            out.batches.push(EffectBatch { job, effects: outcome.effects });
        }
        out
    }

    /// The present orders of a job's agents. An agent that cannot read its order gets none, and keeps the
    /// previous one.
    pub fn agent_orders(&self, job: JobId) -> Vec<AgentOrder> {
        let Some(entry) = self.jobs.get(&job) else { return Vec::new() };
        let mut orders = Vec::new();
        for (node, worker) in &entry.lifecycle.workers {
            let directive = entry.lifecycle.directive_for(node);
            if !can_read_directive(&worker.dialect, &directive, required_capability) {
                continue;
            }
            let is_lead = worker.slurm_job == job;
            orders.push(AgentOrder {
                agent: (worker.slurm_job, node.clone()),
                directive,
                wings: if is_lead { entry.lifecycle.wing_orders() } else { Vec::new() },
                notice: entry.details.notice.clone().filter(|_| is_lead),
            });
        }
        orders
    }

    /// Whether this agent has a place in a job.
    pub fn has_agent(&self, agent: &AgentId) -> bool {
        let (slurm_job, node) = agent;
        self.job_lifecycles().any(|lifecycle| {
            let worker = lifecycle.workers.get(node);
            worker.is_some_and(|w| w.slurm_job == *slurm_job)
        })
    }

    /// The record of a job for the store.
    pub fn lead_record(&self, job: JobId, now: UnixTime) -> Option<LeadRecord> {
        let entry = self.jobs.get(&job)?;
        Some(LeadRecord {
            job,
            submitted_at: entry.details.submitted_at,
            user_id: entry.details.user_id,
            updated_at: now,
            ended: entry.has_ended(),
            state: entry.lifecycle.to_record(),
        })
    }

    /// Keeps the round's reason why each job has its nodes.
    pub fn remember_why(&mut self, report: &RoundReport) {
        for verdict in &report.jobs {
            if let Some(entry) = self.jobs.get_mut(&verdict.job) {
                entry.details.why = verdict.full_sentence();
            }
        }
    }

    /// Forgets the oldest ended jobs beyond [`MAX_ENDED`], if they are stored. Returns the forgotten jobs.
    pub fn forget_ended_jobs(&mut self, is_stored: impl Fn(JobId) -> bool) -> Vec<JobId> {
        let ended = self.jobs.iter().filter(|(_, e)| e.has_ended());
        let mut ended: Vec<(UnixTime, JobId)> = ended.map(|(id, e)| (e.lifecycle.since, *id)).collect();
        ended.sort_unstable();
        let excess = ended.len().saturating_sub(MAX_ENDED);
        let oldest = ended[..excess].iter().map(|(_, job)| *job);
        let forgotten: Vec<JobId> = oldest.filter(|job| is_stored(*job)).collect();
        for job in &forgotten {
            self.jobs.remove(job);
        }
        forgotten
    }
}

/// The end of a node's window; unknown for a node that is not a gap.
fn window_end(gaps: &GapSet, node: &NodeName) -> WindowEnd {
    gaps.get(node).map_or(WindowEnd::Unknown, |gap| gap.end.clone())
}

#[cfg(test)]
mod tests {
    use crate::fleet::tests::rig::{LEAD, Rig, fleet, n};

    #[test]
    fn a_lead_claims_its_nodes_for_as_long_as_starting_takes_there() {
        fn held_after(rig: &Rig, secs: f64) -> usize {
            let now = rig.now.plus_secs(secs);
            rig.fleet.job_lifecycle(LEAD).unwrap().held_nodes(now).len()
        }
        let mut rig = fleet("launching n1 n2");
        assert_eq!((held_after(&rig, 19.0), held_after(&rig, 21.0)), (2, 1));
        // A prolog of 45 s.
        rig.fleet.set_start_secs(46.0);
        drop(rig.target(LEAD, &[n(1), n(2)]));
        assert_eq!((held_after(&rig, 65.0), held_after(&rig, 67.0)), (2, 1));
    }
}
