//! The parts of slurmrestd's answers that infill reads. Unknown fields are ignored, and no bad field fails
//! the whole answer. Texts are borrowed from the answer. `record_list` reads the lists.

use serde::Deserialize;

use super::field::{LazyValue, WireList, WireNumber, WireObject, WireText, WireWords};

/// The members that every answer has.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ResponseEnvelope<'a> {
    /// Slurm's errors, which may be present under HTTP 200.
    #[serde(default, borrow)]
    pub errors: Option<Vec<WireObject<WireError<'a>>>>,
    /// The release and the cluster that answer.
    #[serde(default)]
    pub meta: WireObject<ResponseMeta<'a>>,
    /// One entry for each job that `DELETE /job` was for.
    #[serde(default)]
    pub status: Option<Vec<WireObject<KillStatus<'a>>>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct WireError<'a> {
    #[serde(default)]
    pub error_number: WireNumber,
    #[serde(default, borrow)]
    pub error: WireText<'a>,
    #[serde(default)]
    pub description: WireText<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct KillStatus<'a> {
    #[serde(default, borrow)]
    pub error: WireObject<KillError<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct KillError<'a> {
    #[serde(default)]
    pub code: WireNumber,
    #[serde(default, borrow)]
    pub message: WireText<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ResponseMeta<'a> {
    #[serde(default, alias = "Slurm", borrow)]
    pub slurm: WireObject<MetaSlurm<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct MetaSlurm<'a> {
    #[serde(default, borrow)]
    pub release: WireText<'a>,
    #[serde(default)]
    pub cluster: WireText<'a>,
}

/// A node of `GET /nodes`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireNode<'a> {
    #[serde(borrow)]
    pub name: WireText<'a>,
    pub address: WireText<'a>,
    pub state: WireWords<'a>,
    pub partitions: WireWords<'a>,
    pub cpus: WireNumber,
    pub effective_cpus: WireNumber,
    pub alloc_cpus: WireNumber,
    pub real_memory: WireNumber,
    pub specialized_memory: WireNumber,
    pub alloc_memory: WireNumber,
    pub gres: WireText<'a>,
    pub gres_used: WireText<'a>,
    pub features: WireWords<'a>,
    pub active_features: WireWords<'a>,
    pub reason: WireText<'a>,
}

/// A job of `GET /jobs` and `GET /job/{id}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireJob<'a> {
    pub job_id: WireNumber,
    pub array_job_id: WireNumber,
    pub array_task_id: WireNumber,
    pub array_max_tasks: WireNumber,
    pub user_id: WireNumber,
    #[serde(borrow)]
    pub user_name: WireText<'a>,
    pub account: WireText<'a>,
    pub name: WireText<'a>,
    pub array_task_string: WireText<'a>,
    pub partition: WireText<'a>,
    pub qos: WireText<'a>,
    pub job_state: WireWords<'a>,
    pub state_reason: WireText<'a>,
    pub state_description: WireText<'a>,
    pub submit_time: WireNumber,
    pub start_time: WireNumber,
    pub end_time: WireNumber,
    pub preempt_time: WireNumber,
    pub time_limit: WireNumber,
    pub nodes: WireText<'a>,
    pub batch_host: WireText<'a>,
    pub scheduled_nodes: WireText<'a>,
    pub node_count: WireNumber,
    pub hold: WireNumber,
    pub priority: WireNumber,
    pub comment: WireText<'a>,
    pub admin_comment: WireText<'a>,
    pub tres_per_node: WireText<'a>,
    pub tres_per_job: WireText<'a>,
    pub tres_per_task: WireText<'a>,
    pub tres_per_socket: WireText<'a>,
    pub tasks: WireNumber,
    pub cpus: WireNumber,
    pub memory_per_node: WireNumber,
    pub memory_per_cpu: WireNumber,
    pub memory_per_tres: WireText<'a>,
    pub cpus_per_tres: WireText<'a>,
    pub tres_req_str: WireText<'a>,
    pub features: WireText<'a>,
    pub excluded_nodes: WireText<'a>,
    pub required_nodes: WireText<'a>,
    pub dependency: WireText<'a>,
    pub resv_name: WireText<'a>,
    pub eligible_time: WireNumber,
    pub restart_cnt: WireNumber,
    pub shared: WireWords<'a>,
    pub gres_detail: WireList<WireText<'a>>,
    /// [`JobResources`].
    pub job_resources: LazyValue<'a>,
}

/// The resources that a job has on its nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobResources<'a> {
    #[serde(borrow)]
    pub nodes: WireObject<ResourceNodes<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourceNodes<'a> {
    pub whole: WireNumber,
    /// One [`NodeAllocation`] for each node.
    #[serde(borrow)]
    pub allocation: LazyValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeAllocation<'a> {
    #[serde(borrow)]
    pub name: WireText<'a>,
    pub cpus: WireObject<CpuCount>,
    pub memory: WireObject<AllocatedMemory>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CpuCount {
    pub count: WireNumber,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AllocatedMemory {
    pub allocated: WireNumber,
}

/// A partition of `GET /partitions`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WirePartition<'a> {
    #[serde(borrow)]
    pub name: WireText<'a>,
    pub maximums: WireObject<PartitionMaximums>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PartitionMaximums {
    pub cpus_per_node: WireNumber,
    pub oversubscribe: WireObject<OversubscribeLimit>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OversubscribeLimit {
    pub jobs: WireNumber,
}

/// A reservation of `GET /reservations`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireReservation<'a> {
    #[serde(borrow)]
    pub name: WireText<'a>,
    pub start_time: WireNumber,
    pub end_time: WireNumber,
    pub node_list: WireText<'a>,
    pub flags: WireWords<'a>,
}

/// The answer to `GET /diag`.
#[derive(Debug, Deserialize)]
pub(super) struct DiagResponse {
    pub statistics: DiagStatistics,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DiagStatistics {
    pub req_time: WireNumber,
    pub req_time_start: WireNumber,
    pub jobs_submitted: WireNumber,
    pub bf_active: WireNumber,
    pub bf_when_last_cycle: WireNumber,
    pub bf_cycle_counter: WireNumber,
    pub bf_exit: WireObject<ExitCounters>,
}

/// How many backfill cycles ended in which way since the statistics were last reset. It does not show how the
/// last cycle ended.
pub(super) type ExitCounters = std::collections::BTreeMap<String, WireNumber>;
