//! What slurmrestd sends, as far as we read it. Unknown fields are ignored; no field can fail the whole
//! answer. Texts are borrowed from the answer; lists are read by `listing`.

use serde::Deserialize;

use super::field::{List, Number, Object, Text, Unread, Words};

/// What every answer carries.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Envelope<'a> {
    /// What went wrong, even under HTTP 200.
    #[serde(default, borrow)]
    pub errors: Option<Vec<Object<WireError<'a>>>>,
    /// Who answers.
    #[serde(default)]
    pub meta: Object<Meta<'a>>,
    /// One entry for each job that `DELETE /job` was for.
    #[serde(default)]
    pub status: Option<Vec<Object<KillStatus<'a>>>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct WireError<'a> {
    #[serde(default)]
    pub error_number: Number,
    #[serde(default, borrow)]
    pub error: Text<'a>,
    #[serde(default)]
    pub description: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct KillStatus<'a> {
    #[serde(default, borrow)]
    pub error: Object<KillError<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct KillError<'a> {
    #[serde(default)]
    pub code: Number,
    #[serde(default, borrow)]
    pub message: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(default, alias = "Slurm", borrow)]
    pub slurm: Object<MetaSlurm<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct MetaSlurm<'a> {
    #[serde(default, borrow)]
    pub release: Text<'a>,
    #[serde(default)]
    pub cluster: Text<'a>,
}

/// One of `GET /nodes`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub address: Text<'a>,
    pub state: Words<'a>,
    pub partitions: Words<'a>,
    pub cpus: Number,
    pub effective_cpus: Number,
    pub alloc_cpus: Number,
    pub real_memory: Number,
    pub specialized_memory: Number,
    pub alloc_memory: Number,
    pub gres: Text<'a>,
    pub gres_used: Text<'a>,
    pub features: Words<'a>,
    pub active_features: Words<'a>,
    pub reason: Text<'a>,
}

/// One of `GET /jobs` and `GET /job/{id}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Job<'a> {
    pub job_id: Number,
    pub user_id: Number,
    #[serde(borrow)]
    pub user_name: Text<'a>,
    pub account: Text<'a>,
    pub name: Text<'a>,
    pub partition: Text<'a>,
    pub qos: Text<'a>,
    pub job_state: Words<'a>,
    pub state_reason: Text<'a>,
    pub state_description: Text<'a>,
    pub submit_time: Number,
    pub start_time: Number,
    pub end_time: Number,
    pub preempt_time: Number,
    pub time_limit: Number,
    pub nodes: Text<'a>,
    pub batch_host: Text<'a>,
    pub scheduled_nodes: Text<'a>,
    pub node_count: Number,
    pub hold: Number,
    pub priority: Number,
    pub comment: Text<'a>,
    pub admin_comment: Text<'a>,
    pub tres_per_node: Text<'a>,
    pub tres_per_job: Text<'a>,
    pub tres_per_task: Text<'a>,
    pub tres_per_socket: Text<'a>,
    pub tasks: Number,
    pub cpus: Number,
    pub memory_per_node: Number,
    pub memory_per_cpu: Number,
    pub memory_per_tres: Text<'a>,
    pub cpus_per_tres: Text<'a>,
    pub tres_req_str: Text<'a>,
    pub features: Text<'a>,
    pub excluded_nodes: Text<'a>,
    pub required_nodes: Text<'a>,
    pub dependency: Text<'a>,
    pub resv_name: Text<'a>,
    pub eligible_time: Number,
    pub restart_cnt: Number,
    pub shared: Words<'a>,
    pub gres_detail: List<Text<'a>>,
    /// [`JobResources`].
    pub job_resources: Unread<'a>,
}

/// What a job has of its nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobResources<'a> {
    #[serde(borrow)]
    pub nodes: Object<ResourceNodes<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourceNodes<'a> {
    pub whole: Number,
    #[serde(borrow)]
    /// One [`NodeAllocation`] for each node.
    pub allocation: Unread<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeAllocation<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub cpus: Object<Counted>,
    pub memory: Object<Allocated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counted {
    pub count: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Allocated {
    pub allocated: Number,
}

/// One of `GET /partitions`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Partition<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub maximums: Object<Maximums>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Maximums {
    pub cpus_per_node: Number,
    pub oversubscribe: Object<Oversubscribe>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Oversubscribe {
    pub jobs: Number,
}

/// One of `GET /reservations`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reservation<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub start_time: Number,
    pub end_time: Number,
    pub node_list: Text<'a>,
    pub flags: Words<'a>,
}

/// `GET /diag`.
#[derive(Debug, Deserialize)]
pub(super) struct Diag {
    pub statistics: Statistics,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Statistics {
    pub req_time: Number,
    pub req_time_start: Number,
    pub jobs_submitted: Number,
    pub bf_active: Number,
    pub bf_when_last_cycle: Number,
    pub bf_cycle_counter: Number,
    pub bf_exit: Object<ExitCounters>,
}

/// How backfill cycles have ended since the statistics were last reset. Not how the last one ended.
pub(super) type ExitCounters = std::collections::BTreeMap<String, Number>;
