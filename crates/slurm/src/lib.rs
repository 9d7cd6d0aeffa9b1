//! The edge to Slurm: slurmrestd over a Unix socket or HTTP(S), `scontrol` for what old versions lack, MUNGE.
//!
//! Wire structures stay private to this module; everybody else sees [`infill_model`].

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
pub use rest::RestSlurm;

use async_trait::async_trait;

use infill_model::{Job, JobId, NodeName, Snapshot, Topology};

/// TLS needs a process-wide provider. Installing it twice is refused, and harmless.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What went wrong at Slurm, and whether trying again can help.
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
    /// Slurm understood and says no, or answered what we cannot read: trying the same again is useless.
    #[error("{doing}: {what}")]
    Permanent {
        /// What was being done, to what.
        doing: String,
        /// What happened.
        what: String,
    },
    /// We may not.
    #[error("{doing}: access denied: {what}")]
    Denied {
        /// What was being done, to what.
        doing: String,
        /// What happened.
        what: String,
    },
}

impl SlurmError {
    /// Whether trying the same again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, SlurmError::Transient { .. })
    }
}

/// What is on the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestEndpoint {
    /// Slurm's version, such as `24.11.5`.
    pub slurm_version: String,
    /// REST version in use, such as `v0.0.42`.
    pub rest_version: String,
    /// All REST versions that we speak and it answers, newest first.
    pub available: Vec<String>,
    /// Cluster name.
    pub cluster: String,
}

/// What a partition says of how its jobs share nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionSharing {
    /// Name.
    pub name: String,
    /// Whether its jobs have their nodes for themselves (`OverSubscribe=EXCLUSIVE`).
    pub exclusive: bool,
    /// Most CPUs of one node that all its jobs have together (`MaxCPUsPerNode`).
    pub max_cpus_per_node: Option<u32>,
}

/// Everything that infill asks of Slurm. Acts refuse, with `Denied`, jobs outside the malleable partition,
/// and with `Permanent` those in a state in which the act makes no sense. Two implementations: slurmrestd,
/// and the fake of the unit tests.
#[async_trait]
pub trait SlurmApi: Send + Sync {
    /// Who answers; discovers the REST version on the first call and after a failure.
    async fn rest_endpoint(&self) -> Result<RestEndpoint, SlurmError>;
    /// One consistent reading of nodes, jobs, reservations and backfill; `doubts` says where it is not.
    async fn read_snapshot(&self) -> Result<Snapshot, SlurmError>;
    /// Whether a job that is not in the malleable partition has come since the last trusted `snapshot`: asked
    /// just before nodes are taken, for much less than a dump. `true` where that cannot be told for sure;
    /// `false` before the first snapshot, and of a Slurm that does not count what is submitted.
    async fn has_news(&self) -> Result<bool, SlurmError>;
    /// One job, freshly read; `None` if Slurm does not know it (any more).
    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError>;
    /// From now on a job of the main queue keeps the places of its node on which `job` has shown it, whoever
    /// else comes there. Nothing to do where whole nodes are lent.
    fn assign_place(&self, _id: JobId, _place: &NodeName) {}
    /// What users may see of each other, and who sees everything.
    async fn read_privacy(&self) -> Result<PrivacyRules, SlurmError>;
    /// What partitions say of how their jobs share nodes.
    async fn read_partitions(&self) -> Result<Vec<PartitionSharing>, SlurmError>;
    /// Which switch each node hangs on; empty where Slurm knows of none.
    async fn read_topology(&self) -> Result<Topology, SlurmError>;
    /// Pins a pending job to one node, sets its time limit, clears its begin time and releases it.
    /// `Transient` while a requeued job still leaves its former node: Slurm would then make it wait for two
    /// minutes.
    async fn launch_job(&self, id: JobId, node: &NodeName, limit_mins: u32) -> Result<(), SlurmError>;
    /// Sets the time limit of a running job, counted from its start.
    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError>;
    /// Shrinks a running job to these nodes (its batch host must be among them).
    async fn shrink_job(&self, id: JobId, keep: &[NodeName]) -> Result<(), SlurmError>;
    /// Cancels a job. A job that has ended already is no error.
    async fn cancel_job(&self, id: JobId) -> Result<(), SlurmError>;
    /// Requeues a running job, held. Refused for any other: Slurm would bring a cancelled job back to life.
    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError>;
    /// Holds a pending job.
    async fn hold_job(&self, id: JobId) -> Result<(), SlurmError>;
    /// Clears the nodes that a held, pending job must have. Refused for one that is not held: Slurm would
    /// start it anywhere.
    async fn unpin_job(&self, id: JobId) -> Result<(), SlurmError>;
}
