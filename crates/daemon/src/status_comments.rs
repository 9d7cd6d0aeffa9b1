//! Writes into the comments of malleable jobs why they wait. To Slurm such a job is held by its owner, so
//! that without the comment `squeue` shows it as stuck.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::DaemonContext;
use super::redaction::{ApiReader, RedactionFilter};
use super::state::DaemonState;
use infill_lifecycle::{JobLifecycle, JobPhase};
use infill_model::{JobId, MalleableState, NodeCount, PrivateData, comment_with_status};
use infill_slurm::SlurmError;

/// Most comments that are written after one round. Each costs slurmctld two requests.
const MAX_WRITES_A_ROUND: usize = 20;

/// Writes comments after each round with a trusted snapshot. Never returns.
pub(crate) async fn write_comments(context: Arc<DaemonContext>) {
    let secs = context.config.daemon.comment_secs;
    let mut rounds = context.response_cache.snapshot_times.subscribe();
    if secs <= 0.0 || !context.lock_state().is_acting() {
        return std::future::pending().await;
    }
    let mut limiter = WriteLimiter::new(Duration::from_secs_f64(secs));
    let mut was_denied = false;
    while rounds.changed().await.is_ok() {
        let stale = stale_statuses(&context.lock_state(), context.access.private_data());
        for (job, status) in limiter.select(stale, Instant::now()) {
            if !context.leadership.may_act() {
                break;
            }
            let written = context.slurm.write_status(job, &status).await;
            was_denied = report_write(job, &written, was_denied);
            if matches!(&written, Err(e) if e.is_transient()) {
                // Slurm is busy or away. Comments are what it needs least.
                break;
            }
        }
    }
    // The sender is a part of the context, so that this is never reached.
    std::future::pending().await
}

/// Logs the result of a write. Returns whether Slurm has denied one so far, which is a warning once.
fn report_write(job: JobId, written: &Result<(), SlurmError>, was_denied: bool) -> bool {
    let Err(e) = written else { return was_denied };
    let is_denied = matches!(e, SlurmError::Denied { .. });
    if is_denied && !was_denied {
        tracing::warn!(%job, "squeue will not show why jobs wait (daemon.comment_secs = 0 turns this off): {e}");
    } else {
        tracing::debug!(%job, "did not write why the job waits: {e}");
    }
    was_denied || is_denied
}

/// The jobs whose comments do not say what they should, with the statuses that they should have.
fn stale_statuses(state: &DaemonState, private: PrivateData) -> Vec<(JobId, String)> {
    let Some(snapshot) = &state.snapshot else { return Vec::new() };
    let mut stale = Vec::new();
    for lifecycle in state.fleet.job_lifecycles() {
        let lead = snapshot.job(lifecycle.job).filter(|job| job.partition == state.config.slurm.partition);
        let Some(lead) = lead.filter(|job| !job.state.is_ended()) else { continue };
        let Some(status) = job_status(state, lifecycle) else { continue };
        // The comment is for its owner: those who may not see the job do not see its comment either.
        let owner = ApiReader { uid: Some(lead.user_id), ..ApiReader::default() };
        let owner_of = |job| state.job_owner(job);
        let status = RedactionFilter::new(&owner, private, &owner_of).redact_text(&status).into_owned();
        if comment_with_status(&lead.comment, &status).is_some_and(|comment| comment != lead.comment) {
            stale.push((lifecycle.job, status));
        }
    }
    stale
}

/// What a job does, without figures that change in each round. `None` in the middle of a change, because that
/// is soon over.
fn job_status(state: &DaemonState, lifecycle: &JobLifecycle) -> Option<String> {
    match lifecycle.malleable_state() {
        MalleableState::Queued => {
            let why = &state.fleet.job_details(lifecycle.job)?.why;
            (!why.is_empty()).then(|| why.clone())
        }
        MalleableState::Running => {
            let JobPhase::Running { members } = &lifecycle.phase else { return None };
            let nodes = lifecycle.generation_node_count(members.len());
            Some(format!("trains on {} of {}", NodeCount(nodes), lifecycle.allowed_sizes()))
        }
        _ => None,
    }
}

