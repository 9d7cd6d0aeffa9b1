//! What every implementation of [`SlurmApi`] must do: run against the fake in unit tests, and against a real
//! cluster.

use std::time::{Duration, Instant};

use super::{SlurmApi, SlurmError};
use infill_model::{BaseState, Job, JobId, NodeName, Snapshot};

/// Longest wait for something to happen. A requeued job starts within seconds when all is well.
const PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A job id that no cluster has handed out.
const UNKNOWN: JobId = JobId(66_999_999);

/// What the suite works on. It cancels `lead` and shrinks `wide`.
pub struct Stage<'a> {
    /// A held job of one node in the malleable partition, with a script that runs for minutes.
    pub lead: JobId,
    /// Two idle nodes of that partition.
    pub nodes: [NodeName; 2],
    /// A job in another partition, in any state.
    pub foreign: JobId,
    /// A job of several nodes in the malleable partition, if there is one. It runs.
    pub wide: Option<JobId>,
    /// The malleable partition.
    pub partition: String,
    /// Submits one more job to it, or else to another partition.
    pub submit: &'a dyn Fn(bool),
}

/// Runs the suite.
///
/// # Errors
/// The first thing that is not as it must be, in words.
pub async fn run(api: &dyn SlurmApi, stage: &Stage<'_>) -> Result<(), String> {
    reads(api, stage).await?;
    tells_of_news(api, stage).await?;
    leaves_foreign_jobs_alone(api, stage).await?;
    launches_and_moves(api, stage).await?;
    if let Some(wide) = stage.wide {
        shrinks(api, wide).await?;
    }
    ends(api, stage).await
}

async fn trusted(api: &dyn SlurmApi) -> Result<Snapshot, String> {
    wait("a snapshot that can be trusted", async || {
        let snapshot = ok(api.snapshot().await)?;
        Ok(snapshot.is_trusted().then_some(snapshot))
    })
    .await
}

async fn reads(api: &dyn SlurmApi, stage: &Stage<'_>) -> Result<(), String> {
    let endpoint = ok(api.endpoint().await)?;
    must(endpoint.available.contains(&endpoint.rest_version), "the version in use is available")?;
    let snapshot = trusted(api).await?;
    must(snapshot.taken_at.0 > 0, "a snapshot has a time")?;
    must(snapshot.nodes.windows(2).all(|w| w[0].name < w[1].name), "nodes are sorted")?;
    must(snapshot.jobs.windows(2).all(|w| w[0].id < w[1].id), "jobs are sorted")?;
    for name in &stage.nodes {
        let node = snapshot.node(name).ok_or_else(|| format!("{name} is missing"))?;
        must(node.partitions.contains(&stage.partition), "the node is in the partition")?;
        must(node.state.is_idle(), "the node is idle")?;
    }
    let lead = snapshot.job(stage.lead).ok_or("the lead is missing")?;
    must(lead.state.is_pending() && lead.held, "the lead is pending and held")?;
    must(lead.partition == stage.partition, "the lead is in the partition")?;
    let alone = ok(api.job(stage.lead).await)?;
    must(alone.as_ref() == Some(lead), "a job is the same alone and in the snapshot")?;
    must(ok(api.job(UNKNOWN).await)?.is_none(), "an unknown job is none")?;
    ok(api.cancel(UNKNOWN).await)?;
    permanent(api.set_time_limit(UNKNOWN, 5).await, "a change of an unknown job")
}

async fn tells_of_news(api: &dyn SlurmApi, stage: &Stage<'_>) -> Result<(), String> {
    trusted(api).await?;
    must(!ok(api.has_news().await)?, "there is no news straight after a snapshot")?;
    (stage.submit)(true);
    must(!ok(api.has_news().await)?, "a malleable job is no news")?;
    (stage.submit)(false);
    must(ok(api.has_news().await)?, "another job is")?;
    must(ok(api.has_news().await)?, "it stays so until the next snapshot")?;
    trusted(api).await?;
    must(!ok(api.has_news().await)?, "then it is known")
}

async fn leaves_foreign_jobs_alone(api: &dyn SlurmApi, stage: &Stage<'_>) -> Result<(), String> {
    let denied = |result| match result {
        Err(SlurmError::Denied { .. }) => Ok(()),
        other => Err(format!("a foreign job was not refused: {other:?}")),
    };
    denied(api.hold(stage.foreign).await)?;
    denied(api.launch(stage.foreign, &stage.nodes[0], 5).await)?;
    denied(api.unpin(stage.foreign).await)?;
    denied(api.requeue_hold(stage.foreign).await)
}

