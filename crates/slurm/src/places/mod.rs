//! Slurm for a site that lends parts of nodes. A place is a GPU with its share of a node, or some CPUs of a
//! node without GPUs. The rest of infill treats places as nodes.
//!
//! A node `n1` with four GPUs becomes `n1:0` to `n1:3`. Slurm says how much each job has, and infill decides
//! which places that is. A job keeps its places while it runs ([`PlaceAssignments`]). A wing is on the place
//! that its comment names, and a lead on the place where it was launched. A planned start claims as many
//! places as the job will lack ([`claims`]).

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

/// A [`SlurmApi`] that shows places instead of the nodes of one partition.
pub struct PlacesSlurm {
    slurm: Arc<dyn SlurmApi>,
    assignments: Arc<Mutex<PlaceAssignments>>,
}

impl PlacesSlurm {
    /// Divides the nodes of this partition by `rules`. `lead_places` are the places of leads that were
    /// launched earlier, as far as they are recorded.
    pub fn new(
        slurm: Arc<dyn SlurmApi>,
        partition: &str,
        rules: LendingRules,
        lead_places: BTreeMap<JobId, NodeName>,
    ) -> Self {
        let assignments = PlaceAssignments::new(partition, rules, lead_places);
        PlacesSlurm { slurm, assignments: Arc::new(Mutex::new(assignments)) }
    }

    fn assignments(&self) -> MutexGuard<'_, PlaceAssignments> {
        lock_assignments(&self.assignments)
    }
}

/// A panic while the lock was held left the places of one complete snapshot.
fn lock_assignments(assignments: &Mutex<PlaceAssignments>) -> MutexGuard<'_, PlaceAssignments> {
    assignments.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a job may run in one of these partitions. `job.partition` may list several.
fn is_in_any_partition(job: &Job, partitions: &[&PartitionSharing]) -> bool {
    job.partition.split(',').any(|name| partitions.iter().any(|partition| partition.name == name.trim()))
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
        for job in snapshot.jobs.iter_mut().filter(|job| is_in_any_partition(job, &exclusive)) {
            job.wants = None;
        }
        self.assignments().apply_cpu_limit(&partitions);
        let assignments = self.assignments.clone();
        let with_places = tokio::task::spawn_blocking(move || {
            lock_assignments(&assignments).snapshot_with_places(snapshot)
        })
        .await;
        with_places.map_err(|e| SlurmError::Transient {
            doing: "assigning jobs to places".to_owned(),
            what: e.to_string(),
        })
    }

    async fn has_new_main_jobs(&self) -> Result<bool, SlurmError> {
        self.slurm.has_new_main_jobs().await
    }

    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        let Some(job) = self.slurm.find_job(id).await? else { return Ok(None) };
        self.assignments().job_with_last_places(job).map(Some).ok_or_else(|| SlurmError::Transient {
            doing: format!("reading job {id}"),
            what: "its places are unknown before the first snapshot".to_owned(),
        })
    }

    fn assign_place(&self, id: JobId, place: &NodeName) {
        self.assignments().record_sent(id, place);
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
        // Record the place before Slurm can show the job there.
        self.assignments().record_sent(id, node);
        self.slurm.launch_job(id, &node.host(), limit_mins).await
    }

    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError> {
        self.slurm.set_time_limit(id, limit_mins).await
    }

    async fn shrink_job(&self, id: JobId, _keep: &[NodeName]) -> Result<(), SlurmError> {
        // A malleable job's Slurm job has one place, so it cannot keep a part of it.
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

    async fn split_array(&self, array: JobId, tasks: &[u32]) -> Result<(), SlurmError> {
        self.slurm.split_array(array, tasks).await
    }

    async fn write_status(&self, id: JobId, status: &str) -> Result<(), SlurmError> {
        self.slurm.write_status(id, status).await
    }
}
