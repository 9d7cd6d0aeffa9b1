//! The fleet, and one job's turn.

use std::collections::{BTreeMap, BTreeSet};

use tracing::Level;

use super::entry::{About, Entry};
use super::output::{Batch, Output};
use crate::config::Config;
use crate::daemon::lines::{Agent, Word};
use crate::daemon::orders::Orders;
use crate::generation::{Effect, Ground, Machine, Outcome, Settings};
use crate::model::{Gaps, JobId, JobPlan, NodeName, Report, UnixTime, WindowEnd};
use crate::store::{GenerationRecord, LeadRecord};

/// Ended jobs that are still shown.
const MAX_ENDED: usize = 200;

/// All malleable jobs.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub(super) settings: Settings,
    /// By lead.
    pub(super) jobs: BTreeMap<JobId, Entry>,
    /// Numbers for orders of wings.
    pub orders: Orders,
    /// Wings without a lead that were cancelled, and when.
    pub(super) orphans: BTreeMap<JobId, UnixTime>,
    /// When each node was last used by us.
    pub(super) left_at: BTreeMap<NodeName, UnixTime>,
}

impl Fleet {
    /// No jobs yet.
    pub fn new(config: &Config) -> Self {
        let qos = &config.slurm.qos;
        let settings = Settings {
            partition: config.slurm.partition.clone(),
            qos: (!qos.is_empty()).then(|| qos.clone()),
            wing_start_secs: config.agent.wing_start_secs,
            lead_start_secs: config.agent.lead_start_secs,
            backoff_secs: config.daemon.backoff_secs,
            backoff_max_secs: config.daemon.backoff_max_secs,
        };
        Fleet {
            settings,
            jobs: BTreeMap::new(),
            orders: Orders::default(),
            orphans: BTreeMap::new(),
            left_at: BTreeMap::new(),
        }
    }

    /// Takes up what the last daemon stored of its jobs.
    pub fn restore(&mut self, leads: Vec<LeadRecord>, now: UnixTime) -> Output {
        let mut out = Output::default();
        for lead in leads {
            match Machine::from_record(lead.state) {
                Ok(mut machine) => {
                    machine.resume(now);
                    let about = About { submitted_at: lead.submitted_at, ..About::default() };
                    self.jobs.insert(lead.job, Entry::new(machine, about));
                }
                Err(e) => {
                    let text = format!("left out a job whose record is unreadable: {e}");
                    out.note(Level::WARN, lead.job, text);
                }
            }
        }
        out
    }

    /// A job's state machine.
    pub fn machine(&self, job: JobId) -> Option<&Machine> {
        self.jobs.get(&job).map(|e| &e.machine)
    }

    /// What else is known of a job.
    pub fn about(&self, job: JobId) -> Option<&About> {
        self.jobs.get(&job).map(|e| &e.about)
    }

