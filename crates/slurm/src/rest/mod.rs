//! slurmrestd, in all versions from v0.0.41 to v0.0.45.

mod acts;
mod body;
#[cfg(test)]
mod conversation;
mod convert;
mod failure;
mod field;
mod http;
mod listing;
mod mend;
mod news;
#[doc(hidden)]
pub mod offline;
mod ours;
mod plans;
mod reading;
mod record;
#[cfg(test)]
mod recorded;
mod session;
mod shares;
mod token;
mod window;
mod wire;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(super) use self::token::Claims;
use async_trait::async_trait;

use self::body::{List, Whole};
use self::failure::{Failure, Kind};
use self::http::Http;
use self::listing::Listed;
use self::news::{News, Seen};
use self::ours::Ours;
use self::plans::Plans;
use self::reading::{ExitWatch, Pulse, Reading};
use self::record::{Record, Shared};
use self::session::Session;
use self::token::Tokens;
use super::{Endpoint, Partition, Privacy, SlurmApi, SlurmError, configuration, privacy, topology};
use infill_model::{
    BackfillState, Job, JobId, NodeName, Snapshot, SnapshotDoubt, Topology, config::SlurmConfig,
};

/// Readings in one call of `snapshot`, the first included, while backfill is in the way.
const READINGS: u32 = 3;

/// Wait before the next reading. A short backfill cycle is over by then; for a long one the next round is
/// there.
const READING_DELAY: Duration = Duration::from_millis(400);

/// Slurm as slurmrestd shows it.
pub struct RestSlurm {
    session: Session,
    partition: String,
    scontrol: PathBuf,
    timeout: Duration,
    exits: Mutex<ExitWatch>,
    ours: Arc<Mutex<Ours>>,
    plans: Mutex<Plans>,
    seen: Mutex<Seen>,
    /// To how many seconds backfill rounds planned starts, as slurmctld last told; 0: it has not.
    resolution_secs: AtomicU32,
}

impl RestSlurm {
    /// Prepares to speak to the slurmrestd that the configuration names. Sends nothing yet.
    ///
    /// # Errors
    /// `Permanent` if the address or the TLS roots of this machine cannot be used.
    pub fn new(config: &SlurmConfig) -> Result<RestSlurm, SlurmError> {
        let timeout = Duration::from_secs_f64(config.timeout_secs.clamp(0.05, 86_400.0));
        let tokens = config
            .token_file
            .clone()
            .map(|file| Tokens::new(file, config.token_user.clone(), config.scontrol.clone()));
        let http = Http::new(&config.rest, timeout, tokens).map_err(|what| SlurmError::Permanent {
            doing: format!("preparing to speak to slurmrestd at {}", config.rest),
            what,
        })?;
        Ok(RestSlurm {
            session: Session::new(http),
            partition: config.partition.clone(),
            scontrol: config.scontrol.clone(),
            timeout,
            exits: Mutex::default(),
            ours: Arc::new(Mutex::new(Ours::of(&config.partition))),
            plans: Mutex::default(),
            seen: Mutex::default(),
            resolution_secs: AtomicU32::default(),
        })
    }

    /// For a site whose jobs share nodes: speaks a REST version in which records tell what jobs ask for.
    pub fn telling_of_shares(self) -> RestSlurm {
        RestSlurm { session: self.session.telling_of_shares(), ..self }
    }

    /// Asks slurmrestd in the name of the user that this token claims to be, for something that any user may
    /// see.
    ///
    /// # Errors
    /// `Denied` if Slurm does not take the token.
    pub(super) async fn check_token(&self, user: &str, token: &str) -> Result<(), SlurmError> {
        let doing = format!("checking a token of {user}");
        self.session.get_as("licenses/", user, token).await.map_err(|f| f.doing(doing))
    }

    async fn pulse(&self) -> Result<Pulse, SlurmError> {
        let doing = "reading scheduler statistics from slurmrestd";
        let body = self.session.get("diag/", &Whole).await.map_err(|f| f.doing(doing))?;
        let diag =
            serde_json::from_slice(&body).map_err(|e| window::unreadable(&e, e.is_eof()).doing(doing))?;
        Ok(Pulse::new(&diag))
    }

    async fn list<M: Record + Send + 'static>(
        &self,
        tail: &str,
        shared: &Arc<Mutex<Shared>>,
    ) -> Result<Listed<M>, SlurmError> {
        let doing = format!("reading {} from slurmrestd", M::LIST);
        self.session.get(tail, &List::new(shared)).await.map_err(|f| f.doing(doing))
    }

    async fn reading(&self, before: Pulse) -> Result<Reading, SlurmError> {
        // Nodes before jobs: a job that starts in between is seen on a node that looked idle, and the gap
        // finder takes a node as busy if either says so.
        let shared = Arc::default();
        let nodes = self.list("nodes/", &shared).await?;
        let jobs = self.list("jobs/", &shared).await?;
        let reservations = self.list("reservations/", &shared).await?;
        let after = self.pulse().await?;
        Ok(Reading { before, nodes, jobs, reservations, after })
    }

    /// Every change of it is a single step: a thread that panicked leaves it whole.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn backfill(&self, pulse: &Pulse) -> BackfillState {
        // A panic while the lock was held cannot have left the counters half written.
        let mut exits = self.exits.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let resolution_secs = Some(self.resolution_secs.load(Ordering::Relaxed)).filter(|secs| *secs > 0);
        BackfillState { resolution_secs, ..exits.backfill(pulse) }
    }

    async fn read_job(&self, id: JobId, doing: &str) -> Result<Option<Job>, SlurmError> {
        let list = List::<Job>::new(&Arc::default());
        let Listed { records, bad, .. } = match self.session.get(&format!("job/{id}"), &list).await {
            Err(f) if f.kind == Kind::NoSuchJob => return Ok(None),
            result => result.map_err(|f| f.doing(doing))?,
        };
        match records.into_iter().find(|j| j.id == id) {
            Some(job) => Ok(Some(job)),
            None => match bad.first() {
                Some(bad) => Err(Failure::new(Kind::Permanent, bad.to_string()).doing(doing)),
                None => Ok(None),
            },
        }
    }
}

