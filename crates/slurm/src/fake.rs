//! A Slurm in memory for unit tests. It applies changes at once, where Slurm takes a second, and fails on
//! request.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{PartitionSharing, PrivacyRules, RestEndpoint, SlurmApi, SlurmError};
use infill_model::{
    ArrayPart, BaseState, Job, JobId, JobState, Node, NodeName, NodeType, Snapshot, Topology, UnixTime,
    UserId, comment_with_status,
};

/// A change that was requested and accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the trait's functions")]
pub enum FakeChange {
    Launch { job: JobId, node: NodeName, limit_mins: u32 },
    SetTimeLimit { job: JobId, limit_mins: u32 },
    Shrink { job: JobId, keep: Vec<NodeName> },
    Cancel { job: JobId },
    RequeueHold { job: JobId },
    Hold { job: JobId },
    Unpin { job: JobId },
    Split { array: JobId, tasks: Vec<u32> },
    WriteStatus { job: JobId, status: String },
}

#[derive(Default)]
struct FakeState {
    cluster: Snapshot,
    partition: String,
    changes: Vec<FakeChange>,
    failures: VecDeque<SlurmError>,
    privacy: PrivacyRules,
    /// The jobs in the last snapshot that was read, if there was one.
    shown_jobs: Option<BTreeSet<JobId>>,
}

/// A Slurm in memory. See the module's documentation.
pub struct FakeSlurm {
    state: Mutex<FakeState>,
    limits_hang: AtomicBool,
}

