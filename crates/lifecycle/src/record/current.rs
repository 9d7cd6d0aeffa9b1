//! The present format of records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job_lifecycle::{Generation, JobLifecycle, LeadSubmission, NodeSelection, RendezvousStore};
use crate::obstacles::JobObstacles;
use crate::phase::{JobPhase, LeadAbsence, NextGeneration, RegroupState, StopReason};
use infill_model::{AllowedSizes, ExecPlan, HoldKind, JobId, NodeName, Secret, UnixTime};

use super::parts::{BackoffRecord, CountsRecord, SpecRecord, WingRecord, WorkerRecord, record};

/// Version of the records that infill writes. The format without a version counts as 1.
pub(crate) const VERSION: u64 = 5;

/// Oldest version of this format. It did not support commands that stay alive over changes.
pub(crate) const FIRST_VERSION: u64 = 2;

/// The stored record of a malleable job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LifecycleRecord {
    version: u64,
    job: JobId,
    phase: PhaseRecord,
    since: UnixTime,
    generation: GenerationRecord,
    submitted: SubmittedRecord,
    spec: SpecRecord,
    workers: BTreeMap<NodeName, WorkerRecord>,
    wings: BTreeMap<u64, WingRecord>,
    counts: CountsRecord,
    backoff: BackoffRecord,
    last_change: Option<UnixTime>,
    rescaled_at: Option<UnixTime>,
    #[serde(default)]
    obstacles: ObstaclesRecord,
}

record! {
    /// The present generation.
    GenerationRecord of Generation {
        number: u64,
        exec_plan: ExecPlan,
        master: Option<(String, u16)>,
        #[serde(default)]
        store: Option<RendezvousStore>,
        // The store keeps no secrets: the agent that has made this one reports it again.
        #[serde(skip)]
        secret: Option<Secret>,
        #[serde(default, rename = "roll")]
        last_roll_call: Option<(u32, UnixTime)>,
        #[serde(default, rename = "away")]
        lead_absence: Option<LeadAbsence>,
    }
}

/// A rendezvous store without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreRecord {
    node: NodeName,
    port: Option<u16>,
}

impl From<RendezvousStore> for StoreRecord {
    fn from(store: RendezvousStore) -> Self {
        let RendezvousStore { node, port, secret } = store;
        // If there is a secret, the host is asked for the port again, and reports both.
        StoreRecord { node, port: port.filter(|_| secret.is_none()) }
    }
}

impl From<StoreRecord> for RendezvousStore {
    fn from(StoreRecord { node, port }: StoreRecord) -> Self {
        RendezvousStore { node, port, secret: None }
    }
}

record! {
    /// The user's submission.
    SubmittedRecord of LeadSubmission {
        sizes: AllowedSizes,
        account: String,
        qos: String,
        gres: String,
        #[serde(default)]
        nodes: NodeSelection,
        #[serde(default)]
        limit_mins: Option<u32>,
        #[serde(default = "one", rename = "block")]
        places_per_worker: u32,
        #[serde(default)]
        cpus: Option<u32>,
        #[serde(default, rename = "own")]
        own_nodes: Vec<NodeName>,
    }
}

fn one() -> u32 {
    1
}

/// What keeps the job from its target.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ObstaclesRecord {
    held_by: Option<HoldKind>,
    requeued: bool,
    #[serde(rename = "released_at")]
    launched_at: Option<UnixTime>,
    refusal: Option<String>,
    suspended: bool,
    shortage: Option<String>,
}

impl From<JobObstacles> for ObstaclesRecord {
    fn from(obstacles: JobObstacles) -> Self {
        // After a restart of the daemon, old failures on nodes matter little, and the second of `back_at` has
        // passed.
        let JobObstacles {
            held_by,
            requeued,
            launched_at,
            refusal,
            suspended,
            shortage,
            back_at: _,
            awaits_new_plan: _,
            trials: _,
        } = obstacles;
        ObstaclesRecord { held_by, requeued, launched_at, refusal, suspended, shortage }
    }
}

impl From<ObstaclesRecord> for JobObstacles {
    fn from(record: ObstaclesRecord) -> Self {
        let ObstaclesRecord { held_by, requeued, launched_at, refusal, suspended, shortage } = record;
        JobObstacles {
            held_by,
            requeued,
            launched_at,
            refusal,
            suspended,
            shortage,
            ..JobObstacles::default()
        }
    }
}

record! {
    /// The reason for the next generation.
    NextRecord of NextGeneration { why: String, retry: bool, lost: bool, }
}

/// The job's phase.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name")]
enum PhaseRecord {
    Queued { next: NextRecord },
    Launching { node: NodeName, next: NextRecord },
    Idle { next: NextRecord },
    Running { members: Vec<NodeName> },
    Stopping { members: Vec<NodeName>, reason: ReasonRecord, next: NextRecord },
    Regrouping { members: Vec<NodeName>, regroup: RegroupRecord, next: NextRecord },
    Requeueing { next: NextRecord },
    Ending { code: i32 },
    Ended,
}

/// A change of membership during which the command stays alive.
#[derive(Debug, Serialize, Deserialize)]
struct RegroupRecord {
    from: Vec<NodeName>,
    urgent: bool,
    reason: ReasonRecord,
    tries: u32,
    began: UnixTime,
}

