//! The first format of records, without a version. infill reads it, and no longer writes it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::backoff::RetryBackoff;
use crate::job_lifecycle::{Generation, JobCounters, JobLifecycle, LeadSubmission};
use crate::obstacles::JobObstacles;
use crate::phase::{JobPhase, NextGeneration, StopReason};
use infill_model::{AllowedSizes, ExecPlan, JobId, NodeName, UnixTime};

use super::parts::{SpecRecord, WingRecord, WorkerRecord};

/// The fields of the first format that are still used.
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

/// The phases of the first format, which did not contain the next generation.
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
            UnversionedPhase::Idle => JobPhase::Assembling { next },
            UnversionedPhase::Running { members } => JobPhase::Running { members },
            UnversionedPhase::Stopping { members, failed, lost, untold } => {
                let reason = match failed {
                    _ if untold => StopReason::UnknownEnd { lost },
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
    fn from(record: UnversionedRecord) -> Self {
        let next = NextGeneration { why: record.why, retry: record.retrying, lost: record.lost };
        let backoff = RetryBackoff {
            failed_starts: record.failed_starts,
            preemptions: record.preemptions,
            late_starts: 0,
            refusals: record.refusals,
            start_after: record.backoff_until,
            order_after: record.orders_after,
            retry_after: None,
        };
        JobLifecycle {
            job: record.job,
            phase: record.phase.into_phase(next),
            since: record.since,
            generation: Generation {
                number: record.generation,
                exec_plan: record.exec_plan,
                master: record.master,
                ..Generation::default()
            },
            submitted: LeadSubmission {
                account: record.account,
                qos: record.lead_qos,
                gres: record.gres,
                ..LeadSubmission::with_sizes(record.sizes)
            },
            spec: record.spec.into(),
            workers: record.workers.into_iter().map(|(node, worker)| (node, worker.into())).collect(),
            wings: record.wings.into_iter().map(|(order, wing)| (order, wing.into())).collect(),
            target: None,
            counts: JobCounters {
                rescales: record.rescales,
                restarts: record.restarts,
                kills: record.kills,
                ..JobCounters::default()
            },
            backoff,
            last_change: record.last_change,
            rescaled_at: record.rescaled_at,
            obstacles: JobObstacles::default(),
            tries: BTreeMap::new(),
        }
    }
}
