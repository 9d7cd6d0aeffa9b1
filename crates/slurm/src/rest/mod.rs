//! The client of slurmrestd, for all REST versions from v0.0.41 to v0.0.45.

mod bad_records;
mod commands;
#[cfg(test)]
mod conversation;
mod convert;
mod failure;
mod field;
mod http;
mod job_actions;
mod json_repair;
mod json_window;
mod new_jobs;
mod node_resources;
#[doc(hidden)]
pub mod offline;
mod planned_starts;
mod raw_reading;
mod record;
mod record_list;
#[cfg(test)]
mod recorded;
mod response_body;
mod token_source;
mod versioned_client;
mod wire;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub use self::commands::{CommandSlurm, SlurmCommands};
pub(super) use self::token_source::TokenClaims;
use async_trait::async_trait;

use self::bad_records::MalleableJobs;
use self::failure::{FailureKind, RequestFailure};
use self::http::RestTransport;
use self::new_jobs::{NewJobs, SubmissionWatermark};
use self::planned_starts::PlannedStarts;
use self::raw_reading::{ExitWatch, RawReading, SchedulerDiag};
use self::record::{SharedNames, WireRecord};
use self::record_list::RecordList;
use self::response_body::{ListBody, WholeBody};
use self::token_source::TokenSource;
use self::versioned_client::VersionedClient;
use super::{
    PartitionSharing, PrivacyRules, RestEndpoint, SlurmApi, SlurmError, configuration, privacy, topology,
};
use infill_model::{
    BackfillState, Job, JobId, NodeName, Snapshot, SnapshotDoubt, Topology, config::SlurmConfig,
};

/// Most readings in one call of `read_snapshot`, the first included, while backfill makes them doubtful.
const MAX_READINGS: u32 = 3;

/// Wait before the next reading. A short backfill cycle is over by then. For a long one the next round reads
/// again.
const READING_DELAY: Duration = Duration::from_millis(400);

/// Slurm through slurmrestd, with scontrol for the requests that slurmrestd does not offer.
pub struct RestSlurm {
    session: VersionedClient,
    partition: String,
    scontrol: PathBuf,
    timeout: Duration,
    exits: Mutex<ExitWatch>,
    ours: Arc<Mutex<MalleableJobs>>,
    plans: Mutex<PlannedStarts>,
    watermark: Mutex<SubmissionWatermark>,
    /// Seconds to which backfill rounds planned starts, from slurmctld's configuration; 0 before it is read.
    resolution_secs: AtomicU32,
}

impl RestSlurm {
    /// Prepares a client of the slurmrestd that the configuration names. Sends nothing yet.
    ///
    /// # Errors
    /// `Permanent` if the address, or the TLS roots of this machine, cannot be used.
    pub fn new(config: &SlurmConfig) -> Result<RestSlurm, SlurmError> {
        let timeout = Duration::from_secs_f64(config.timeout_secs.clamp(0.05, 86_400.0));
        let tokens = config
            .token_file
            .clone()
            .map(|file| TokenSource::new(file, config.token_user.clone(), config.scontrol.clone()));
        let http =
            RestTransport::new(&config.rest, timeout, tokens).map_err(|what| SlurmError::Permanent {
                doing: format!("preparing to speak to slurmrestd at {}", config.rest),
                what,
            })?;
        Ok(RestSlurm {
            session: VersionedClient::new(http),
            partition: config.partition.clone(),
            scontrol: config.scontrol.clone(),
            timeout,
            exits: Mutex::default(),
            ours: Arc::new(Mutex::new(MalleableJobs::for_partition(&config.partition))),
            plans: Mutex::default(),
            watermark: Mutex::default(),
            resolution_secs: AtomicU32::default(),
        })
    }

    /// For a site whose jobs share nodes: prefers a REST version whose records show what jobs ask for.
    pub fn with_share_records(self) -> RestSlurm {
        RestSlurm { session: self.session.with_share_records(), ..self }
    }

    /// Sends a request that any user may make to slurmrestd, with this user name and token.
    ///
    /// # Errors
    /// `Denied` if Slurm refuses the token.
    pub(super) async fn check_token(&self, user: &str, token: &str) -> Result<(), SlurmError> {
        let doing = format!("checking a token of {user}");
        self.session.get_as("licenses/", user, token).await.map_err(|f| f.into_slurm_error(doing))
    }

