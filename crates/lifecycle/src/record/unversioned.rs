//! The first form of a record, which named no version: read, and never written again.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::backoff::RetryBackoff;
use crate::job_lifecycle::{Generation, JobCounters, JobLifecycle, LeadSubmission};
use crate::obstacles::JobObstacles;
use crate::phase::{JobPhase, NextGeneration, StopReason};
use infill_model::{AllowedSizes, ExecPlan, JobId, NodeName, UnixTime};

use super::parts::{SpecRecord, WingRecord, WorkerRecord};

/// What it held, less what nobody needs any more.
#[derive(Debug, Deserialize)]
pub(crate) struct UnversionedRecord {
    job: JobId,
    phase: UnversionedPhase,
    since: UnixTime,
    generation: u64,
    exec_plan: ExecPlan,
    master: Option<(String, u16)>,
    sizes: AllowedSizes,
    spec: SpecRecord,
    account: String,
    #[serde(default)]
    lead_qos: String,
    gres: String,
    workers: BTreeMap<NodeName, WorkerRecord>,
    wings: BTreeMap<u64, WingRecord>,
    rescales: u32,
    restarts: u32,
    kills: u32,
    failed_starts: u32,
    preemptions: u32,
    #[serde(default)]
    refusals: u32,
    #[serde(default)]
    orders_after: Option<UnixTime>,
    backoff_until: Option<UnixTime>,
    last_change: Option<UnixTime>,
    #[serde(default)]
    rescaled_at: Option<UnixTime>,
    why: String,
    retrying: bool,
    #[serde(default)]
    lost: bool,
}

/// Its phases, which knew nothing of what follows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
enum UnversionedPhase {
    Queued,
    Launching {
        node: NodeName,
    },
    Idle,
    Running {
        members: Vec<NodeName>,
    },
    Stopping {
        members: Vec<NodeName>,
        failed: Option<i32>,
        lost: bool,
        #[serde(default)]
        untold: bool,
    },
    Requeueing,
    Ending {
        code: i32,
    },
    Ended,
}

impl UnversionedPhase {
    fn into_phase(self, next: NextGeneration) -> JobPhase {
        match self {
            UnversionedPhase::Queued => JobPhase::Queued { next },
            UnversionedPhase::Launching { node } => JobPhase::Launching { node, next },
            UnversionedPhase::Idle => JobPhase::Idle { next },
            UnversionedPhase::Running { members } => JobPhase::Running { members },
            UnversionedPhase::Stopping { members, failed, lost, untold } => {
                let reason = match failed {
                    _ if untold => StopReason::Untold { lost },
                    _ if lost => StopReason::Lost,
                    Some(code) => StopReason::Failed { code },
                    None => StopReason::Rescale,
                };
                JobPhase::Stopping { members, reason, next }
            }
            UnversionedPhase::Requeueing => JobPhase::Requeueing { next },
            UnversionedPhase::Ending { code } => JobPhase::Ending { code },
            UnversionedPhase::Ended => JobPhase::Ended,
        }
    }
}

impl From<UnversionedRecord> for JobLifecycle {
    fn from(r: UnversionedRecord) -> Self {
        let next = NextGeneration { why: r.why, retry: r.retrying, lost: r.lost };
        let backoff = RetryBackoff {
            failed_starts: r.failed_starts,
            preemptions: r.preemptions,
            late_starts: 0,
            refusals: r.refusals,
            start_after: r.backoff_until,
            order_after: r.orders_after,
            retry_after: None,
        };
        JobLifecycle {
            job: r.job,
            phase: r.phase.into_phase(next),
            since: r.since,
            generation: Generation {
                number: r.generation,
                exec_plan: r.exec_plan,
                master: r.master,
                ..Generation::default()
            },
            submitted: LeadSubmission {
                account: r.account,
                qos: r.lead_qos,
                gres: r.gres,
                ..LeadSubmission::with_sizes(r.sizes)
            },
            spec: r.spec.into(),
            workers: r.workers.into_iter().map(|(node, w)| (node, w.into())).collect(),
            wings: r.wings.into_iter().map(|(order, w)| (order, w.into())).collect(),
            target: None,
            counts: JobCounters {
                rescales: r.rescales,
                restarts: r.restarts,
                kills: r.kills,
                ..JobCounters::default()
            },
            backoff,
            last_change: r.last_change,
            rescaled_at: r.rescaled_at,
            obstacles: JobObstacles::default(),
            tries: BTreeMap::new(),
        }
    }
}