impl FakeSlurm {
    /// A cluster of `nodes` idle nodes `n1`, `n2`, ... in the partitions `main` and `partition`, at time
    /// 1,000,000.
    pub fn new(nodes: u32, partition: &str) -> FakeSlurm {
        let mut cluster = Snapshot { taken_at: UnixTime(1_000_000), ..Snapshot::default() };
        cluster.nodes = (1..=nodes).map(|n| idle_node(&format!("n{n}"), partition)).collect();
        cluster.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        cluster.backfill.complete = true;
        cluster.backfill.exit = "end_job_queue".to_owned();
        let state = FakeState { cluster, partition: partition.to_owned(), ..FakeState::default() };
        FakeSlurm { state: Mutex::new(state), limits_hang: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the cluster as a test needs it, and sorts its nodes and jobs again.
    pub fn edit_snapshot<R>(&self, change: impl FnOnce(&mut Snapshot) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.cluster);
        state.cluster.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        state.cluster.jobs.sort_by_key(|j| j.id);
        result
    }

    /// With `true`, setting a time limit hangs until this is called with `false`.
    pub fn hang_limits(&self, hang: bool) {
        self.limits_hang.store(hang, Ordering::Relaxed);
    }

    /// Sets the site's privacy rules.
    pub fn set_privacy(&self, privacy: PrivacyRules) {
        self.lock().privacy = privacy;
    }

    /// Advances the cluster's clock.
    pub fn advance_secs(&self, secs: i64) {
        self.lock().cluster.taken_at.0 += secs;
    }

    /// Submits a held job of one node to the malleable partition.
    pub fn submit_held(&self, id: u32, user: u32, admin_comment: &str) -> JobId {
        let mut job = pending_job(id, user);
        let mut state = self.lock();
        job.partition = state.partition.clone();
        job.submit_time = Some(state.cluster.taken_at);
        job.admin_comment = admin_comment.to_owned();
        job.held = true;
        state.cluster.jobs.retain(|j| j.id != job.id);
        state.cluster.jobs.push(job);
        state.cluster.jobs.sort_by_key(|j| j.id);
        JobId(id)
    }

    /// Makes the next call of any function fail with this error. Several errors queue up.
    pub fn fail_next(&self, error: SlurmError) {
        self.lock().failures.push_back(error);
    }

    /// All changes so far, oldest first.
    pub fn recorded_changes(&self) -> Vec<FakeChange> {
        self.lock().changes.clone()
    }

    fn read_state<T>(&self, read: impl FnOnce(&FakeState) -> T) -> Result<T, SlurmError> {
        let mut state = self.lock();
        match state.failures.pop_front() {
            Some(error) => Err(error),
            None => Ok(read(&state)),
        }
    }

    /// Applies `change` to the job, with the same refusals as the real Slurm.
    fn apply_change(
        &self,
        change: FakeChange,
        id: JobId,
        apply: impl FnOnce(&mut Job, UnixTime) -> Result<(), &'static str>,
    ) -> Result<(), SlurmError> {
        let mut state = self.lock();
        if let Some(error) = state.failures.pop_front() {
            return Err(error);
        }
        let now = state.cluster.taken_at;
        let partition = state.partition.clone();
        let doing = format!("{change:?}");
        let Some(job) = state.cluster.jobs.iter_mut().find(|j| j.id == id) else {
            return Err(SlurmError::Permanent { doing, what: "Slurm knows no such job".to_owned() });
        };
        if job.partition != partition {
            return Err(SlurmError::Denied { doing, what: format!("it is in partition {}", job.partition) });
        }
        apply(job, now).map_err(|what| SlurmError::Permanent { doing, what: what.to_owned() })?;
        state.changes.push(change);
        mark_occupied(&mut state.cluster);
        Ok(())
    }
}

fn idle_node(name: &str, partition: &str) -> Node {
    Node {
        partitions: vec!["main".to_owned(), partition.to_owned()],
        ..Node::new(NodeName::new(name), NodeType::new("cpu2"))
    }
}

/// A pending job as the fake submits it.
pub fn pending_job(id: u32, user: u32) -> Job {
    Job {
        user_id: UserId(user),
        user_name: format!("user{user}"),
        account: "research".to_owned(),
        name: format!("job{id}"),
        state_reason: "None".to_owned(),
        node_count: 1,
        ..Job::new(JobId(id), "main", BaseState::Pending)
    }
}

/// Marks nodes as allocated or idle according to the running jobs. Nodes in other states stay as they are.
fn mark_occupied(cluster: &mut Snapshot) {
    let taken: Vec<NodeName> =
        cluster.jobs.iter().filter(|j| j.state.occupies_nodes()).flat_map(|j| j.nodes.clone()).collect();
    for node in &mut cluster.nodes {
        let is_taken = taken.contains(&node.name);
        if is_taken && node.state.remove("IDLE") {
            node.state.insert("ALLOCATED");
        } else if !is_taken && node.state.remove("ALLOCATED") {
            node.state.insert("IDLE");
        }
    }
}

fn start_job(job: &mut Job, node: NodeName, limit_mins: u32, now: UnixTime) {
    job.nodes = vec![node.clone()];
    job.batch_host = Some(node);
    job.held = false;
    job.state = JobState::from_base(BaseState::Running);
    job.start_time = Some(now);
    set_limit(job, limit_mins);
}

fn set_limit(job: &mut Job, limit_mins: u32) {
    job.time_limit_mins = Some(u64::from(limit_mins));
    job.end_time = job.start_time.map(|start| start + i64::from(limit_mins) * 60);
}

fn release_nodes(job: &mut Job, state: BaseState) {
    job.state = JobState::from_base(state);
    job.nodes.clear();
    job.batch_host = None;
}

/// Gives these tasks of an array records with new ids. The last task gets the array's own.
fn give_records(snapshot: &mut Snapshot, array: JobId, tasks: &[u32]) {
    let highest = snapshot.jobs.iter().map(|job| job.id.0).max().unwrap_or(0);
    let Some(record) = snapshot.jobs.iter_mut().find(|job| job.id == array) else { return };
    let Some(unsplit) = record.unsplit_tasks().cloned() else { return };
    let due = unsplit.tasks.iter().filter(|task| tasks.contains(task));
    let new_jobs: Vec<Job> = due
        .zip(highest + 1..)
        .map(|(task, id)| Job {
            id: JobId(id),
            array: ArrayPart::from_record(array.0, Some(*task), "", unsplit.limit.unwrap_or(0)),
            ..record.clone()
        })
        .collect();
    let left: Vec<String> =
        unsplit.tasks.iter().filter(|task| !tasks.contains(task)).map(u32::to_string).collect();
    record.array = ArrayPart::from_record(array.0, None, &left.join(","), unsplit.limit.unwrap_or(0));
    snapshot.jobs.extend(new_jobs);
}

fn if_running(job: &mut Job) -> Result<&mut Job, &'static str> {
    if job.state.is_running() { Ok(job) } else { Err("the job does not run") }
}