#[async_trait]
impl SlurmApi for RestSlurm {
    async fn endpoint(&self) -> Result<Endpoint, SlurmError> {
        self.session.endpoint().await.map_err(|f| f.doing("asking slurmrestd for its versions"))
    }

    async fn snapshot(&self) -> Result<Snapshot, SlurmError> {
        let mut tries = READINGS;
        loop {
            tries -= 1;
            let before = self.pulse().await?;
            // No use in dumping all jobs while their planned starts are being wiped, as long as we may wait.
            if tries == 0 || before.active != Some(true) {
                let reading = self.reading(before.clone()).await?;
                let backfill = self.backfill(&reading.after);
                let ours = self.ours.clone();
                let put_together = move || {
                    // A panic while the lock was held left the jobs of one reading or the other.
                    let mut ours = ours.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    reading.snapshot(backfill, &mut ours)
                };
                let mut snapshot = tokio::task::spawn_blocking(put_together)
                    .await
                    .map_err(|e| Failure::new(Kind::Transient, e.to_string()).doing("reading a snapshot"))?;
                if tries == 0 || !reading::may_pass(&snapshot.doubts) {
                    // A panic while the lock was held left the plans of one reading or the other.
                    self.plans
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .settle(&mut snapshot);
                    if snapshot.is_trusted() {
                        self.seen().looked(&before, snapshot.jobs.last().map(|job| job.id));
                    }
                    warn_of_inconsistency(&snapshot);
                    return Ok(snapshot);
                }
            }
            tokio::time::sleep(READING_DELAY.mul_f64(rand::random_range(0.75..1.25))).await;
        }
    }

    async fn has_news(&self) -> Result<bool, SlurmError> {
        let pulse = self.pulse().await?;
        let then = *self.seen();
        let (after, come) = match then.news(&pulse) {
            News::None => return Ok(false),
            News::Much => return Ok(true),
            News::Jobs { after, come } => (after.0, come),
        };
        let number = |i: u32| JobId(after.saturating_add(i));
        for i in 1..=come {
            // Agents submit wings.
            if self.job(number(i)).await?.is_none_or(|job| job.partition != self.partition) {
                return Ok(true);
            }
        }
        // A task of an array takes a number when it starts, and is not counted then: one of ours may have
        // taken the place of somebody's job.
        if self.job(number(come + 1)).await?.is_some() {
            return Ok(true);
        }
        let mut seen = self.seen();
        // A snapshot that was taken meanwhile knows better.
        if *seen == then {
            seen.looked(&pulse, Some(number(come)));
        }
        Ok(false)
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        self.read_job(id, &format!("reading job {id}")).await
    }

    async fn privacy(&self) -> Result<Privacy, SlurmError> {
        let config = configuration::read(&self.scontrol).await?;
        self.resolution_secs.store(config.resolution_secs(), Ordering::Relaxed);
        privacy::of(&config).await
    }

    async fn partitions(&self) -> Result<Vec<Partition>, SlurmError> {
        let Listed { records, bad, .. } = self.list::<Partition>("partitions/", &Arc::default()).await?;
        // Of one that cannot be read nobody knows that its jobs share.
        let bad = bad.into_iter().filter_map(|bad| bad.rest);
        Ok(records.into_iter().chain(bad.map(|p| Partition { exclusive: true, ..p })).collect())
    }

    async fn topology(&self) -> Result<Topology, SlurmError> {
        topology::read(&self.scontrol).await
    }

    async fn launch(&self, id: JobId, node: &NodeName, limit_mins: u32) -> Result<(), SlurmError> {
        self.do_launch(id, node, limit_mins).await
    }

    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError> {
        self.do_set_time_limit(id, limit_mins).await
    }

    async fn shrink(&self, id: JobId, keep: &[NodeName]) -> Result<(), SlurmError> {
        self.do_shrink(id, keep).await
    }

    async fn cancel(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_cancel(id).await
    }

    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_requeue_hold(id).await
    }

    async fn hold(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_hold(id).await
    }

    async fn unpin(&self, id: JobId) -> Result<(), SlurmError> {
        self.do_unpin(id).await
    }
}

fn warn_of_inconsistency(snapshot: &Snapshot) {
    for doubt in &snapshot.doubts {
        if let SnapshotDoubt::Inconsistent(what) = doubt {
            tracing::warn!(what, "Slurm's answers cannot be trusted");
        }
    }
}
