//! What slurmrestd sends, as far as we read it. Unknown fields are ignored; no field can fail the whole answer.

use serde::Deserialize;

use super::field::{Number, Object, Text, Words};

/// What every answer carries.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Envelope {
    /// What went wrong, even under HTTP 200.
    #[serde(default)]
    pub errors: Option<Vec<Object<WireError>>>,
    /// Who answers.
    #[serde(default)]
    pub meta: Object<Meta>,
    /// One entry for each job that `DELETE /job` was for.
    #[serde(default)]
    pub status: Option<Vec<Object<KillStatus>>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct WireError {
    #[serde(default)]
    pub error_number: Number,
    #[serde(default)]
    pub error: Text,
    #[serde(default)]
    pub description: Text,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct KillStatus {
    #[serde(default)]
    pub error: Object<KillError>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct KillError {
    #[serde(default)]
    pub code: Number,
    #[serde(default)]
    pub message: Text,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Meta {
    #[serde(default, alias = "Slurm")]
    pub slurm: Object<MetaSlurm>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct MetaSlurm {
    #[serde(default)]
    pub release: Text,
    #[serde(default)]
    pub cluster: Text,
}

/// `GET /nodes`. Without the list the answer is none.
#[derive(Debug, Deserialize)]
pub(super) struct Nodes {
    pub nodes: Vec<Object<Node>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub name: Text,
    pub address: Text,
    pub state: Words,
    pub partitions: Words,
    pub cpus: Number,
    pub gres: Text,
    pub features: Words,
    pub reason: Text,
}

/// `GET /jobs` and `GET /job/{id}`.
#[derive(Debug, Deserialize)]
pub(super) struct Jobs {
    pub jobs: Vec<Object<Job>>,
    #[serde(default)]
    pub last_backfill: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    pub job_id: Number,
    pub user_id: Number,
    pub user_name: Text,
    pub account: Text,
    pub name: Text,
    pub partition: Text,
    pub qos: Text,
    pub job_state: Words,
    pub state_reason: Text,
    pub submit_time: Number,
    pub start_time: Number,
    pub end_time: Number,
    pub eligible_time: Number,
    pub preempt_time: Number,
    pub time_limit: Number,
    pub nodes: Text,
    pub batch_host: Text,
    pub scheduled_nodes: Text,
    pub required_nodes: Text,
    pub node_count: Number,
    pub hold: Number,
    pub priority: Number,
    pub restart_cnt: Number,
    pub comment: Text,
    pub admin_comment: Text,
    pub tres_per_node: Text,
    pub tres_req_str: Text,
    pub exit_code: Object<ExitCode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExitCode {
    pub return_code: Number,
    pub signal: Object<Signal>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Signal {
    #[serde(alias = "signal_id")]
    pub id: Number,
}

/// `GET /reservations`.
#[derive(Debug, Deserialize)]
pub(super) struct Reservations {
    pub reservations: Vec<Object<Reservation>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reservation {
    pub name: Text,
    pub start_time: Number,
    pub end_time: Number,
    pub node_list: Text,
    pub flags: Words,
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
    pub bf_active: Number,
    pub bf_when_last_cycle: Number,
    pub bf_cycle_counter: Number,
    pub bf_exit: Object<ExitCounters>,
}

/// How backfill cycles have ended since the statistics were last reset. Not how the last one ended.
pub(super) type ExitCounters = std::collections::BTreeMap<String, Number>;