fn if_pending(job: &mut Job) -> Result<&mut Job, &'static str> {
    if job.state.is_pending() { Ok(job) } else { Err("the job is not pending") }
}

#[async_trait]
impl SlurmApi for FakeSlurm {
    async fn rest_endpoint(&self) -> Result<RestEndpoint, SlurmError> {
        self.read_state(|_| RestEndpoint {
            slurm_version: "24.11.5".to_owned(),
            rest_version: "v0.0.42".to_owned(),
            available: vec!["v0.0.42".to_owned()],
            cluster: "fake".to_owned(),
        })
    }

    async fn read_snapshot(&self) -> Result<Snapshot, SlurmError> {
        let snapshot = self.read_state(|state| state.cluster.clone())?;
        self.lock().shown_jobs = Some(snapshot.jobs.iter().map(|job| job.id).collect());
        Ok(snapshot)
    }

    async fn has_new_main_jobs(&self) -> Result<bool, SlurmError> {
        self.read_state(|state| {
            let Some(shown_jobs) = &state.shown_jobs else { return false };
            state
                .cluster
                .jobs
                .iter()
                .any(|job| job.partition != state.partition && !shown_jobs.contains(&job.id))
        })
    }

    async fn find_job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        self.read_state(|state| state.cluster.job(id).cloned())
    }

    async fn read_partitions(&self) -> Result<Vec<PartitionSharing>, SlurmError> {
        Ok(Vec::new())
    }

    async fn read_topology(&self) -> Result<Topology, SlurmError> {
        Ok(Topology::default())
    }

    async fn read_privacy(&self) -> Result<PrivacyRules, SlurmError> {
        self.read_state(|state| state.privacy.clone())
    }

    async fn launch_job(&self, id: JobId, node: &NodeName, limit_mins: u32) -> Result<(), SlurmError> {
        let change = FakeChange::Launch { job: id, node: node.clone(), limit_mins };
        let node = node.clone();
        self.apply_change(change, id, |job, now| {
            let job = if_pending(job)?;
            job.asks.pinned = node.host().to_string();
            start_job(job, node, limit_mins, now);
            Ok(())
        })
    }

    async fn set_time_limit(&self, id: JobId, limit_mins: u32) -> Result<(), SlurmError> {
        while self.limits_hang.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.apply_change(FakeChange::SetTimeLimit { job: id, limit_mins }, id, |job, _| {
            set_limit(if_running(job)?, limit_mins);
            Ok(())
        })
    }

    async fn shrink_job(&self, id: JobId, keep: &[NodeName]) -> Result<(), SlurmError> {
        let change = FakeChange::Shrink { job: id, keep: keep.to_vec() };
        self.apply_change(change, id, |job, _| {
            let job = if_running(job)?;
            let host_stays = job.batch_host.as_ref().is_some_and(|host| keep.contains(host));
            if !host_stays || keep.iter().any(|n| !job.nodes.contains(n)) {
                return Err("these are not its nodes, or its batch script's node is not among them");
            }
            job.nodes = keep.to_vec();
            job.nodes.sort();
            job.node_count = job.nodes.len() as u32;
            Ok(())
        })
    }

    async fn cancel_job(&self, id: JobId) -> Result<(), SlurmError> {
        if self.lock().failures.is_empty() && self.lock().cluster.job(id).is_none_or(|j| j.state.is_ended()) {
            return Ok(());
        }
        self.apply_change(FakeChange::Cancel { job: id }, id, |job, now| {
            release_nodes(job, BaseState::Cancelled);
            job.end_time = Some(now);
            Ok(())
        })
    }

    async fn requeue_hold(&self, id: JobId) -> Result<(), SlurmError> {
        self.apply_change(FakeChange::RequeueHold { job: id }, id, |job, _| {
            release_nodes(if_running(job)?, BaseState::Pending);
            job.held = true;
            Ok(())
        })
    }

    async fn hold_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.apply_change(FakeChange::Hold { job: id }, id, |job, _| {
            if_pending(job)?.held = true;
            Ok(())
        })
    }

    async fn unpin_job(&self, id: JobId) -> Result<(), SlurmError> {
        self.apply_change(FakeChange::Unpin { job: id }, id, |job, _| {
            let job = if_pending(job)?;
            if !job.held {
                return Err("the job is not held");
            }
            job.asks.pinned.clear();
            Ok(())
        })
    }

    async fn split_array(&self, array: JobId, tasks: &[u32]) -> Result<(), SlurmError> {
        let change = FakeChange::Split { array, tasks: tasks.to_vec() };
        self.apply_change(change, array, |record, _| if_pending(record).map(|_| ()))?;
        self.edit_snapshot(|snapshot| give_records(snapshot, array, tasks));
        Ok(())
    }

    async fn write_status(&self, id: JobId, status: &str) -> Result<(), SlurmError> {
        self.apply_change(FakeChange::WriteStatus { job: id, status: status.to_owned() }, id, |job, _| {
            if let Some(comment) = comment_with_status(&job.comment, status) {
                job.comment = comment;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::conformance::SuiteFixture;

    #[tokio::test]
    async fn the_fake_behaves_as_slurm_does() {
        let slurm = FakeSlurm::new(4, "infill");
        let lead = slurm.submit_held(1, 6101, "infill:nodes=1-4");
        let foreign = slurm.submit_held(2, 6102, "");
        slurm.edit_snapshot(|w| w.jobs[1].partition = "main".to_owned());
        let wide = slurm.submit_held(3, 6101, "");
        slurm.edit_snapshot(|w| {
            let job = &mut w.jobs[2];
            start_job(job, NodeName::new("n3"), 10, UnixTime(1_000_000));
            job.nodes = vec![NodeName::new("n3"), NodeName::new("n4")];
        });
        let nodes = [NodeName::new("n1"), NodeName::new("n2")];
        let next = std::cell::Cell::new(10);
        let submit = |malleable: bool| {
            let id = slurm.submit_held(next.replace(next.get() + 1), 6101, "");
            let partition = if malleable { "infill" } else { "main" };
            slurm.edit_snapshot(|w| {
                w.jobs.iter_mut().filter(|j| j.id == id).for_each(|j| j.partition = partition.to_owned())
            });
        };
        let partition = "infill".to_owned();
        let fixture = SuiteFixture { lead, nodes, foreign, wide: Some(wide), partition, submit: &submit };
        conformance::run_suite(&slurm, &fixture).await.unwrap();
        assert_eq!(slurm.recorded_changes().len(), 9, "{:?}", slurm.recorded_changes());
    }

    #[tokio::test]
    async fn it_fails_on_request() {
        let slurm = FakeSlurm::new(1, "infill");
        let doing = "x".to_owned();
        let what = "y".to_owned();
        slurm.fail_next(SlurmError::Transient { doing, what });
        assert!(slurm.read_snapshot().await.unwrap_err().is_transient());
        assert!(slurm.read_snapshot().await.is_ok());
    }
}