    async fn read_diag(&self) -> Result<SchedulerDiag, SlurmError> {
        let doing = "reading scheduler statistics from slurmrestd";
        let body = self.session.get_tail("diag/", &WholeBody).await.map_err(|f| f.into_slurm_error(doing))?;
        let diag = serde_json::from_slice(&body)
            .map_err(|e| json_window::unreadable_answer(&e, e.is_eof()).into_slurm_error(doing))?;
        Ok(SchedulerDiag::new(&diag))
    }

    async fn read_list<M: WireRecord + Send + 'static>(
        &self,
        tail: &str,
        shared: &Arc<Mutex<SharedNames>>,
    ) -> Result<RecordList<M>, SlurmError> {
        let doing = format!("reading {} from slurmrestd", M::LIST);
        self.session.get_tail(tail, &ListBody::new(shared)).await.map_err(|f| f.into_slurm_error(doing))
    }

    async fn read_all(&self, before: SchedulerDiag) -> Result<RawReading, SlurmError> {
        // Nodes before jobs: a job that starts in between is shown on a node that looked idle, and the gap
        // finder takes a node as busy if either record says so.
        let shared = Arc::default();
        let nodes = self.read_list("nodes/", &shared).await?;
        let jobs = self.read_list("jobs/", &shared).await?;
        let reservations = self.read_list("reservations/", &shared).await?;
        let after = self.read_diag().await?;
        Ok(RawReading { before, nodes, jobs, reservations, after })
    }

    /// Puts the snapshot together on a thread for blocking work.
    async fn combine_reading(&self, reading: RawReading) -> Result<Snapshot, SlurmError> {
        let backfill = self.backfill_state(&reading.after);
        let ours = self.ours.clone();
        let combined = tokio::task::spawn_blocking(move || {
            // A panic while the lock was held left the jobs of one complete reading.
            let mut ours = ours.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            reading.into_snapshot(backfill, &mut ours)
        });
        combined.await.map_err(|e| {
            RequestFailure::new(FailureKind::Transient, e.to_string()).into_slurm_error("reading a snapshot")
        })
    }

    /// Restores planned starts and records what the snapshot has shown, where it can be trusted.
    fn finish_snapshot(&self, snapshot: &mut Snapshot, before: &SchedulerDiag) {
        // A panic while the lock was held left the plans of one complete reading.
        self.plans.lock().unwrap_or_else(std::sync::PoisonError::into_inner).restore_plans(snapshot);
        if snapshot.is_trusted() {
            self.lock_watermark().record_look(before, snapshot.jobs.last().map(|job| job.id));
        }
        warn_of_inconsistency(snapshot);
    }

    /// Each change of the watermark is a single step, so it is whole even after a panic in another thread.
    fn lock_watermark(&self) -> MutexGuard<'_, SubmissionWatermark> {
        self.watermark.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn backfill_state(&self, diag: &SchedulerDiag) -> BackfillState {
        // A panic while the lock was held cannot have left the counters half written.
        let mut exits = self.exits.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let resolution_secs = Some(self.resolution_secs.load(Ordering::Relaxed)).filter(|secs| *secs > 0);
        BackfillState { resolution_secs, ..exits.backfill_state(diag) }
    }

    async fn read_job_record(&self, id: JobId, doing: &str) -> Result<Option<Job>, SlurmError> {
        let list = ListBody::<Job>::new(&Arc::default());
        let RecordList { records, bad, .. } = match self.session.get_tail(&format!("job/{id}"), &list).await {
            Err(f) if f.kind == FailureKind::NoSuchJob => return Ok(None),
            result => result.map_err(|f| f.into_slurm_error(doing))?,
        };
        match records.into_iter().find(|j| j.id == id) {
            Some(job) => Ok(Some(job)),
            None => match bad.first() {
                Some(bad) => {
                    Err(RequestFailure::new(FailureKind::Permanent, bad.to_string()).into_slurm_error(doing))
                }
                None => Ok(None),
            },
        }
    }
}

#[async_trait]
impl SlurmApi for RestSlurm {
    async fn rest_endpoint(&self) -> Result<RestEndpoint, SlurmError> {
        self.session
            .find_endpoint()
            .await
            .map_err(|f| f.into_slurm_error("asking slurmrestd for its versions"))
    }

