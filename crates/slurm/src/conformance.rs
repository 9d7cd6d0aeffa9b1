//! A suite of checks that every implementation of [`SlurmApi`] must pass. Unit tests run it against the fake,
//! and cluster tests against a real Slurm.

use std::time::{Duration, Instant};

use super::{SlurmApi, SlurmError};
use infill_model::{BaseState, Job, JobId, NodeName, Snapshot};

/// Longest wait for an expected state. Normally a requeued job starts within seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// Time between two looks at Slurm.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A job id that no test cluster has assigned.
const UNKNOWN_JOB: JobId = JobId(66_999_999);

/// The jobs and nodes that the suite works on. It cancels `lead` and shrinks `wide`.
pub struct SuiteFixture<'a> {
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
    /// Submits one more job: with `true` to the malleable partition, with `false` to another one.
    pub submit: &'a dyn Fn(bool),
}

/// Runs the suite.
///
/// # Errors
/// The first expectation that does not hold, as a sentence.
pub async fn run_suite(api: &dyn SlurmApi, fixture: &SuiteFixture<'_>) -> Result<(), String> {
    check_reads(api, fixture).await?;
    check_news(api, fixture).await?;
    check_foreign_jobs(api, fixture).await?;
    check_statuses(api, fixture).await?;
    check_launches(api, fixture).await?;
    if let Some(wide) = fixture.wide {
        check_shrinks(api, wide).await?;
    }
    check_ends(api, fixture).await
}

async fn trusted_snapshot(api: &dyn SlurmApi) -> Result<Snapshot, String> {
    wait_for("a snapshot that can be trusted", async || {
        let snapshot = expect_ok(api.read_snapshot().await)?;
        Ok(snapshot.is_trusted().then_some(snapshot))
    })
    .await
}

async fn check_reads(api: &dyn SlurmApi, fixture: &SuiteFixture<'_>) -> Result<(), String> {
    let endpoint = expect_ok(api.rest_endpoint().await)?;
    check_holds(endpoint.available.contains(&endpoint.rest_version), "the version in use is available")?;
    let snapshot = trusted_snapshot(api).await?;
    check_holds(snapshot.taken_at.0 > 0, "a snapshot has a time")?;
    check_holds(snapshot.nodes.windows(2).all(|w| w[0].name < w[1].name), "nodes are sorted")?;
    check_holds(snapshot.jobs.windows(2).all(|w| w[0].id < w[1].id), "jobs are sorted")?;
    for name in &fixture.nodes {
        let node = snapshot.node(name).ok_or_else(|| format!("{name} is missing"))?;
        check_holds(node.partitions.contains(&fixture.partition), "the node is in the partition")?;
        check_holds(node.state.is_idle(), "the node is idle")?;
    }
    let lead = snapshot.job(fixture.lead).ok_or("the lead is missing")?;
    check_holds(lead.state.is_pending() && lead.held, "the lead is pending and held")?;
    check_holds(lead.partition == fixture.partition, "the lead is in the partition")?;
    let found = expect_ok(api.find_job(fixture.lead).await)?;
    check_holds(found.as_ref() == Some(lead), "a job is the same alone and in the snapshot")?;
    check_holds(expect_ok(api.find_job(UNKNOWN_JOB).await)?.is_none(), "an unknown job is not found")?;
    expect_ok(api.cancel_job(UNKNOWN_JOB).await)?;
    expect_permanent(api.set_time_limit(UNKNOWN_JOB, 5).await, "a change of an unknown job")
}

async fn check_news(api: &dyn SlurmApi, fixture: &SuiteFixture<'_>) -> Result<(), String> {
    trusted_snapshot(api).await?;
    check_holds(!expect_ok(api.has_new_main_jobs().await)?, "there is no news straight after a snapshot")?;
    (fixture.submit)(true);
    check_holds(!expect_ok(api.has_new_main_jobs().await)?, "a malleable job is not news")?;
    (fixture.submit)(false);
    check_holds(expect_ok(api.has_new_main_jobs().await)?, "a job in another partition is news")?;
    check_holds(expect_ok(api.has_new_main_jobs().await)?, "it stays news until the next snapshot")?;
    trusted_snapshot(api).await?;
    check_holds(!expect_ok(api.has_new_main_jobs().await)?, "after a snapshot it is not news any more")
}

async fn check_foreign_jobs(api: &dyn SlurmApi, fixture: &SuiteFixture<'_>) -> Result<(), String> {
    expect_denied(api.hold_job(fixture.foreign).await)?;
    expect_denied(api.launch_job(fixture.foreign, &fixture.nodes[0], 5).await)?;
    expect_denied(api.unpin_job(fixture.foreign).await)?;
    expect_denied(api.split_array(fixture.foreign, &[1]).await)?;
    expect_denied(api.write_status(fixture.foreign, "waits").await)?;
    expect_denied(api.requeue_hold(fixture.foreign).await)
}

fn expect_denied(result: Result<(), SlurmError>) -> Result<(), String> {
    match result {
        Err(SlurmError::Denied { .. }) => Ok(()),
        other => Err(format!("a change of a foreign job was not denied: {other:?}")),
    }
}

