//! The fleet, and one job's turn.

use std::collections::{BTreeMap, BTreeSet};

use tracing::Level;

use super::agent_orders::{AgentId, AgentOrder, can_read_directive, required_capability};
use super::fleet_job::{FleetJob, JobDetails};
use super::fleet_outcome::{EffectBatch, FleetOutcome, JobEnd, LearningEvent};
use super::lead_starts::LastTrustedSnapshot;
use super::order_numbers::ReservedOrderNumbers;
use super::start_conflict::StartConflict;
use crate::{
    CLAIM_SECS, Effect, JobLifecycle, LifecycleSettings, MemoryOverflow, START_SECS, StepOutcome,
    TargetContext,
};
use infill_model::{
    GapSet, GenerationRecord, JobId, JobPlan, LeadRecord, LendingMode, LendingRules, NodeName, NodeStrike,
    RoundReport, UnixTime, WindowEnd, WorkerShare, config::Config,
};

/// A wing that Slurm shows running is waited for so many times longer than one that waits, until it was
/// measured how long starts take: a prolog may take a minute and more.
const UNMEASURED_TIMES: f64 = 5.0;

/// Then it is waited for so many times what it has taken, but for no longer than [`MOST_START_SECS`].
const START_TIMES: f64 = 3.0;

/// Longest time for which a wing that runs is waited for, seconds.
const MOST_START_SECS: f64 = 600.0;

/// slurmctld keeps wings that have ended for a while (MinJobAge), and they fill MaxJobCount as the others do:
/// with them there are at most so many times `slurm.max_wings`.
const KEPT_TIMES: usize = 3;

/// Ended jobs that are still shown.
const MAX_ENDED: usize = 200;

/// All malleable jobs.
#[derive(Clone, Debug)]
pub struct JobFleet {
    pub(super) settings: LifecycleSettings,
    /// What parts of nodes are lent, if it is not whole ones.
    pub(super) parts: Option<LendingRules>,
    /// Most wings of all jobs together.
    max_wings: usize,
    /// Wings that have ended and that slurmctld still keeps.
    pub(super) ended_wings: usize,
    /// By lead.
    pub(super) jobs: BTreeMap<JobId, FleetJob>,
    /// Numbers for orders of wings.
    pub orders: ReservedOrderNumbers,
    /// Wings without a lead that were cancelled, and when.
    pub(super) orphans: BTreeMap<JobId, UnixTime>,
    /// Wings of main jobs that have not said hello, and since when these wings are known.
    pub(super) waiting_wings: BTreeMap<JobId, UnixTime>,
    /// What is in the way of a main job that takes nodes back.
    pub(super) start_conflict: StartConflict,
    /// What is known of the last snapshot that was trusted.
    pub(super) last_snapshot: LastTrustedSnapshot,
    /// When each node was last used by us.
    pub(super) left_at: BTreeMap<NodeName, UnixTime>,
}