    async fn read_snapshot(&self) -> Result<Snapshot, SlurmError> {
        let mut tries_left = MAX_READINGS;
        loop {
            tries_left -= 1;
            let before = self.read_diag().await?;
            // Reading all jobs is useless while backfill wipes their planned starts, so wait if that is
            // possible.
            if tries_left == 0 || before.active != Some(true) {
                let reading = self.read_all(before.clone()).await?;
                let mut snapshot = self.combine_reading(reading).await?;
                if tries_left == 0 || !raw_reading::are_transient(&snapshot.doubts) {
                    self.finish_snapshot(&mut snapshot, &before);
                    return Ok(snapshot);
                }
            }
            tokio::time::sleep(READING_DELAY.mul_f64(rand::random_range(0.75..1.25))).await;
        }
    }

    async fn has_new_main_jobs(&self) -> Result<bool, SlurmError> {
        let diag = self.read_diag().await?;
        let watermark = *self.lock_watermark();
        let (after, count) = match watermark.new_jobs(&diag) {
            NewJobs::None => return Ok(false),
            NewJobs::ManyOrUnknown => return Ok(true),
            NewJobs::Jobs { after, count } => (after, count),
        };
        for offset in 1..=count {
            let found = self.find_job(later_id(after, offset)).await?;
            // Wings that agents have submitted are not news.
            if found.is_none_or(|job| job.partition != self.partition) {
                return Ok(true);
            }
        }
        // A task of an array takes an id when it starts, and is not counted then. So a task of a malleable
        // job may have an id in the range, and a main job the id after it.
        if self.find_job(later_id(after, count + 1)).await?.is_some() {
            return Ok(true);
        }
        let mut current = self.lock_watermark();
        // A snapshot that was taken meanwhile has set a later one.
        if *current == watermark {
            current.record_look(&diag, Some(later_id(after, count)));
        }
        Ok(false)
    }

    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        self.read_job_record(id, &format!("reading job {id}")).await
    }

    async fn read_privacy(&self) -> Result<PrivacyRules, SlurmError> {
        let config = configuration::read_configuration(&self.scontrol).await?;
        self.resolution_secs.store(config.backfill_resolution_secs(), Ordering::Relaxed);
        privacy::read_privacy(&config).await
    }

    async fn read_partitions(&self) -> Result<Vec<PartitionSharing>, SlurmError> {
        let RecordList { records, bad, .. } =
            self.read_list::<PartitionSharing>("partitions/", &Arc::default()).await?;
        // It is not certain that the jobs of a partition with unreadable fields share nodes: count it as
        // exclusive.
        let unreadable = bad.into_iter().filter_map(|bad| bad.rest);
        let exclusive = unreadable.map(|partition| PartitionSharing { exclusive: true, ..partition });
        Ok(records.into_iter().chain(exclusive).collect())
    }

    async fn read_topology(&self) -> Result<Topology, SlurmError> {
        topology::read_topology(&self.scontrol).await
    }

    async fn launch_job(&self, id: JobId, node: &NodeName, limit_mins: u32) -> Result<(), SlurmError> {
        self.do_launch(id, node, limit_mins).await
    }

    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError> {
        self.do_set_time_limit(id, limit_mins).await
    }

    async fn shrink_job(&self, id: JobId, keep: &[NodeName]) -> Result<(), SlurmError> {
        self.do_shrink(id, keep).await
    }

    async fn cancel_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_cancel(id).await
    }

    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_requeue_hold(id).await
    }

    async fn hold_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_hold(id).await
    }

    async fn unpin_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_unpin(id).await
    }

    async fn split_array(&self, array: JobId, tasks: &[u32]) -> Result<(), SlurmError> {
        self.do_split(array, tasks).await
    }

    async fn write_status(&self, id: JobId, status: &str) -> Result<(), SlurmError> {
        self.do_write_status(id, status).await
    }
}

fn later_id(id: JobId, offset: u32) -> JobId {
    JobId(id.0.saturating_add(offset))
}

fn warn_of_inconsistency(snapshot: &Snapshot) {
    for doubt in &snapshot.doubts {
        if let SnapshotDoubt::Inconsistent(what) = doubt {
            tracing::warn!(what, "Slurm's answers cannot be trusted");
        }
    }
}
