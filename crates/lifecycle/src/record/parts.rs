//! Parts of a record that have changed little since the first version.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backoff::RetryBackoff;
use crate::job_lifecycle::JobCounters;
use crate::worker::{LiveState, Wing, WorkerAgent};
use infill_api::{AgentDialect, CapabilitySet, FIRST_PROTOCOL};
use infill_model::{
    AllowedSizes, BatchMode, CommandExit, DeclaredPlan, JobId, JobProgress, LayerProfile, ModelFacts,
    NodeName, RequestedSize, RescaleCosts, RunSpec, ScalingCurve, UnixTime, WingOrder,
};

/// Declares a record type with the fields of a value, and both conversions. If the value gains a field, these
/// conversions no longer compile, so that a developer must decide whether to store it.
macro_rules! record {
    ($(#[$attribute:meta])* $name:ident of $value:ident { $($(#[$note:meta])* $field:ident: $type:ty,)+ }) => {
        #[derive(Debug, Serialize, Deserialize)]
        $(#[$attribute])*
        pub struct $name {
            $($(#[$note])* pub $field: $type,)+
        }

        impl From<$value> for $name {
            fn from($value { $($field),+ }: $value) -> Self {
                $name { $($field),+ }
            }
        }

        impl From<$name> for $value {
            fn from($name { $($field),+ }: $name) -> Self {
                $value { $($field),+ }
            }
        }
    };
}
pub(super) use record;

record! {
    /// How a command ended.
    ExitRecord of CommandExit { code: i32, asked: bool, killed: bool, }
}

record! {
    /// An order of a wing.
    OrderRecord of WingOrder {
        #[serde(rename = "order")]
        number: u64,
        nodes: Vec<NodeName>,
        time_limit_mins: u32,
        partition: String,
        qos: Option<String>,
        account: Option<String>,
        gres: Option<String>,
        #[serde(default)]
        cpus: Option<u32>,
        #[serde(default)]
        memory_mib: Option<u64>,
        constraint: Option<String>,
        exclude: Option<String>,
    }
}

record! {
    /// The owner's declarations, from the lead's agent.
    #[serde(default)]
    SpecRecord of RunSpec {
        sizes: Option<AllowedSizes>,
        curve: Option<ScalingCurve>,
        costs: Option<RescaleCosts>,
        at_least: Option<f64>,
        as_asked: Option<RequestedSize>,
        max_restarts: u32,
        grace_secs: u32,
        profile: Option<String>,
        command_hash: String,
        batch: BatchMode,
        plans: Vec<DeclaredPlan>,
        model: Option<ModelFacts>,
        #[serde(skip_serializing_if = "Option::is_none")]
        layers: Option<Arc<LayerProfile>>,
        gpus_per_node: Option<u32>,
        extends: bool,
        setup_secs: u32,
    }
}

impl Default for SpecRecord {
    fn default() -> Self {
        RunSpec::default().into()
    }
}

record! {
    /// Counters and progress.
    CountsRecord of JobCounters {
        rescales: u32,
        restarts: u32,
        kills: u32,
        #[serde(default)]
        warm_secs: u32,
        #[serde(default, rename = "course")]
        progress: JobProgress,
        #[serde(default)]
        promised_at: Option<UnixTime>,
    }
}

record! {
    /// Consecutive failures, and how long to wait after them.
    #[serde(default)]
    BackoffRecord of RetryBackoff {
        failed_starts: u32,
        preemptions: u32,
        late_starts: u32,
        refusals: u32,
        start_after: Option<UnixTime>,
        order_after: Option<UnixTime>,
        retry_after: Option<UnixTime>,
    }
}

impl Default for BackoffRecord {
    fn default() -> Self {
        RetryBackoff::default().into()
    }
}

/// An agent that has said hello.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkerRecord {
    slurm_job: JobId,
    address: String,
    port: u16,
    last_seen: UnixTime,
    stopped: Option<ExitRecord>,
    leaving: bool,
    #[serde(default)]
    live: LiveRecord,
    #[serde(default = "first_protocol")]
    protocol: u32,
    #[serde(default)]
    capabilities: CapabilitySet,
}

fn first_protocol() -> u32 {
    FIRST_PROTOCOL
}

/// State of a command that stays alive over changes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LiveRecord {
    #[default]
    No,
    Warming {
        since: UnixTime,
    },
    Ready {
        since: UnixTime,
    },
    In(u64),
}

impl From<LiveState> for LiveRecord {
    fn from(live: LiveState) -> Self {
        match live {
            LiveState::No => LiveRecord::No,
            LiveState::Warming { since } => LiveRecord::Warming { since },
            LiveState::Ready { since } => LiveRecord::Ready { since },
            LiveState::Member(generation) => LiveRecord::In(generation),
        }
    }
}

impl From<LiveRecord> for LiveState {
    fn from(live: LiveRecord) -> Self {
        match live {
            LiveRecord::No => LiveState::No,
            LiveRecord::Warming { since } => LiveState::Warming { since },
            LiveRecord::Ready { since } => LiveState::Ready { since },
            LiveRecord::In(generation) => LiveState::Member(generation),
        }
    }
}

impl From<WorkerAgent> for WorkerRecord {
    fn from(worker: WorkerAgent) -> Self {
        // The agent reports a failed step (`step_failed_at`) and its GPUs again.
        let WorkerAgent {
            slurm_job,
            address,
            port,
            last_seen,
            answered: _,
            progress_at: _,
            stopped,
            leaving,
            live,
            standstill_secs: _,
            step_failed_at: _,
            dialect: AgentDialect { protocol, capabilities },
            gpus: _,
        } = worker;
        let stopped = stopped.map(Into::into);
        let live = live.into();
        WorkerRecord { slurm_job, address, port, last_seen, stopped, leaving, live, protocol, capabilities }
    }
}

impl From<WorkerRecord> for WorkerAgent {
    fn from(record: WorkerRecord) -> Self {
        let WorkerRecord {
            slurm_job,
            address,
            port,
            last_seen,
            stopped,
            leaving,
            live,
            protocol,
            capabilities,
        } = record;
        let stopped = stopped.map(Into::into);
        let live = live.into();
        WorkerAgent {
            slurm_job,
            address,
            port,
            last_seen,
            answered: true,
            progress_at: None,
            stopped,
            leaving,
            live,
            standstill_secs: None,
            step_failed_at: None,
            dialect: AgentDialect { protocol, capabilities },
            gpus: None,
        }
    }
}

/// A wing that was ordered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WingRecord {
    order: OrderRecord,
    ordered_at: UnixTime,
    job: Option<JobId>,
    batch_host: Option<NodeName>,
    seen_running: bool,
}

impl From<Wing> for WingRecord {
    fn from(wing: Wing) -> Self {
        // The next snapshot sets `configuring` again.
        let Wing { order, ordered_at, job, batch_host, seen_running, configuring: _ } = wing;
        WingRecord { order: order.into(), ordered_at, job, batch_host, seen_running }
    }
}

impl From<WingRecord> for Wing {
    fn from(record: WingRecord) -> Self {
        let WingRecord { order, ordered_at, job, batch_host, seen_running } = record;
        Wing { order: order.into(), ordered_at, job, batch_host, seen_running, configuring: false }
    }
}