impl JobFleet {
    /// No jobs yet.
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
            parts: (config.gaps.lend == LendingMode::Gpus).then(|| config.nodes.clone()),
            max_wings: config.slurm.max_wings as usize,
            ended_wings: 0,
            jobs: BTreeMap::new(),
            orders: ReservedOrderNumbers::default(),
            orphans: BTreeMap::new(),
            waiting_wings: BTreeMap::new(),
            start_conflict: StartConflict::default(),
            last_snapshot: LastTrustedSnapshot::default(),
            left_at: BTreeMap::new(),
        }
    }

    /// Takes in what it has taken lately from an order until the agent said hello, on the slowest nodes.
    pub fn set_start_secs(&mut self, measured_secs: f64) {
        let least_secs = self.settings.wing_start_secs;
        let most_secs = least_secs.max(MOST_START_SECS);
        self.settings.prolog_secs = (START_TIMES * measured_secs).clamp(least_secs, most_secs);
        self.settings.claim_secs = (CLAIM_SECS + measured_secs).min(most_secs);
    }

    /// How many places of a node each worker of a job has that asks for this.
    pub(super) fn places_per_worker(&self, share: Option<WorkerShare>) -> u32 {
        share.zip(self.parts.as_ref()).map_or(1, |(share, parts)| share.place_count(parts))
    }

    /// Takes up what the last daemon stored of its jobs.
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

    /// A job's state machine.
    pub fn job_lifecycle(&self, job: JobId) -> Option<&JobLifecycle> {
        self.jobs.get(&job).map(|e| &e.lifecycle)
    }

    /// Sets what the owner of a job should know.
    pub fn set_notice(&mut self, job: JobId, notice: Option<String>) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.details.notice = notice;
        }
    }

    /// What else is known of a job.
    pub fn job_details(&self, job: JobId) -> Option<&JobDetails> {
        self.jobs.get(&job).map(|e| &e.details)
    }

    /// The state machines of all jobs, ended ones that are still shown included.
    pub fn job_lifecycles(&self) -> impl Iterator<Item = &JobLifecycle> {
        self.jobs.values().map(|e| &e.lifecycle)
    }

    /// Nodes, or places of nodes, on which any part of a malleable job is or will be in a moment.
    pub fn occupied_nodes(&self) -> BTreeMap<NodeName, JobId> {
        let parts = |m: &JobLifecycle| {
            m.occupied_nodes().into_keys().flat_map(|n| n.single_places()).collect::<Vec<_>>()
        };
        self.job_lifecycles().flat_map(|m| parts(m).into_iter().map(|n| (n, m.job))).collect()
    }

    /// Lets time pass for all jobs.
    pub fn step_all_jobs(&mut self, now: UnixTime) -> FleetOutcome {
        let mut out = FleetOutcome::default();
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            out.merge(self.step_job(job, StepOutcome::default(), now));
        }
        out
    }

    /// Blames nobody for seconds in which nothing was heard: see [`JobLifecycle::forgive`].
    pub fn shift_times(&mut self, secs: f64) {
        for entry in self.jobs.values_mut() {
            entry.shift_times(secs);
        }
        for at in
            self.orphans.values_mut().chain(self.waiting_wings.values_mut()).chain(self.left_at.values_mut())
        {
            *at = at.plus_secs(secs);
        }
    }

    /// Applies the planner's word to one job, whose nodes' windows these gaps tell.
    pub fn set_target(&mut self, plan: &JobPlan, gaps: &GapSet, now: UnixTime) -> FleetOutcome {
        let others =
            self.job_lifecycles().filter(|m| m.job != plan.job).flat_map(|m| m.occupied_nodes().into_keys());
        let others: BTreeSet<NodeName> = others.flat_map(|n| n.single_places()).collect();
        let window = |n: &NodeName| gaps.get(n).map_or(WindowEnd::Unknown, |g| g.end.clone());
        let free = |n: &NodeName| !n.single_places().iter().any(|part| others.contains(part));
        let backfill = self.last_snapshot.backfill.clone();
        let startable_secs = |n: &NodeName| backfill.startable_secs(&window(n), now);
        let wings_left = self.wings_left();
        let Some(entry) = self.jobs.get_mut(&plan.job) else { return FleetOutcome::default() };
        let mut outcome = StepOutcome::default();
        let context =
            TargetContext { window: &window, free: &free, startable_secs: &startable_secs, wings_left };
        entry.lifecycle.set_target(plan, &context, &mut self.orders, &self.settings, now, &mut outcome);
        self.step_job(plan.job, outcome, now)
    }

    /// Whether Slurm should be looked at because a lead that was released has had time to start, and no look
    /// has shown yet whether it did.
    pub fn awaits_lead_start(&self, now: UnixTime) -> bool {
        let awaiting = self.job_lifecycles().filter(|m| m.awaits_start_on().is_some());
        awaiting.filter_map(|m| m.obstacles.released_at).any(|released: UnixTime| {
            let due = released.plus_secs(START_SECS);
            due <= now && self.last_snapshot.read_at < due
        })
    }

    /// Wings that may still be ordered.
    fn wings_left(&self) -> usize {
        let live: usize = self.job_lifecycles().map(|m| m.wings.len()).sum();
        let most_ended = self.max_wings.saturating_mul(KEPT_TIMES).saturating_sub(self.ended_wings);
        self.max_wings.min(most_ended).saturating_sub(live)
    }

    /// Takes in that an effect was carried out.
    pub fn effect_done(&mut self, job: JobId, effect: &Effect, now: UnixTime) -> FleetOutcome {
        match (effect, self.jobs.get_mut(&job)) {
            (Effect::Launch { .. }, Some(entry)) => entry.lifecycle.record_release(now),
            _ => return FleetOutcome::default(),
        }
        self.step_job(job, StepOutcome::default(), now)
    }

    /// Takes in that an effect could not be carried out; `passing`: trying again may help.
    pub fn effect_failed(
        &mut self,
        job: JobId,
        effect: &Effect,
        why: &str,
        passing: bool,
        now: UnixTime,
    ) -> FleetOutcome {
        let mut outcome = StepOutcome::default();
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.lifecycle.effect_failed(effect, why, passing, &self.settings, now, &mut outcome);
        }
        self.step_job(job, outcome, now)
    }

    /// Takes in that an effect was not carried out, because the plan that it came from is out of date.
    pub fn effect_outdated(&mut self, job: JobId, effect: &Effect, now: UnixTime) -> FleetOutcome {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.lifecycle.effect_outdated(effect, now);
        }
        self.step_job(job, StepOutcome::default(), now)
    }

    /// The job was to be given nodes by a plan that is out of date: an older one does not stand in for it.
    pub fn plan_outdated(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.lifecycle.plan_outdated();
        }
    }

    /// Steps one machine as far as it goes, and says what follows from that and from what it was just told.
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
        out.ended
            .extend(entry.has_ended().then(|| JobEnd { job, gone: entry.finished_job(now).map(Box::new) }));
        outcome.notes.iter().for_each(|note| out.add_note(Level::INFO, job, note));
        if let Some((generation, nodes, why)) = outcome.started {
            let text = format!("generation {generation} begins on {} nodes: {why}", nodes.len());
            out.add_note(Level::INFO, job, text);
            entry.details.rates.clear();
            out.generations.push(GenerationRecord { job, generation, started_at: now, nodes, why });
        }
        let of = LearningEvent {
            program: entry.program_identity(),
            lead: entry.lifecycle.lead_node().cloned(),
            what: (),
        };
        out.stops = outcome.stops.into_iter().map(|stop| of.with_event(stop)).collect();
        out.lived_through = outcome.lived_through.into_iter().map(|change| of.with_event(change)).collect();
        let program = &of.program;
        let overflowed =
            |MemoryOverflow { nodes, lead }| LearningEvent { program: program.clone(), lead, what: nodes };
        out.overflowed = outcome.overflowed.into_iter().map(overflowed).collect();
        out.arrived = outcome.arrived;
        // Scripts of wings that an older agent wrote may name a program that an upgrade has replaced.
        if let Some(user) = entry.details.user_id.filter(|_| entry.lifecycle.outdated_lead_reason().is_none())
        {
            out.strikes = outcome
                .strikes
                .into_iter()
                .map(|(node, why)| (node, NodeStrike { job, user, why, at: now }))
                .collect();
        }
        out.acquitted.extend(outcome.acquitted.then_some(job));
        if outcome.effects.iter().any(|e| matches!(e, Effect::Launch { .. })) {
            entry.details.launched_at = Some(now);
        }
        out.turned.insert(job);
        if entry.refresh_durable_state() || !outcome.effects.is_empty() {
            out.changed.insert(job);
            out.batches.push(EffectBatch { job, effects: outcome.effects });
        }
        out
    }

    /// What the agents of a job shall do now.
    pub fn agent_orders(&self, job: JobId) -> Vec<AgentOrder> {
        let Some(lifecycle) = self.job_lifecycle(job) else { return Vec::new() };
        let word = |(node, worker): (&NodeName, &crate::Worker)| AgentOrder {
            agent: (worker.slurm_job, node.clone()),
            directive: lifecycle.directive_for(node),
            wings: if worker.slurm_job == job { lifecycle.wing_orders() } else { Vec::new() },
            notice: self.job_details(job).filter(|_| worker.slurm_job == job).and_then(|a| a.notice.clone()),
        };
        // Who cannot read a word keeps to the one before.
        let all = lifecycle.workers.iter().map(|worker| (&worker.1.dialect, word(worker)));
        all.filter(|(dialect, word)| can_read_directive(dialect, &word.directive, required_capability))
            .map(|(_, word)| word)
            .collect()
    }

    /// Whether this agent has a place in a job.
    pub fn has_agent(&self, (slurm_job, node): &AgentId) -> bool {
        self.job_lifecycles().any(|m| m.workers.get(node).is_some_and(|w| w.slurm_job == *slurm_job))
    }

    /// What is to be stored of a job.
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

    /// Keeps in mind why each job has what it has.
    pub fn remember_why(&mut self, report: &RoundReport) {
        for verdict in &report.jobs {
            if let Some(entry) = self.jobs.get_mut(&verdict.job) {
                entry.details.why = verdict.full_sentence();
            }
        }
    }

    /// Forgets the oldest ended jobs that are stored; returns which.
    pub fn forget_ended_jobs(&mut self, is_stored: impl Fn(JobId) -> bool) -> Vec<JobId> {
        let ended = self.jobs.iter().filter(|(_, e)| e.has_ended());
        let mut ended: Vec<(UnixTime, JobId)> = ended.map(|(id, e)| (e.lifecycle.since, *id)).collect();
        ended.sort_unstable();
        let beyond = ended.len().saturating_sub(MAX_ENDED);
        let old: Vec<JobId> = ended[..beyond].iter().map(|(_, job)| *job).filter(|j| is_stored(*j)).collect();
        old.iter().for_each(|job| drop(self.jobs.remove(job)));
        old
    }
}

#[cfg(test)]
mod tests {
    use crate::fleet::tests::rig::{LEAD, Rig, fleet, n};

    #[test]
    fn a_lead_claims_its_nodes_for_as_long_as_starting_takes_there() {
        let mut rig = fleet("launching n1 n2");
        let claims = |rig: &Rig, secs| {
            let now = rig.now.plus_secs(secs);
            rig.fleet.job_lifecycle(LEAD).unwrap().held_nodes(now).len()
        };
        assert_eq!((claims(&rig, 19.0), claims(&rig, 21.0)), (2, 1));
        // A prolog of 45 s.
        rig.fleet.set_start_secs(46.0);
        drop(rig.target(LEAD, &[n(1), n(2)]));
        assert_eq!((claims(&rig, 65.0), claims(&rig, 67.0)), (2, 1));
    }
}
