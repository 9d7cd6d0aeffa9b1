//! What agents say: hellos, signs of life, events.

use std::collections::BTreeSet;

use super::entry::Entry;
use super::jobs::Fleet;
use super::output::{Measured, Output};
use crate::{Arrival, Outcome, Phase};
use infill_api::AgentReport;
use infill_model::{AgentEvent, GenerationStartup, JobId, NodeName, UnixTime, UserId, WorkerStartup as Told};

/// Most samples that one report may claim: a second of the fastest program that could be.
const MAX_SAMPLES: f64 = 1e15;

/// One report of progress.
#[derive(Clone, Copy, Debug)]
struct Progress<'a> {
    samples: f64,
    secs: f64,
    step: Option<u64>,
    loss: Option<f64>,
    total: Option<f64>,
    opening: Option<&'a Told>,
}

impl Progress<'_> {
    fn is_sound(&self) -> bool {
        (0.0..=MAX_SAMPLES).contains(&self.samples) && self.secs.is_finite() && self.secs > 0.0
    }
}

impl Fleet {
    /// Takes in an agent whose identity was proved. `None`: it has no place in the job.
    pub fn arrive(&mut self, lead: JobId, arrival: Arrival, now: UnixTime) -> Option<Output> {
        let entry = self.jobs.get_mut(&lead)?;
        let mut outcome = Outcome::default();
        let taken = entry.machine.hello(arrival, now, &mut outcome);
        taken.then(|| self.turn(lead, outcome, now))
    }

    /// Notes a sign of life; `false` when the agent's job is gone.
    pub fn seen(&mut self, job: JobId, node: &NodeName, now: UnixTime) -> bool {
        let Some(lead) = self.lead_of(job) else { return false };
        self.jobs.get_mut(&lead).is_some_and(|e| e.machine.seen(node, job, now))
    }

    /// Takes in an agent's report. `None`: it belongs to no job.
    pub fn report(&mut self, report: &AgentReport, now: UnixTime) -> Option<Output> {
        let lead = self.lead_of(report.job)?;
        let entry = self.jobs.get_mut(&lead)?;
        let (mut outcome, mut measured) = (Outcome::default(), Vec::new());
        for event in &report.events {
            if matches!(event, AgentEvent::Leaving) {
                let here = entry.machine.workers.values().map(|w| w.slurm_job);
                self.racing.taken(&report.node, here, now);
            }
            measured.extend(entry.progress(&report.node, event, now));
            entry.machine.event(&report.node, event, &self.settings, now, &mut outcome);
        }
        let mut out = self.turn(lead, outcome, now);
        out.measured = measured;
        Some(out)
    }

    /// The user whose agent runs in this Slurm job.
    pub fn owner(&self, job: JobId) -> Option<UserId> {
        self.about(self.lead_of(job)?)?.user_id
    }

    /// The malleable job to which a Slurm job belongs.
    fn lead_of(&self, job: JobId) -> Option<JobId> {
        if self.jobs.contains_key(&job) {
            return Some(job);
        }
        // Only agents that have proved themselves: what a lead says of its wings is not enough.
        self.machines().find(|m| m.workers.values().any(|w| w.slurm_job == job)).map(|m| m.job)
    }
}

impl Entry {
    /// Takes in what a worker tells of its progress. Returns what it says of the present generation.
    fn progress(&mut self, node: &NodeName, event: &AgentEvent, now: UnixTime) -> Option<Measured> {
        let AgentEvent::Progress { generation, samples, secs, step, loss, total, opening } = event else {
            return None;
        };
        let (generation, samples, secs) = (*generation, *samples, *secs);
        let told =
            Progress { samples, secs, step: *step, loss: *loss, total: *total, opening: opening.as_ref() };
        if !told.is_sound() {
            return None;
        }
        self.add_up(node, &told);
        let Phase::Running { members } = &self.machine.phase else { return None };
        let of_the_lead = self.machine.lead_node() == Some(node);
        // What a change cost is told by the lead, which sees it whole.
        if generation != self.machine.generation.number || (opening.is_some() && !of_the_lead) {
            return None;
        }
        let nodes = self.machine.nodes_of(members.len());
        let all = self.machine.all_nodes(members);
        let hosts: BTreeSet<NodeName> = all.iter().map(NodeName::host).collect();
        let opening = told.opening.map(|opening| {
            // It makes samples again, whatever such a change was expected to take.
            self.pause = None;
            let launched_at = self.about.launched_at.take();
            begun(opening, samples, secs, launched_at.map(|t| now.secs_since(t) - secs))
        });
        Some(Measured {
            job: self.machine.job,
            program: self.program(),
            lead: self.machine.lead_node().cloned(),
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
    fn add_up(&mut self, node: &NodeName, told: &Progress<'_>) {
        self.machine.counts.course.record_progress(told.samples, told.step, told.total);
        let course = &mut self.machine.counts.course;
        if told.loss.is_some_and(|loss| self.losses.add(course.samples, loss)) {
            course.record_plateau(self.losses.flattens());
        }
        let about = &mut self.about;
        about.loss = told.loss.filter(|l| l.is_finite()).or(about.loss);
        if told.opening.is_none() {
            about.rates.insert(node.clone(), told.samples / told.secs);
        }
    }
}

/// How a generation came about, with the time of its first report. Of a start the agent has seen only what
/// came after its own; the lead was launched `launched_secs` before the command. Without a launch and a stop
/// before it, the command had failed and was started again.
fn begun(told: &Told, samples: f64, start_secs: f64, launched_secs: Option<f64>) -> GenerationStartup {
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
