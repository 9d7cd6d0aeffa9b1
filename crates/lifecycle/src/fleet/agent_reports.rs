//! Handles messages of agents: hellos, heartbeats, events.

use std::collections::BTreeSet;

use super::fleet_job::FleetJob;
use super::fleet_outcome::{FleetOutcome, WorkerProgress};
use super::job_fleet::JobFleet;
use crate::{AuthenticatedHello, JobPhase, StepOutcome};
use infill_api::AgentReport;
use infill_model::{AgentEvent, GenerationStartup, JobId, NodeName, UnixTime, UserId, WorkerStartup};

/// Largest credible number of samples in one report: more than any program can process between two reports.
const MAX_SAMPLES: f64 = 1e15;

/// One report of progress.
#[derive(Clone, Copy, Debug)]
struct ProgressEvent<'a> {
    /// Samples since the last report.
    samples: f64,
    /// Seconds since the last report. In a report with a `startup`, seconds since the command's start.
    secs: f64,
    step: Option<u64>,
    loss: Option<f64>,
    /// Length of the whole training, if the command reports it: steps if it reports steps, else samples.
    total: Option<f64>,
    /// How much the job counts among its owner's jobs, if the command reports it.
    weight: Option<f64>,
    /// How the generation started; only in its first report.
    startup: Option<&'a WorkerStartup>,
}

impl ProgressEvent<'_> {
    fn is_valid(&self) -> bool {
        (0.0..=MAX_SAMPLES).contains(&self.samples) && self.secs.is_finite() && self.secs > 0.0
    }
}

impl JobFleet {
    /// Takes in an authenticated agent; `None` if it has no place in the job.
    pub fn handle_hello(
        &mut self,
        lead: JobId,
        hello: AuthenticatedHello,
        now: UnixTime,
    ) -> Option<FleetOutcome> {
        let entry = self.jobs.get_mut(&lead)?;
        let mut outcome = StepOutcome::default();
        let is_accepted = entry.lifecycle.handle_hello(hello, now, &mut outcome);
        if !is_accepted {
            return None;
        }
        Some(self.step_job(lead, outcome, now))
    }

    /// Records a heartbeat. Returns `false` if the agent does not belong to a job.
    pub fn record_heartbeat(&mut self, job: JobId, node: &NodeName, now: UnixTime) -> bool {
        let Some(lead) = self.lead_of_job(job) else { return false };
        let Some(entry) = self.jobs.get_mut(&lead) else { return false };
        entry.lifecycle.record_heartbeat(node, job, now)
    }

    /// Applies an agent's report; `None` if the agent does not belong to a job.
    pub fn handle_report(&mut self, report: &AgentReport, now: UnixTime) -> Option<FleetOutcome> {
        let lead = self.lead_of_job(report.job)?;
        let entry = self.jobs.get_mut(&lead)?;
        let mut outcome = StepOutcome::default();
        let mut progress = Vec::new();
        entry.lifecycle.record_gpu_use(&report.node, report.gpus);
        let is_repeated = entry.is_repeated_report(report);
        for event in &report.events {
            if matches!(event, AgentEvent::Leaving) {
                let present = entry.lifecycle.workers.values().map(|w| w.slurm_job);
                self.start_conflict.record_taken_node(&report.node, present, now);
            }
            // All other events say the same however often they arrive. Progress would count twice.
            if !is_repeated {
                progress.extend(entry.handle_progress(&report.node, event, now));
            }
            entry.lifecycle.handle_event(&report.node, event, &self.settings, now, &mut outcome);
        }
        let mut out = self.step_job(lead, outcome, now);
        out.progress = progress;
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
        // Counts only authenticated agents: a lead's report of a wing's job id is not enough.
        let mut lifecycles = self.job_lifecycles();
        let owner = lifecycles.find(|lifecycle| lifecycle.workers.values().any(|w| w.slurm_job == job));
        owner.map(|lifecycle| lifecycle.job)
    }
}