/// Bounds how often comments are written.
struct WriteLimiter {
    interval: Duration,
    /// When each job's comment was last written, or could not be.
    written: BTreeMap<JobId, Instant>,
}

impl WriteLimiter {
    fn new(interval: Duration) -> WriteLimiter {
        WriteLimiter { interval, written: BTreeMap::new() }
    }

    /// The writes that may be made now. `stale` ascends by job. Jobs whose comments are the oldest come
    /// first.
    fn select(&mut self, mut stale: Vec<(JobId, String)>, now: Instant) -> Vec<(JobId, String)> {
        let interval = self.interval;
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < interval;
        self.written
            .retain(|job, at| is_recent(at) || stale.binary_search_by_key(job, |(id, _)| *id).is_ok());
        stale.retain(|(job, _)| !self.written.get(job).is_some_and(is_recent));
        stale.sort_by_key(|(job, _)| (self.written.get(job).copied(), *job));
        stale.truncate(MAX_WRITES_A_ROUND);
        self.written.extend(stale.iter().map(|(job, _)| (*job, now)));
        stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{JobReason, JobVerdict, RoundReport, clock::now, config::Config};
    use infill_slurm::{SlurmApi as _, fake::FakeSlurm};

    #[tokio::test]
    async fn a_status_names_no_job_that_the_owner_may_not_see() {
        let slurm = FakeSlurm::new(1, "infill");
        let job = slurm.submit_held(1, 6101, "infill:nodes=1");
        slurm.submit_held(2, 6102, "infill:nodes=1");
        slurm.edit_snapshot(|snapshot| snapshot.jobs[1].comment = "for the paper".to_owned());
        let snapshot = slurm.read_snapshot().await.unwrap();
        let at = now();
        let mut state = DaemonState::new(Arc::new(Config::default()), at);
        let _ = state.update_fleet(&snapshot, at, at);
        let _ = state.update_rounds(snapshot, at);
        let waits = |job| JobVerdict {
            job,
            had: 0,
            gets: 0,
            why: JobReason::Said("waits for job 2".to_owned()),
            hosts: None,
            guarantee: None,
        };
        let report = RoundReport { jobs: vec![waits(job), waits(JobId(2))], ..RoundReport::default() };
        state.fleet.remember_why(&report);
        for (private, status) in [("none", "waits for job 2"), ("jobs", "waits for a job")] {
            let stale = stale_statuses(&state, PrivateData::parse(private));
            assert_eq!(stale, [(job, status.to_owned())], "{private}: job 2 has its owner's comment");
        }
    }

    fn stale(ids: impl IntoIterator<Item = u32>) -> Vec<(JobId, String)> {
        ids.into_iter().map(|id| (JobId(id), format!("waits {id}"))).collect()
    }

    fn ids(selected: &[(JobId, String)]) -> Vec<u32> {
        selected.iter().map(|(job, _)| job.0).collect()
    }

    #[test]
    fn a_comment_is_written_once_in_each_interval() {
        let mut limiter = WriteLimiter::new(Duration::from_secs(60));
        let start = Instant::now();
        let after = |secs| start + Duration::from_secs(secs);
        assert_eq!(ids(&limiter.select(stale([7]), start)), [7]);
        assert_eq!(ids(&limiter.select(stale([7, 8]), after(59))), [8]);
        assert_eq!(ids(&limiter.select(stale([7, 8]), after(60))), [7]);
        assert_eq!(ids(&limiter.select(stale([7, 8]), after(119))), [8]);
    }

    #[test]
    fn many_comments_take_several_rounds_and_none_is_left_out() {
        let mut limiter = WriteLimiter::new(Duration::from_secs(60));
        let now = Instant::now();
        let first = ids(&limiter.select(stale(0..30), now));
        assert_eq!(first.len(), MAX_WRITES_A_ROUND);
        let second = ids(&limiter.select(stale(0..30), now));
        assert_eq!([first, second].concat(), (0..30).collect::<Vec<_>>());
        assert!(limiter.select(stale(0..30), now).is_empty());
        let later = now + Duration::from_secs(60);
        // New jobs and those that were written longest ago do not wait behind the others.
        assert_eq!(ids(&limiter.select(stale(5..32), later))[..3], [30, 31, 5]);
    }
}
