//! The interface to Slurm: slurmrestd over a Unix socket or HTTP(S), `scontrol` for features that slurmrestd
//! lacks, and MUNGE.
//!
//! Wire structures stay private to this crate; other crates see the types of [`infill_model`].

mod command;
mod configuration;
#[doc(hidden)]
pub mod conformance;
#[doc(hidden)]
pub mod fake;
mod gres;
pub mod identity;
mod identity_error;
mod munge;
mod places;
mod privacy;
pub mod rest;
mod topology;
mod user_tokens;

pub use places::{PlaceAssignments, PlacesSlurm};
pub use privacy::PrivacyRules;
pub use rest::{CommandSlurm, RestSlurm, SlurmCommands};

use async_trait::async_trait;

use infill_model::{Job, JobId, NodeName, Snapshot, Topology};

/// Installs the process-wide provider of cryptography that TLS needs. A second call has no effect.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A failed request to Slurm. The variant says whether another try can help.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// Time-out, refused connection, 5xx, rate limit: try again later.
    #[error("{doing}: {what}")]
    Transient {
        /// What was being done, to what.
        doing: String,
        /// What happened.
        what: String,
    },
    /// Slurm refused the request, or its answer cannot be read: trying the same again is useless.
    #[error("{doing}: {what}")]
    Permanent {
        /// What was being done, to what.
        doing: String,
        /// What happened.
        what: String,
    },
    /// infill's user has no permission, or infill must not touch this job.
    #[error("{doing}: access denied: {what}")]
    Denied {
        /// What was being done, to what.
        doing: String,
        /// What happened.
        what: String,
    },
}

impl SlurmError {
    /// Whether another try may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, SlurmError::Transient { .. })
    }
}

/// The Slurm that slurmrestd serves, and the REST versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestEndpoint {
    /// Slurm's version, such as `24.11.5`.
    pub slurm_version: String,
    /// REST version in use, such as `v0.0.42`.
    pub rest_version: String,
    /// All REST versions that both infill and slurmrestd speak, newest first.
    pub available: Vec<String>,
    /// Name of the cluster.
    pub cluster: String,
}

/// How the jobs of a partition share nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionSharing {
    /// Name of the partition.
    pub name: String,
    /// Whether its jobs have their nodes for themselves (`OverSubscribe=EXCLUSIVE`).
    pub exclusive: bool,
    /// Most CPUs of one node that all its jobs may have together (`MaxCPUsPerNode`); `None` without a limit.
    pub max_cpus_per_node: Option<u32>,
}

/// All requests that infill makes to Slurm. Changes fail with `Denied` for a job outside the malleable
/// partition, and with `Permanent` for a job in a state in which the change makes no sense. Implementations:
/// slurmrestd, places on top of it, and the fake of the unit tests.
#[async_trait]
pub trait SlurmApi: Send + Sync {
    /// The release and REST version that answer. The first call and a call after a failure discover them.
    async fn rest_endpoint(&self) -> Result<RestEndpoint, SlurmError>;
    /// One consistent reading of nodes, jobs, reservations and backfill. Its `doubts` say where it is not
    /// consistent.
    async fn read_snapshot(&self) -> Result<Snapshot, SlurmError>;
    /// Whether a job outside the malleable partition was submitted since the last trusted snapshot. The
    /// daemon asks just before it takes nodes: this costs much less than a snapshot. `true` where it is not
    /// certain; `false` before the first snapshot, and for a Slurm that does not count submissions.
    async fn has_new_main_jobs(&self) -> Result<bool, SlurmError>;
    /// Reads one job; `None` if Slurm does not know it, or no longer knows it.
    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError>;
    /// Makes a main job keep the places on which `find_job` has shown it, even if other jobs are sent there.
    /// Does nothing where whole nodes are lent.
    fn assign_place(&self, _id: JobId, _place: &NodeName) {}
    /// What users may see of each other, and who sees everything.
    async fn read_privacy(&self) -> Result<PrivacyRules, SlurmError>;
    /// How the jobs of each partition share nodes.
    async fn read_partitions(&self) -> Result<Vec<PartitionSharing>, SlurmError>;
    /// The switches and the nodes below them; empty where Slurm has no topology.
    async fn read_topology(&self) -> Result<Topology, SlurmError>;
    /// Pins a pending job to one node, sets its time limit, clears its begin time and releases it.
    /// `Transient` while a requeued job is still leaving its former node: Slurm would then make it wait for
    /// two minutes.
    async fn launch_job(&self, id: JobId, node: &NodeName, limit_mins: u32) -> Result<(), SlurmError>;
    /// Sets the time limit of a running job, counted from its start.
    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError>;
    /// Shrinks a running job to these nodes (its batch host must be among them).
    async fn shrink_job(&self, id: JobId, keep: &[NodeName]) -> Result<(), SlurmError>;
    /// Cancels a job. Succeeds for a job that has ended already.
    async fn cancel_job(&self, id: JobId) -> Result<(), SlurmError>;
    /// Requeues a running job and holds it. Refused in other states: Slurm would start a cancelled job again.
    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError>;
    /// Holds a pending job.
    async fn hold_job(&self, id: JobId) -> Result<(), SlurmError>;
    /// Clears the required nodes of a held, pending job. Refused for a job that is not held: Slurm would
    /// start it on any node.
    async fn unpin_job(&self, id: JobId) -> Result<(), SlurmError>;
    /// Gives pending tasks of an array records of their own, so that each can be started by itself. One task
    /// stays behind in the array's record. Does nothing for tasks that have their own.
    async fn split_array(&self, array: JobId, tasks: &[u32]) -> Result<(), SlurmError>;
    /// Writes a status into the job's comment. Leaves the comment alone if it is its owner's own, or says
    /// this already.
    async fn write_status(&self, id: JobId, status: &str) -> Result<(), SlurmError>;
}