impl FleetJob {
    /// Whether the worker repeats its last report. Remembers the number of a new one.
    fn is_repeated_report(&mut self, report: &AgentReport) -> bool {
        let Some(number) = report.number else { return false };
        let workers = &self.lifecycle.workers;
        self.last_reports.retain(|node, _| workers.contains_key(node) || *node == report.node);
        self.last_reports.insert(report.node.clone(), number) == Some(number)
    }

    /// Applies a worker's report of progress. Updates the job's totals first, whatever the generation of the
    /// report. Returns the progress if it belongs to the present generation; `None` for the opening report of
    /// every worker but the lead, which alone sees the whole cost of a change.
    fn handle_progress(
        &mut self,
        node: &NodeName,
        event: &AgentEvent,
        now: UnixTime,
    ) -> Option<WorkerProgress> {
        let AgentEvent::Progress { generation, samples, secs, step, loss, total, weight, startup } = event
        else {
            return None;
        };
        let generation = *generation;
        let samples = *samples;
        let secs = *secs;
        let progress = ProgressEvent {
            samples,
            secs,
            step: *step,
            loss: *loss,
            total: *total,
            weight: *weight,
            startup: startup.as_ref(),
        };
        if !progress.is_valid() {
            return None;
        }
        self.update_totals(node, &progress);
        let JobPhase::Running { members } = &self.lifecycle.phase else { return None };
        let is_from_lead = self.lifecycle.lead_node() == Some(node);
        // Only the lead sees the whole cost of a change, so other workers' first reports do not count.
        if generation != self.lifecycle.generation.number || (startup.is_some() && !is_from_lead) {
            return None;
        }
        let nodes = self.lifecycle.generation_node_count(members.len());
        let all_nodes = self.lifecycle.generation_nodes(members);
        let hosts: BTreeSet<NodeName> = all_nodes.iter().map(NodeName::host).collect();
        let startup = progress.startup.map(|startup| {
            // The job processes samples again: the pause is over, even if it was expected to last longer.
            self.pause = None;
            let launched_at = self.details.launched_at.take();
            generation_startup(startup, samples, secs, launched_at.map(|t| now.secs_since(t) - secs))
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
            step: progress.step,
            startup,
        })
    }

    /// Updates the job's totals, loss and rates.
    fn update_totals(&mut self, node: &NodeName, progress: &ProgressEvent<'_>) {
        self.lifecycle.counts.progress.record_progress(progress.samples, progress.step, progress.total);
        let course = &mut self.lifecycle.counts.progress;
        course.record_weight(progress.weight);
        if progress.loss.is_some_and(|loss| self.losses.add(course.samples, loss)) {
            course.record_plateau(self.losses.flat_after_samples());
        }
        let details = &mut self.details;
        details.loss = progress.loss.filter(|loss| loss.is_finite()).or(details.loss);
        if progress.startup.is_none() {
            details.rates.insert(node.clone(), progress.samples / progress.secs);
        }
    }
}

/// The costs of a generation's start, from its first report. The agent knows only the time after its own
/// start. The lead was launched `launched_secs` before the command. If there was neither a launch nor a stop
/// before, the command had failed and was started again; such a start is not typical.
fn generation_startup(
    startup: &WorkerStartup,
    samples: f64,
    start_secs: f64,
    launched_secs: Option<f64>,
) -> GenerationStartup {
    let idle_secs = match (startup.stop_secs, launched_secs) {
        (None, Some(launched)) => startup.idle_secs.max(launched),
        _ => startup.idle_secs,
    };
    GenerationStartup {
        saved_secs: startup.saved_secs.map(finite_non_negative),
        stop_secs: startup.stop_secs.map(finite_non_negative),
        idle_secs: finite_non_negative(idle_secs),
        start_secs,
        samples,
        counts: startup.stop_secs.is_some() || launched_secs.is_some(),
    }
}

/// `secs`, or 0 if it is negative or not finite.
fn finite_non_negative(secs: f64) -> f64 {
    if secs.is_finite() { secs.max(0.0) } else { 0.0 }
}