async fn check_statuses(api: &dyn SlurmApi, fixture: &SuiteFixture<'_>) -> Result<(), String> {
    let before = expect_ok(api.find_job(fixture.lead).await)?.ok_or("the lead is missing")?;
    for status in ["waits: 2 nodes are free", "waits: 3 nodes are free"] {
        expect_ok(api.write_status(fixture.lead, status).await)?;
        let comment = format!("[infill] {status}");
        let job = wait_for_job(api, fixture.lead, "its status", |j| j.comment == comment).await?;
        let expected = Job { comment, ..before.clone() };
        check_holds(job == expected, "a status changes nothing but the comment")?;
    }
    Ok(())
}

async fn check_launches(api: &dyn SlurmApi, fixture: &SuiteFixture<'_>) -> Result<(), String> {
    let SuiteFixture { lead, nodes: [first, second], .. } = fixture;
    expect_ok(api.launch_job(*lead, first, 5).await)?;
    let job = wait_for_job(api, *lead, "running on the first node", |j| runs_on(j, first)).await?;
    check_holds(job.time_limit_mins == Some(5), "the limit is set")?;
    check_holds(!job.held && job.batch_host.as_ref() == Some(first), "its script is on the node")?;
    expect_ok(api.set_time_limit(*lead, 9).await)?;
    let job = wait_for_job(api, *lead, "the new limit", |j| j.time_limit_mins == Some(9)).await?;
    let expected_end = job.start_time.map(|start| start + 9 * 60);
    check_holds(job.end_time == expected_end, "the end follows from the limit")?;
    expect_permanent(api.launch_job(*lead, second, 5).await, "a launch of a running job")?;
    expect_permanent(api.unpin_job(*lead).await, "unpinning a running job")?;
    expect_ok(api.requeue_hold(*lead).await)?;
    let job = wait_for_job(api, *lead, "requeued and held", |j| j.state.is_pending() && j.held).await?;
    check_holds(job.asks.pinned == first.as_str(), "a requeue leaves the job pinned")?;
    expect_ok(api.unpin_job(*lead).await)?;
    let job = wait_for_job(api, *lead, "unpinned", |j| j.asks.pinned.is_empty()).await?;
    check_holds(job.state.is_pending() && job.held, "it is held as before")?;
    expect_permanent(api.set_time_limit(*lead, 5).await, "a new limit while it waits")?;
    // Straight after the requeue the job may still be leaving its node: that error is transient.
    wait_for("the launch on the second node", async || match api.launch_job(*lead, second, 7).await {
        Err(e) if e.is_transient() => Ok(None),
        result => expect_ok(result).map(Some),
    })
    .await?;
    wait_for_job(api, *lead, "running on the second node", |j| runs_on(j, second)).await.map(drop)
}

fn runs_on(job: &Job, node: &NodeName) -> bool {
    job.state.is_running() && job.nodes == std::slice::from_ref(node)
}

async fn check_shrinks(api: &dyn SlurmApi, wide: JobId) -> Result<(), String> {
    let job = wait_for_job(api, wide, "running", |j| j.state.is_running() && j.nodes.len() > 1).await?;
    let host = job.batch_host.clone().ok_or("a running job has a batch host")?;
    let others: Vec<NodeName> = job.nodes.iter().filter(|n| **n != host).cloned().collect();
    expect_permanent(api.shrink_job(wide, &others).await, "taking a job's batch host")?;
    expect_ok(api.shrink_job(wide, std::slice::from_ref(&host)).await)?;
    wait_for_job(api, wide, "shrunk to its batch host", |j| runs_on(j, &host)).await.map(drop)
}

async fn check_ends(api: &dyn SlurmApi, fixture: &SuiteFixture<'_>) -> Result<(), String> {
    expect_ok(api.cancel_job(fixture.lead).await)?;
    wait_for("the end of the cancelled job", async || {
        let job = expect_ok(api.find_job(fixture.lead).await)?;
        Ok(job.is_none_or(|j| j.state.base == BaseState::Cancelled && j.state.is_ended()).then_some(()))
    })
    .await?;
    expect_ok(api.cancel_job(fixture.lead).await)?;
    expect_permanent(api.launch_job(fixture.lead, &fixture.nodes[0], 5).await, "a launch of an ended job")?;
    expect_permanent(api.requeue_hold(fixture.lead).await, "a requeue of an ended job")
}

fn expect_ok<T>(result: Result<T, SlurmError>) -> Result<T, String> {
    result.map_err(|e| format!("unexpected failure: {e}"))
}

fn check_holds(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("this does not hold: {what}")) }
}

fn expect_permanent(result: Result<(), SlurmError>, what: &str) -> Result<(), String> {
    match result {
        Err(SlurmError::Permanent { .. }) => Ok(()),
        other => Err(format!("{what} was not refused permanently: {other:?}")),
    }
}

async fn wait_for_job(
    api: &dyn SlurmApi,
    id: JobId,
    what: &str,
    holds: impl Fn(&Job) -> bool,
) -> Result<Job, String> {
    wait_for(&format!("job {id}: {what}"), async || Ok(expect_ok(api.find_job(id).await)?.filter(&holds)))
        .await
}

async fn wait_for<T>(what: &str, look: impl AsyncFn() -> Result<Option<T>, String>) -> Result<T, String> {
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
