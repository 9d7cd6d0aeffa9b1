//! What follows from a change of the fleet.

use std::collections::BTreeSet;

use tracing::Level;

use crate::Effect;
use infill_model::{
    EndedJob, GenerationRecord, GenerationStartup, GenerationStop, JobFacts, JobId, LiveChange, NodeName,
    NodeStrike, ProgramIdentity, ProgressReport, UnixTime,
};

/// The effects of one job's turn.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectBatch {
    /// The malleable job.
    pub job: JobId,
    /// In order. None means that only its record is to be stored.
    pub effects: Vec<Effect>,
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogNote {
    /// How bad it is.
    pub level: Level,
    /// The malleable job that it is about, if any.
    pub job: Option<JobId>,
    /// What happened.
    pub text: String,
}

/// What a worker of the present generation told of its progress.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerProgress {
    /// The malleable job.
    pub job: JobId,
    /// What it runs.
    pub program: ProgramIdentity,
    /// The node of its lead.
    pub lead: Option<NodeName>,
    /// The worker's node.
    pub node: NodeName,
    /// The generation.
    pub generation: u64,
    /// Its number of nodes.
    pub nodes: u32,
    /// The hosts that they are on.
    pub hosts: Vec<NodeName>,
    /// Samples since its last word.
    pub samples: f64,
    /// Seconds since its last word.
    pub secs: f64,
    /// Its step.
    pub step: Option<u64>,
    /// If it is the first of its generation: how that came about.
    pub opening: Option<GenerationStartup>,
}

impl WorkerProgress {
    /// The same in the advisor's terms. `crosses`: whether the hosts hang on several leaf switches.
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
            opening: self.opening,
        }
    }
}

/// Something that is to be learned of what a job runs.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningEvent<T> {
    /// What the job runs.
    pub program: ProgramIdentity,
    /// The node of its lead.
    pub lead: Option<NodeName>,
    /// What has happened.
    pub what: T,
}

impl<T> LearningEvent<T> {
    /// The same job has taught this.
    pub fn with_event<U>(&self, what: U) -> LearningEvent<U> {
        LearningEvent { program: self.program.clone(), lead: self.lead.clone(), what }
    }
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct JobEnd {
    /// Which.
    pub job: JobId,
    /// Once, as it was, if it did anything.
    pub gone: Option<Box<FinishedJob>>,
}

/// A job that has just ended, and what it did.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedJob {
    /// As it was.
    pub facts: JobFacts,
    /// Slurm's account.
    pub account: String,
    /// Hash of its command.
    pub command_hash: String,
    /// Its time limit, seconds.
    pub limit_secs: Option<f64>,
    /// When it began to train, as far as that was seen.
    pub began_at: Option<UnixTime>,
    /// The code with which its command ended, if it did.
    pub exit_code: Option<i32>,
}

impl FinishedJob {
    /// What history keeps of it; `unit`: samples a second that it made on one node.
    pub fn ended_job(&self, unit: f64, now: UnixTime) -> EndedJob {
        let JobFacts { job, submitted_at, program, sizes, course, .. } = &self.facts;
        let word = course.first_estimate(unit);
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
            work_secs: course.work_secs(unit),
            said_secs: word.said_secs,
            flat_secs: word.flat_secs,
            samples: course.samples,
            secs: self.began_at.map_or(0.0, |began| now.secs_since(began)),
            exit_code: self.exit_code,
            why: match self.exit_code {
                Some(0) => "completed",
                Some(_) => "failed",
                None => "cancelled",
            }
            .to_owned(),
        }
    }
}

/// What follows from a change of the fleet, to be handed on by whoever made it.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "what follows must be handed on"]
pub struct FleetOutcome {
    /// Effects at Slurm, each job's in order.
    pub batches: Vec<EffectBatch>,
    /// Jobs that had a turn: their agents are to be told.
    pub turned: BTreeSet<JobId>,
    /// Jobs whose record has changed: it is stored before anything is done about them.
    pub changed: BTreeSet<JobId>,
    /// Generations that began.
    pub generations: Vec<GenerationRecord>,
    /// Jobs whose generation was interrupted.
    pub interrupted: Vec<JobId>,
    /// Jobs that have ended.
    pub ended: Vec<JobEnd>,
    /// How commands came to their end that were asked to save and exit.
    pub stops: Vec<LearningEvent<GenerationStop>>,
    /// On how many nodes commands ran out of memory.
    pub overflowed: Vec<LearningEvent<u32>>,
    /// Changes of size that commands lived through.
    pub lived_through: Vec<LearningEvent<LiveChange>>,
    /// Nodes whose agents said hello for the first time, with the seconds since they were ordered.
    pub arrived: Vec<(NodeName, f64)>,
    /// Nodes on which something went wrong, with what.
    pub strikes: Vec<(NodeName, NodeStrike)>,
    /// Jobs whose strikes say nothing of nodes.
    pub acquitted: Vec<JobId>,
    /// Nodes that are to be left alone at once, with the reason.
    pub trips: Vec<(NodeName, String)>,
    /// Progress of present generations.
    pub measured: Vec<WorkerProgress>,
    /// For the log.
    pub notes: Vec<LogNote>,
}

impl FleetOutcome {
    /// Takes in what followed from another change.
    pub fn merge(&mut self, other: FleetOutcome) {
        self.batches.extend(other.batches);
        self.turned.extend(other.turned);
        self.changed.extend(other.changed);
        self.generations.extend(other.generations);
        self.interrupted.extend(other.interrupted);
        self.ended.extend(other.ended);
        self.stops.extend(other.stops);
        self.overflowed.extend(other.overflowed);
        self.lived_through.extend(other.lived_through);
        self.arrived.extend(other.arrived);
        self.strikes.extend(other.strikes);
        self.acquitted.extend(other.acquitted);
        self.trips.extend(other.trips);
        self.measured.extend(other.measured);
        self.notes.extend(other.notes);
    }

    /// Notes something about a job for the log.
    pub fn add_note(&mut self, level: Level, job: JobId, text: impl Into<String>) {
        self.notes.push(LogNote { level, job: Some(job), text: text.into() });
    }
}