impl From<RegroupState> for RegroupRecord {
    fn from(regroup: RegroupState) -> Self {
        let RegroupState { from, urgent, reason, tries, began } = regroup;
        RegroupRecord { from, urgent, reason: reason.into(), tries, began }
    }
}

impl From<RegroupRecord> for RegroupState {
    fn from(record: RegroupRecord) -> Self {
        let RegroupRecord { from, urgent, reason, tries, began } = record;
        RegroupState { from, urgent, reason: reason.into(), tries, began }
    }
}

/// Why a generation is being stopped.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReasonRecord {
    Rescale,
    Failed { code: i32 },
    Lost,
    Untold { lost: bool },
}

impl From<&JobLifecycle> for LifecycleRecord {
    fn from(lifecycle: &JobLifecycle) -> Self {
        let lifecycle = lifecycle.clone();
        LifecycleRecord {
            version: VERSION,
            job: lifecycle.job,
            phase: lifecycle.phase.into(),
            since: lifecycle.since,
            generation: lifecycle.generation.into(),
            submitted: lifecycle.submitted.into(),
            spec: lifecycle.spec.into(),
            workers: lifecycle.workers.into_iter().map(|(node, worker)| (node, worker.into())).collect(),
            wings: lifecycle.wings.into_iter().map(|(order, wing)| (order, wing.into())).collect(),
            counts: lifecycle.counts.into(),
            backoff: lifecycle.backoff.into(),
            last_change: lifecycle.last_change,
            rescaled_at: lifecycle.rescaled_at,
            obstacles: lifecycle.obstacles.into(),
        }
    }
}

impl From<LifecycleRecord> for JobLifecycle {
    fn from(record: LifecycleRecord) -> Self {
        JobLifecycle {
            job: record.job,
            phase: record.phase.into(),
            since: record.since,
            generation: record.generation.into(),
            submitted: record.submitted.into(),
            spec: record.spec.into(),
            workers: record.workers.into_iter().map(|(node, worker)| (node, worker.into())).collect(),
            wings: record.wings.into_iter().map(|(order, wing)| (order, wing.into())).collect(),
            target: None,
            counts: record.counts.into(),
            backoff: record.backoff.into(),
            last_change: record.last_change,
            rescaled_at: record.rescaled_at,
            obstacles: record.obstacles.into(),
            tries: BTreeMap::new(),
        }
    }
}

impl From<JobPhase> for PhaseRecord {
    fn from(phase: JobPhase) -> Self {
        match phase {
            JobPhase::Queued { next } => PhaseRecord::Queued { next: next.into() },
            JobPhase::Launching { node, next } => PhaseRecord::Launching { node, next: next.into() },
            JobPhase::Assembling { next } => PhaseRecord::Idle { next: next.into() },
            JobPhase::Running { members } => PhaseRecord::Running { members },
            JobPhase::Stopping { members, reason, next } => {
                PhaseRecord::Stopping { members, reason: reason.into(), next: next.into() }
            }
            JobPhase::Regrouping { members, regroup, next } => {
                PhaseRecord::Regrouping { members, regroup: regroup.into(), next: next.into() }
            }
            JobPhase::Requeueing { next } => PhaseRecord::Requeueing { next: next.into() },
            JobPhase::Ending { code } => PhaseRecord::Ending { code },
            JobPhase::Ended => PhaseRecord::Ended,
        }
    }
}

impl From<PhaseRecord> for JobPhase {
    fn from(phase: PhaseRecord) -> Self {
        match phase {
            PhaseRecord::Queued { next } => JobPhase::Queued { next: next.into() },
            PhaseRecord::Launching { node, next } => JobPhase::Launching { node, next: next.into() },
            PhaseRecord::Idle { next } => JobPhase::Assembling { next: next.into() },
            PhaseRecord::Running { members } => JobPhase::Running { members },
            PhaseRecord::Stopping { members, reason, next } => {
                JobPhase::Stopping { members, reason: reason.into(), next: next.into() }
            }
            PhaseRecord::Regrouping { members, regroup, next } => {
                JobPhase::Regrouping { members, regroup: regroup.into(), next: next.into() }
            }
            PhaseRecord::Requeueing { next } => JobPhase::Requeueing { next: next.into() },
            PhaseRecord::Ending { code } => JobPhase::Ending { code },
            PhaseRecord::Ended => JobPhase::Ended,
        }
    }
}

impl From<StopReason> for ReasonRecord {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::Rescale => ReasonRecord::Rescale,
            StopReason::Failed { code } => ReasonRecord::Failed { code },
            StopReason::Lost => ReasonRecord::Lost,
            StopReason::UnknownEnd { lost } => ReasonRecord::Untold { lost },
        }
    }
}

impl From<ReasonRecord> for StopReason {
    fn from(reason: ReasonRecord) -> Self {
        match reason {
            ReasonRecord::Rescale => StopReason::Rescale,
            ReasonRecord::Failed { code } => StopReason::Failed { code },
            ReasonRecord::Lost => StopReason::Lost,
            ReasonRecord::Untold { lost } => StopReason::UnknownEnd { lost },
        }
    }
}
