//! The consequences of a change of the fleet.

use std::collections::BTreeSet;

use tracing::Level;

use crate::Effect;
use infill_model::{
    EndedJob, GenerationRecord, GenerationStartup, GenerationStop, JobFacts, JobId, LiveChange, NodeName,
    NodeStrike, ProgramIdentity, ProgressReport, UnixTime,
};

/// The effects of one job's step.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectBatch {
    /// The malleable job's id.
    pub job: JobId,
    /// Effects on Slurm, in order. An empty batch means that only the job's record must be stored.
    pub effects: Vec<Effect>,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogNote {
    /// Severity of the event.
    pub level: Level,
    /// The malleable job that the line concerns, if any.
    pub job: Option<JobId>,
    /// The event, as text.
    pub text: String,
}

/// Progress that a worker of the present generation reported.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerProgress {
    /// The malleable job's id.
    pub job: JobId,
    /// The program that the job runs.
    pub program: ProgramIdentity,
    /// The lead's node; `None` if unknown.
    pub lead: Option<NodeName>,
    /// The worker's node.
    pub node: NodeName,
    /// Number of the generation.
    pub generation: u64,
    /// Number of nodes of the generation.
    pub nodes: u32,
    /// The hosts of the generation, by name.
    pub hosts: Vec<NodeName>,
    /// Samples since the worker's last report. In a report with a `startup`, samples since the command's
    /// start.
    pub samples: f64,
    /// Seconds since the worker's last report. In a report with a `startup`, seconds since the command's
    /// start.
    pub secs: f64,
    /// The training step, if the command reports it.
    pub step: Option<u64>,
    /// How the generation started; only in its first report.
    pub startup: Option<GenerationStartup>,
}

impl WorkerProgress {
    /// The progress in the form that the advisor uses. `crosses` says whether the hosts are on several leaf
    /// switches.
    pub fn progress_report(&self, crosses: bool) -> ProgressReport<'_> {
        ProgressReport {
            generation: self.generation,
            nodes: self.nodes,
            hosts: self.hosts.len() as u32,
            crosses,
            node: &self.node,
            samples: self.samples,
            secs: self.secs,
            step: self.step,
            startup: self.startup,
        }
    }
}

/// An event from which infill learns about the program that a job runs.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningEvent<T> {
    /// The program that the job runs.
    pub program: ProgramIdentity,
    /// The lead's node; `None` if unknown.
    pub lead: Option<NodeName>,
    /// The event, of the kind that the list holds.
    pub event: T,
}

impl<T> LearningEvent<T> {
    /// Another event of the same job.
    pub fn with_event<U>(&self, event: U) -> LearningEvent<U> {
        LearningEvent { program: self.program.clone(), lead: self.lead.clone(), event }
    }
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct JobEnd {
    /// The malleable job's id.
    pub job: JobId,
    /// The job's last state. Set only once, right after the end, and only if the job has trained.
    pub finished: Option<Box<FinishedJob>>,
}

/// A job that has just ended, with its results.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedJob {
    /// The job's last facts.
    pub facts: JobFacts,
    /// The Slurm account.
    pub account: String,
    /// Hash of the command.
    pub command_hash: String,
    /// The user's time limit, seconds; `None` for no limit.
    pub limit_secs: Option<f64>,
    /// When the job began to train; `None` if the daemon did not see that.
    pub began_at: Option<UnixTime>,
    /// Exit code of the command; `None` if the command did not end by itself.
    pub exit_code: Option<i32>,
}

impl FinishedJob {
    /// The job's row in the history. `unit` is its rate on one node, samples a second.
    pub fn ended_job(&self, unit: f64, now: UnixTime) -> EndedJob {
        let JobFacts { job, submitted_at, program, sizes, progress, .. } = &self.facts;
        let estimate = progress.first_estimate(unit);
        let outcome = match self.exit_code {
            Some(0) => "completed",
            Some(_) => "failed",
            None => "cancelled",
        };
        EndedJob {
            job: *job,
            submitted_at: *submitted_at,
            ended_at: now,
            user: program.user.clone(),
            account: self.account.clone(),
            name: self.facts.submission().name,
            command_hash: self.command_hash.clone(),
            min_nodes: sizes.min(),
            max_nodes: sizes.max(),
            gpus_per_node: 0,
            limit_secs: self.limit_secs,
            work_secs: progress.work_secs(unit),
            said_secs: estimate.declared_secs,
            flat_secs: estimate.flat_loss_secs,
            samples: progress.samples,
            secs: self.began_at.map_or(0.0, |began| now.secs_since(began)),
            exit_code: self.exit_code,
            why: outcome.to_owned(),
        }
    }
}

/// The consequences of a change of the fleet. The caller of the change must act on them.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "the consequences of a change must be acted on"]
pub struct FleetOutcome {
    /// Effects on Slurm. Those of the same job are in order.
    pub batches: Vec<EffectBatch>,
    /// Jobs that made a step: their agents may get new orders.
    pub stepped_jobs: BTreeSet<JobId>,
    /// Jobs whose record has changed. The store must write it before their effects and orders are carried
    /// out.
    pub changed: BTreeSet<JobId>,
    /// Generations that began.
    pub generations: Vec<GenerationRecord>,
    /// Jobs whose generation was interrupted.
    pub interrupted: Vec<JobId>,
    /// Jobs that have ended.
    pub ended: Vec<JobEnd>,
    /// How commands ended that were asked to save and exit.
    pub stops: Vec<LearningEvent<GenerationStop>>,
    /// Commands that ran out of memory, each with its number of nodes.
    pub out_of_memory: Vec<LearningEvent<u32>>,
    /// Changes of size that commands lived through.
    pub live_changes: Vec<LearningEvent<LiveChange>>,
    /// Nodes whose agents said hello for the first time, with the seconds since they were ordered.
    pub arrived: Vec<(NodeName, f64)>,
    /// Failures on nodes, for the circuit breaker.
    pub strikes: Vec<(NodeName, NodeStrike)>,
    /// Jobs whose strikes are not the nodes' fault.
    pub acquitted: Vec<JobId>,
    /// Nodes that infill must avoid from now on, each with the reason.
    pub tripped_nodes: Vec<(NodeName, String)>,
    /// Progress in present generations.
    pub progress: Vec<WorkerProgress>,
    /// Lines for the log.
    pub notes: Vec<LogNote>,
}

impl FleetOutcome {
    /// Adds the consequences of another change.
    pub fn merge(&mut self, other: FleetOutcome) {
        self.batches.extend(other.batches);
        self.stepped_jobs.extend(other.stepped_jobs);
        self.changed.extend(other.changed);
        self.generations.extend(other.generations);
        self.interrupted.extend(other.interrupted);
        self.ended.extend(other.ended);
        self.stops.extend(other.stops);
        self.out_of_memory.extend(other.out_of_memory);
        self.live_changes.extend(other.live_changes);
        self.arrived.extend(other.arrived);
        self.strikes.extend(other.strikes);
        self.acquitted.extend(other.acquitted);
        self.tripped_nodes.extend(other.tripped_nodes);
        self.progress.extend(other.progress);
        self.notes.extend(other.notes);
    }

    /// Adds a line about a job to the log.
    pub fn add_note(&mut self, level: Level, job: JobId, text: impl Into<String>) {
        self.notes.push(LogNote { level, job: Some(job), text: text.into() });
    }
}