    /// The state machines of all jobs, ended ones that are still shown included.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.jobs.values().map(|e| &e.machine)
    }

    /// Nodes on which any part of a malleable job is or will be in a moment.
    pub fn occupied(&self) -> BTreeMap<NodeName, JobId> {
        self.machines().flat_map(|m| m.occupied().into_keys().map(|n| (n, m.job))).collect()
    }

    /// Lets time pass for all jobs.
    pub fn tick(&mut self, now: UnixTime) -> Output {
        let mut out = Output::default();
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            out.merge(self.turn(job, Outcome::default(), now));
        }
        out
    }

    /// Applies the planner's word to one job, whose nodes' windows these gaps tell.
    pub fn set_target(&mut self, plan: &JobPlan, gaps: &Gaps, now: UnixTime) -> Output {
        let others: BTreeSet<NodeName> =
            self.machines().filter(|m| m.job != plan.job).flat_map(|m| m.occupied().into_keys()).collect();
        let window = |n: &NodeName| gaps.get(n).map_or(WindowEnd::Unknown, |g| g.end.clone());
        let free = |n: &NodeName| !others.contains(n);
        let Some(entry) = self.jobs.get_mut(&plan.job) else { return Output::default() };
        let mut outcome = Outcome::default();
        let ground = Ground { window: &window, free: &free };
        entry.machine.set_target(plan, &ground, &mut self.orders, &self.settings, now, &mut outcome);
        self.turn(plan.job, outcome, now)
    }

    /// Takes in that an effect could not be carried out; `passing`: trying again may help.
    pub fn effect_failed(
        &mut self,
        job: JobId,
        effect: &Effect,
        why: &str,
        passing: bool,
        now: UnixTime,
    ) -> Output {
        let mut outcome = Outcome::default();
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.machine.effect_failed(effect, why, passing, &self.settings, now, &mut outcome);
        }
        self.turn(job, outcome, now)
    }

    /// Steps one machine as far as it goes, and says what follows from that and from what it was just told.
    pub(super) fn turn(&mut self, job: JobId, mut outcome: Outcome, now: UnixTime) -> Output {
        let mut out = Output::default();
        let Some(entry) = self.jobs.get_mut(&job) else { return out };
        entry.machine.step(&self.settings, now, &mut outcome);
        if entry.was_interrupted() {
            out.interrupted.push(job);
        }
        entry.note_pause(now);
        entry.note_end();
        out.ended.extend(entry.has_ended().then_some(job));
        outcome.notes.iter().for_each(|note| out.note(Level::INFO, job, note));
        if let Some((generation, nodes, why)) = outcome.started {
            let text = format!("generation {generation} begins on {} nodes: {why}", nodes.len());
            out.note(Level::INFO, job, text);
            entry.about.rates.clear();
            out.generations.push(GenerationRecord { job, generation, started_at: now, nodes, why });
        }
        out.stop_secs = outcome.stop_secs;
        out.strikes = outcome.strikes;
        if outcome.effects.iter().any(|e| matches!(e, Effect::Launch { .. })) {
            entry.about.launched_at = Some(now);
        }
        out.turned.insert(job);
        if entry.remark() || !outcome.effects.is_empty() {
            out.changed.insert(job);
            out.batches.push(Batch { job, effects: outcome.effects });
        }
        out
    }

    /// What the agents of a job shall do now.
    pub fn words(&self, job: JobId) -> Vec<Word> {
        let Some(machine) = self.machine(job) else { return Vec::new() };
        let word = |(node, worker): (&NodeName, &crate::generation::Worker)| Word {
            agent: (worker.slurm_job, node.clone()),
            directive: machine.directive(node),
            wings: if worker.slurm_job == job { machine.orders() } else { Vec::new() },
        };
        machine.workers.iter().map(word).collect()
    }

    /// Whether this agent has a place in a job.
    pub fn has_agent(&self, (slurm_job, node): &Agent) -> bool {
        self.machines().any(|m| m.workers.get(node).is_some_and(|w| w.slurm_job == *slurm_job))
    }

    /// What is to be stored of a job.
    pub fn record(&self, job: JobId, now: UnixTime) -> Option<LeadRecord> {
        let entry = self.jobs.get(&job)?;
        Some(LeadRecord {
            job,
            submitted_at: entry.about.submitted_at,
            updated_at: now,
            ended: entry.has_ended(),
            state: entry.machine.record(),
        })
    }

    /// Keeps in mind why each job has what it has.
    pub fn remember_why(&mut self, report: &Report) {
        for verdict in &report.jobs {
            if let Some(entry) = self.jobs.get_mut(&verdict.job) {
                entry.about.why = verdict.why.to_string();
            }
        }
    }

    /// Forgets the oldest ended jobs that are stored; returns which.
    pub fn sweep(&mut self, is_stored: impl Fn(JobId) -> bool) -> Vec<JobId> {
        let ended = self.jobs.iter().filter(|(_, e)| e.has_ended());
        let mut ended: Vec<(UnixTime, JobId)> = ended.map(|(id, e)| (e.machine.since, *id)).collect();
        ended.sort_unstable();
        let beyond = ended.len().saturating_sub(MAX_ENDED);
        let old: Vec<JobId> = ended[..beyond].iter().map(|(_, job)| *job).filter(|j| is_stored(*j)).collect();
        old.iter().for_each(|job| drop(self.jobs.remove(job)));
        old
    }
}
