//! The form in which records are written now.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job_lifecycle::{Generation, JobLifecycle, LeadSubmission, NodeSelection, RendezvousStore};
use crate::obstacles::JobObstacles;
use crate::phase::{JobPhase, LeadAbsence, NextGeneration, RegroupState, StopReason};
use infill_model::{AllowedSizes, ExecPlan, HoldKind, JobId, NodeName, Secret, UnixTime};

use super::parts::{BackoffRecord, CountsRecord, SpecRecord, WingRecord, WorkerRecord, record};

/// Version of what is written. The form without a version counts as 1.
pub(crate) const VERSION: u64 = 5;

/// The oldest version of this form: it knew no command that stays alive over changes.
pub(crate) const FIRST_VERSION: u64 = 2;

/// A malleable job's record.
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
        // No secret is written down: the agent that has made it tells it again.
        #[serde(skip)]
        secret: Option<Secret>,
        #[serde(default)]
        roll: Option<(u32, UnixTime)>,
        #[serde(default)]
        away: Option<LeadAbsence>,
    }
}

/// A store without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreRecord {
    node: NodeName,
    port: Option<u16>,
}

impl From<RendezvousStore> for StoreRecord {
    fn from(store: RendezvousStore) -> Self {
        let RendezvousStore { node, port, secret } = store;
        // Its host is asked for the port again, and tells both.
        StoreRecord { node, port: port.filter(|_| secret.is_none()) }
    }
}

impl From<StoreRecord> for RendezvousStore {
    fn from(StoreRecord { node, port }: StoreRecord) -> Self {
        RendezvousStore { node, port, secret: None }
    }
}

record! {
    /// What was submitted.
    SubmittedRecord of LeadSubmission {
        sizes: AllowedSizes,
        account: String,
        qos: String,
        gres: String,
        #[serde(default)]
        nodes: NodeSelection,
        #[serde(default)]
        limit_mins: Option<u32>,
        #[serde(default = "one")]
        block: u32,
        #[serde(default)]
        cpus: Option<u32>,
        #[serde(default)]
        own: Vec<NodeName>,
    }
}

fn one() -> u32 {
    1
}

/// What people, Slurm and the site do with it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ObstaclesRecord {
    held_by: Option<HoldKind>,
    requeued: bool,
    released_at: Option<UnixTime>,
    refusal: Option<String>,
    suspended: bool,
    shortage: Option<String>,
}

impl From<JobObstacles> for ObstaclesRecord {
    fn from(o: JobObstacles) -> Self {
        // That it failed somewhere an hour ago matters little to a new daemon, and a second is over by then.
        let JobObstacles {
            held_by,
            requeued,
            released_at,
            refusal,
            suspended,
            shortage,
            back_at: _,
            awaits_new_plan: _,
            trials: _,
        } = o;
        ObstaclesRecord { held_by, requeued, released_at, refusal, suspended, shortage }
    }
}

impl From<ObstaclesRecord> for JobObstacles {
    fn from(o: ObstaclesRecord) -> Self {
        let ObstaclesRecord { held_by, requeued, released_at, refusal, suspended, shortage } = o;
        JobObstacles {
            held_by,
            requeued,
            released_at,
            refusal,
            suspended,
            shortage,
            ..JobObstacles::default()
        }
    }
}

record! {
    /// How the next generation comes about.
    NextRecord of NextGeneration { why: String, retry: bool, lost: bool, }
}

/// Where the job is in its life.
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

/// A change of members of a command that stays alive.
#[derive(Debug, Serialize, Deserialize)]
struct RegroupRecord {
    from: Vec<NodeName>,
    urgent: bool,
    reason: ReasonRecord,
    tries: u32,
    began: UnixTime,
}

impl From<RegroupState> for RegroupRecord {
    fn from(r: RegroupState) -> Self {
        let RegroupState { from, urgent, reason, tries, began } = r;
        RegroupRecord { from, urgent, reason: reason.into(), tries, began }
    }
}

impl From<RegroupRecord> for RegroupState {
    fn from(r: RegroupRecord) -> Self {
        let RegroupRecord { from, urgent, reason, tries, began } = r;
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
    fn from(m: &JobLifecycle) -> Self {
        let m = m.clone();
        LifecycleRecord {
            version: VERSION,
            job: m.job,
            phase: m.phase.into(),
            since: m.since,
            generation: m.generation.into(),
            submitted: m.submitted.into(),
            spec: m.spec.into(),
            workers: m.workers.into_iter().map(|(node, w)| (node, w.into())).collect(),
            wings: m.wings.into_iter().map(|(order, w)| (order, w.into())).collect(),
            counts: m.counts.into(),
            backoff: m.backoff.into(),
            last_change: m.last_change,
            rescaled_at: m.rescaled_at,
            obstacles: m.obstacles.into(),
        }
    }
}

impl From<LifecycleRecord> for JobLifecycle {
    fn from(r: LifecycleRecord) -> Self {
        JobLifecycle {
            job: r.job,
            phase: r.phase.into(),
            since: r.since,
            generation: r.generation.into(),
            submitted: r.submitted.into(),
            spec: r.spec.into(),
            workers: r.workers.into_iter().map(|(node, w)| (node, w.into())).collect(),
            wings: r.wings.into_iter().map(|(order, w)| (order, w.into())).collect(),
            target: None,
            counts: r.counts.into(),
            backoff: r.backoff.into(),
            last_change: r.last_change,
            rescaled_at: r.rescaled_at,
            obstacles: r.obstacles.into(),
            tries: BTreeMap::new(),
        }
    }
}

impl From<JobPhase> for PhaseRecord {
    fn from(phase: JobPhase) -> Self {
        match phase {
            JobPhase::Queued { next } => PhaseRecord::Queued { next: next.into() },
            JobPhase::Launching { node, next } => PhaseRecord::Launching { node, next: next.into() },
            JobPhase::Idle { next } => PhaseRecord::Idle { next: next.into() },
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
            PhaseRecord::Idle { next } => JobPhase::Idle { next: next.into() },
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
            StopReason::Untold { lost } => ReasonRecord::Untold { lost },
        }
    }
}

impl From<ReasonRecord> for StopReason {
    fn from(reason: ReasonRecord) -> Self {
        match reason {
            ReasonRecord::Rescale => StopReason::Rescale,
            ReasonRecord::Failed { code } => StopReason::Failed { code },
            ReasonRecord::Lost => StopReason::Lost,
            ReasonRecord::Untold { lost } => StopReason::Untold { lost },
        }
    }
}