async fn launches_and_moves(api: &dyn SlurmApi, stage: &Stage<'_>) -> Result<(), String> {
    let Stage { lead, nodes: [first, second], .. } = stage;
    ok(api.launch(*lead, first, 5).await)?;
    let job = until(api, *lead, "running on the first node", |j| runs_on(j, first)).await?;
    must(job.time_limit_mins == Some(5), "the limit is set")?;
    must(!job.held && job.batch_host.as_ref() == Some(first), "its script is on the node")?;
    ok(api.set_time_limit(*lead, 9).await)?;
    let job = until(api, *lead, "the new limit", |j| j.time_limit_mins == Some(9)).await?;
    let planned = job.start_time.map(|start| start + 9 * 60);
    must(job.end_time == planned, "the end follows from the limit")?;
    permanent(api.launch(*lead, second, 5).await, "a launch of a running job")?;
    permanent(api.unpin(*lead).await, "unpinning a running job")?;
    ok(api.requeue_hold(*lead).await)?;
    let job = until(api, *lead, "requeued and held", |j| j.state.is_pending() && j.held).await?;
    must(job.asks.pinned == first.as_str(), "a requeue leaves the job pinned")?;
    ok(api.unpin(*lead).await)?;
    let job = until(api, *lead, "unpinned", |j| j.asks.pinned.is_empty()).await?;
    must(job.state.is_pending() && job.held, "it is held as before")?;
    permanent(api.set_time_limit(*lead, 5).await, "a new limit while it waits")?;
    // Straight after the requeue the job may still leave its node: that is transient, and passes.
    wait("the launch elsewhere", async || match api.launch(*lead, second, 7).await {
        Err(e) if e.is_transient() => Ok(None),
        result => ok(result).map(Some),
    })
    .await?;
    until(api, *lead, "running on the second node", |j| runs_on(j, second)).await.map(drop)
}

fn runs_on(job: &Job, node: &NodeName) -> bool {
    job.state.is_running() && job.nodes == std::slice::from_ref(node)
}

async fn shrinks(api: &dyn SlurmApi, wide: JobId) -> Result<(), String> {
    let job = until(api, wide, "running", |j| j.state.is_running() && j.nodes.len() > 1).await?;
    let host = job.batch_host.clone().ok_or("a running job has a batch host")?;
    let others: Vec<NodeName> = job.nodes.iter().filter(|n| **n != host).cloned().collect();
    permanent(api.shrink(wide, &others).await, "taking a job's batch host")?;
    ok(api.shrink(wide, std::slice::from_ref(&host)).await)?;
    until(api, wide, "shrunk to its batch host", |j| runs_on(j, &host)).await.map(drop)
}

async fn ends(api: &dyn SlurmApi, stage: &Stage<'_>) -> Result<(), String> {
    ok(api.cancel(stage.lead).await)?;
    wait("the end of the cancelled job", async || {
        let job = ok(api.job(stage.lead).await)?;
        Ok(job.is_none_or(|j| j.state.base == BaseState::Cancelled && j.state.is_ended()).then_some(()))
    })
    .await?;
    ok(api.cancel(stage.lead).await)?;
    permanent(api.launch(stage.lead, &stage.nodes[0], 5).await, "a launch of an ended job")?;
    permanent(api.requeue_hold(stage.lead).await, "a requeue of an ended job")
}

fn ok<T>(result: Result<T, SlurmError>) -> Result<T, String> {
    result.map_err(|e| format!("unexpected failure: {e}"))
}

fn must(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("it does not hold that {what}")) }
}

fn permanent(result: Result<(), SlurmError>, what: &str) -> Result<(), String> {
    match result {
        Err(SlurmError::Permanent { .. }) => Ok(()),
        other => Err(format!("{what} was not refused for good: {other:?}")),
    }
}

async fn until(
    api: &dyn SlurmApi,
    id: JobId,
    what: &str,
    holds: impl Fn(&Job) -> bool,
) -> Result<Job, String> {
    wait(&format!("job {id}: {what}"), async || Ok(ok(api.job(id).await)?.filter(&holds))).await
}

async fn wait<T>(what: &str, look: impl AsyncFn() -> Result<Option<T>, String>) -> Result<T, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("waited too long for {what}"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
