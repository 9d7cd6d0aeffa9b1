//! Slurm as a site shows it that lends parts of nodes: each GPU with its share of a node is a place, or some
//! CPUs of a node without GPUs, and everything else in infill takes places for nodes.
//!
//! A node `n1` with four GPUs becomes `n1:0` to `n1:3`. Which job is on which place is ours to say, for what
//! counts is how much each has: a job keeps its places as long as it runs ([`PlaceAssignments`]), a wing is
//! on the place that its comment names, a lead on the one it was launched on. A planned start claims as many
//! places as the job will find missing ([`claims`]).

mod claims;
mod lent_node;
mod place_assignments;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

pub use self::place_assignments::PlaceAssignments;
use super::{PartitionSharing, PrivacyRules, RestEndpoint, SlurmApi, SlurmError};
use infill_model::{Job, JobId, LendingRules, NodeName, Snapshot, Topology};

/// Slurm with places for nodes.
pub struct PlacesSlurm {
    slurm: Arc<dyn SlurmApi>,
    seats: Arc<Mutex<PlaceAssignments>>,
}

impl PlacesSlurm {
    /// The places of the nodes of this partition, which are such parts of them. `known`: which lead is on
    /// which place, as far as anybody remembers.
    pub fn new(
        slurm: Arc<dyn SlurmApi>,
        partition: &str,
        parts: LendingRules,
        known: BTreeMap<JobId, NodeName>,
    ) -> Self {
        PlacesSlurm { slurm, seats: Arc::new(Mutex::new(PlaceAssignments::new(partition, parts, known))) }
    }

    fn seats(&self) -> MutexGuard<'_, PlaceAssignments> {
        lock_assignments(&self.seats)
    }
}

/// A panic while the lock was held left the places of one snapshot or the other.
fn lock_assignments(seats: &Mutex<PlaceAssignments>) -> MutexGuard<'_, PlaceAssignments> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl SlurmApi for PlacesSlurm {
    async fn rest_endpoint(&self) -> Result<RestEndpoint, SlurmError> {
        self.slurm.rest_endpoint().await
    }

    async fn read_snapshot(&self) -> Result<Snapshot, SlurmError> {
        let partitions = self.slurm.read_partitions().await?;
        let mut snapshot = self.slurm.read_snapshot().await?;
        let exclusive: Vec<&PartitionSharing> = partitions.iter().filter(|p| p.exclusive).collect();
        let is_exclusive =
            |job: &Job| job.partition.split(',').any(|p| exclusive.iter().any(|e| e.name == p.trim()));
        snapshot.jobs.iter_mut().filter(|j| is_exclusive(j)).for_each(|j| j.wants = None);
        self.seats().apply_cpu_limit(&partitions);
        let seats = self.seats.clone();
        let seated =
            tokio::task::spawn_blocking(move || lock_assignments(&seats).snapshot_with_places(snapshot))
                .await;
        seated.map_err(|e| SlurmError::Transient { doing: "seating jobs".to_owned(), what: e.to_string() })
    }

    async fn has_news(&self) -> Result<bool, SlurmError> {
        self.slurm.has_news().await
    }

    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        let Some(job) = self.slurm.find_job(id).await? else { return Ok(None) };
        self.seats().job_as_seated(job).map(Some).ok_or_else(|| SlurmError::Transient {
            doing: format!("reading job {id}"),
            what: "where it is shows in the first snapshot only".to_owned(),
        })
    }

    fn assign_place(&self, id: JobId, place: &NodeName) {
        self.seats().record_sent(id, place);
    }

    async fn read_privacy(&self) -> Result<PrivacyRules, SlurmError> {
        self.slurm.read_privacy().await
    }

    async fn read_partitions(&self) -> Result<Vec<PartitionSharing>, SlurmError> {
        self.slurm.read_partitions().await
    }

    async fn read_topology(&self) -> Result<Topology, SlurmError> {
        self.slurm.read_topology().await
    }

    async fn launch_job(&self, id: JobId, node: &NodeName, limit_mins: u32) -> Result<(), SlurmError> {
        // Before Slurm may show it there.
        self.seats().record_sent(id, node);
        self.slurm.launch_job(id, &node.host(), limit_mins).await
    }

    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError> {
        self.slurm.set_time_limit(id, limit_mins).await
    }

    async fn shrink_job(&self, id: JobId, _keep: &[NodeName]) -> Result<(), SlurmError> {
        // A job of ours has one place: there is nothing to keep of it.
        let doing = format!("shrinking job {id}");
        Err(SlurmError::Permanent { doing, what: "it has one place only".to_owned() })
    }

    async fn cancel_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.cancel_job(id).await
    }

    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.requeue_hold(id).await
    }

    async fn hold_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.hold_job(id).await
    }

    async fn unpin_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.slurm.unpin_job(id).await
    }
}
