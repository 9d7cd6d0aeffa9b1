//! What agents say: hellos, signs of life, events.

use std::collections::BTreeSet;

use super::fleet_job::FleetJob;
use super::fleet_outcome::{FleetOutcome, WorkerProgress};
use super::job_fleet::JobFleet;
use crate::{AuthenticatedHello, JobPhase, StepOutcome};
use infill_api::AgentReport;
use infill_model::{AgentEvent, GenerationStartup, JobId, NodeName, UnixTime, UserId, WorkerStartup as Told};

/// Most samples that one report may claim: a second of the fastest program that could be.
const MAX_SAMPLES: f64 = 1e15;

/// One report of progress.
#[derive(Clone, Copy, Debug)]
struct ProgressEvent<'a> {
    samples: f64,
    secs: f64,
    step: Option<u64>,
    loss: Option<f64>,
    total: Option<f64>,
    opening: Option<&'a Told>,
}

impl ProgressEvent<'_> {
    fn is_valid(&self) -> bool {
        (0.0..=MAX_SAMPLES).contains(&self.samples) && self.secs.is_finite() && self.secs > 0.0
    }
}

impl JobFleet {
    /// Takes in an agent whose identity was proved. `None`: it has no place in the job.
    pub fn handle_hello(
        &mut self,
        lead: JobId,
        arrival: AuthenticatedHello,
        now: UnixTime,
    ) -> Option<FleetOutcome> {
        let entry = self.jobs.get_mut(&lead)?;
        let mut outcome = StepOutcome::default();
        let taken = entry.lifecycle.handle_hello(arrival, now, &mut outcome);
        taken.then(|| self.step_job(lead, outcome, now))
    }

    /// Notes a sign of life; `false` when the agent's job is gone.
    pub fn record_heartbeat(&mut self, job: JobId, node: &NodeName, now: UnixTime) -> bool {
        let Some(lead) = self.lead_of_job(job) else { return false };
        self.jobs.get_mut(&lead).is_some_and(|e| e.lifecycle.record_heartbeat(node, job, now))
    }

    /// Takes in an agent's report. `None`: it belongs to no job.
    pub fn handle_report(&mut self, report: &AgentReport, now: UnixTime) -> Option<FleetOutcome> {
        let lead = self.lead_of_job(report.job)?;
        let entry = self.jobs.get_mut(&lead)?;
        let mut outcome = StepOutcome::default();
        let mut measured = Vec::new();
        for event in &report.events {
            if matches!(event, AgentEvent::Leaving) {
                let here = entry.lifecycle.workers.values().map(|w| w.slurm_job);
                self.start_conflict.record_taken_node(&report.node, here, now);
            }
            measured.extend(entry.handle_progress(&report.node, event, now));
            entry.lifecycle.handle_event(&report.node, event, &self.settings, now, &mut outcome);
        }
        let mut out = self.step_job(lead, outcome, now);
        out.measured = measured;
        Some(out)
    }

    /// The user whose agent runs in this Slurm job.
    pub fn agent_owner(&self, job: JobId) -> Option<UserId> {
        self.job_details(self.lead_of_job(job)?)?.user_id
    }

    /// The malleable job to which a Slurm job belongs.
    fn lead_of_job(&self, job: JobId) -> Option<JobId> {
        if self.jobs.contains_key(&job) {
            return Some(job);
        }
        // Only agents that have proved themselves: what a lead says of its wings is not enough.
        self.job_lifecycles().find(|m| m.workers.values().any(|w| w.slurm_job == job)).map(|m| m.job)
    }
}

impl FleetJob {
    /// Takes in what a worker tells of its progress. Returns what it says of the present generation.
    fn handle_progress(
        &mut self,
        node: &NodeName,
        event: &AgentEvent,
        now: UnixTime,
    ) -> Option<WorkerProgress> {
        let AgentEvent::Progress { generation, samples, secs, step, loss, total, opening } = event else {
            return None;
        };
        let generation = *generation;
        let samples = *samples;
        let secs = *secs;
        let told = ProgressEvent {
            samples,
            secs,
            step: *step,
            loss: *loss,
            total: *total,
            opening: opening.as_ref(),
        };
        if !told.is_valid() {
            return None;
        }
        self.update_totals(node, &told);
        let JobPhase::Running { members } = &self.lifecycle.phase else { return None };
        let of_the_lead = self.lifecycle.lead_node() == Some(node);
        // What a change cost is told by the lead, which sees it whole.
        if generation != self.lifecycle.generation.number || (opening.is_some() && !of_the_lead) {
            return None;
        }
        let nodes = self.lifecycle.generation_node_count(members.len());
        let all = self.lifecycle.generation_nodes(members);
        let hosts: BTreeSet<NodeName> = all.iter().map(NodeName::host).collect();
        let opening = told.opening.map(|opening| {
            // It makes samples again, whatever such a change was expected to take.
            self.pause = None;
            let launched_at = self.details.launched_at.take();
            generation_startup(opening, samples, secs, launched_at.map(|t| now.secs_since(t) - secs))
        });
        Some(WorkerProgress {
            job: self.lifecycle.job,
            program: self.program_identity(),
            lead: self.lifecycle.lead_node().cloned(),
            node: node.clone(),
            generation,
            nodes,
            hosts: hosts.into_iter().collect(),
            samples,
            secs,
            step: told.step,
            opening,
        })
    }

    /// Adds to the sums that people are shown.
    fn update_totals(&mut self, node: &NodeName, told: &ProgressEvent<'_>) {
        self.lifecycle.counts.course.record_progress(told.samples, told.step, told.total);
        let course = &mut self.lifecycle.counts.course;
        if told.loss.is_some_and(|loss| self.losses.add(course.samples, loss)) {
            course.record_plateau(self.losses.flat_after_samples());
        }
        let details = &mut self.details;
        details.loss = told.loss.filter(|l| l.is_finite()).or(details.loss);
        if told.opening.is_none() {
            details.rates.insert(node.clone(), told.samples / told.secs);
        }
    }
}

/// How a generation came about, with the time of its first report. Of a start the agent has seen only what
/// came after its own; the lead was launched `launched_secs` before the command. Without a launch and a stop
/// before it, the command had failed and was started again.
fn generation_startup(
    told: &Told,
    samples: f64,
    start_secs: f64,
    launched_secs: Option<f64>,
) -> GenerationStartup {
    let sound = |secs: f64| if secs.is_finite() { secs.max(0.0) } else { 0.0 };
    let idle_secs = match (told.stop_secs, launched_secs) {
        (None, Some(launched)) => told.idle_secs.max(launched),
        _ => told.idle_secs,
    };
    GenerationStartup {
        saved_secs: told.saved_secs.map(sound),
        stop_secs: told.stop_secs.map(sound),
        idle_secs: sound(idle_secs),
        start_secs,
        samples,
        counts: told.stop_secs.is_some() || launched_secs.is_some(),
    }
}
