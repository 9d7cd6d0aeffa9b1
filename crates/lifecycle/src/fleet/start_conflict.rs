//! Detects malleable jobs that have started in the way of a main job.
//!
//! While a main job takes nodes back, Slurm may start a lead or wing on another node that was idle. Slurm's
//! main scheduler preempts for the main job and goes on, and backfill skips the main job until its nodes are
//! free (seen on 24.11). The main job then waits until Slurm next considers its whole queue. A conflict has
//! three signs: nodes that Slurm has taken back stay idle, an older main job still waits for nodes, and
//! malleable jobs have started since.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{Job, JobId, NodeName, Snapshot, UnixTime, is_waiting_for_nodes};

/// How long a node that Slurm took back may wait for its main job, seconds.
const RACE_SECS: f64 = 30.0;

/// Slurm's times are whole seconds.
const ROUNDING_SECS: f64 = 1.0;

/// Nodes that Slurm takes back, and the malleable jobs in the way.
#[derive(Clone, Debug, Default)]
pub(super) struct StartConflict {
    /// When Slurm took each node back, from its agent or from a snapshot.
    taken_at: BTreeMap<NodeName, UnixTime>,
    /// Malleable Slurm jobs that Slurm knew when it took the first node back, so that they are not in the
    /// way. After an agent's report: the parts of its job whose agents had said hello. After a snapshot: all
    /// that had started.
    known_jobs: BTreeSet<JobId>,
    /// Nodes that no plan may use now: those that were taken back, and those of the jobs in the way.
    pub nodes: BTreeSet<NodeName>,
}

impl StartConflict {
    /// Records that Slurm takes a node back. `present` are the parts of its job whose agents have said hello.
    pub fn record_taken_node(
        &mut self,
        node: &NodeName,
        present: impl Iterator<Item = JobId>,
        now: UnixTime,
    ) {
        if self.taken_at.is_empty() {
            self.known_jobs = present.collect();
        }
        self.taken_at.insert(node.host(), now);
    }

    /// Records preemptions that a snapshot shows and that no agent has reported: the agent may be stopped or
    /// dead.
    fn record_shown_preemptions(&mut self, snapshot: &Snapshot, malleable: &str, read_at: UnixTime) {
        for job in malleable_jobs(snapshot, malleable).filter(|job| job.was_preempted()) {
            let Some(at) = job.preempt_time.filter(|at| read_at.secs_since(*at) < RACE_SECS) else {
                continue;
            };
            for node in job.nodes.iter().map(NodeName::host) {
                if self.taken_at.contains_key(&node) {
                    continue;
                }
                if self.taken_at.is_empty() {
                    let started = malleable_jobs(snapshot, malleable)
                        .filter(|job| job.start_time.is_some_and(|start| start < at));
                    self.known_jobs = started.map(|job| job.id).collect();
                }
                self.taken_at.insert(node, at);
            }
        }
    }

    /// Updates `nodes` from a snapshot whose reading began at `read_at`.
    pub fn detect_conflicts(&mut self, snapshot: &Snapshot, malleable: &str, read_at: UnixTime) {
        self.taken_at.retain(|_, at| read_at.secs_since(*at) < RACE_SECS);
        self.record_shown_preemptions(snapshot, malleable, read_at);
        self.nodes = self.conflicting_nodes(snapshot, malleable).unwrap_or_default();
    }

    /// The nodes that no plan may use now; `None` without a conflict.
    fn conflicting_nodes(&self, snapshot: &Snapshot, malleable: &str) -> Option<BTreeSet<NodeName>> {
        let taken = self.taken_at.iter();
        let idle: Vec<(&NodeName, &UnixTime)> = taken
            .filter(|(node, _)| snapshot.node(node).is_some_and(|shown| shown.state.is_idle()))
            .collect();
        let since = idle.iter().map(|(_, at)| **at).min()?.plus_secs(-ROUNDING_SECS);
        let latest_submission = since.plus_secs(2.0 * ROUNDING_SECS);
        let main_job_waits = snapshot.jobs.iter().any(|job| {
            job.waits_in_main_queue(malleable)
                && is_waiting_for_nodes(&job.state_reason)
                && job.submit_time.is_some_and(|at| at <= latest_submission)
        });
        if !main_job_waits {
            return None;
        }
        let in_the_way = malleable_jobs(snapshot, malleable).filter(|job| {
            job.state.is_running()
                && !job.is_preempted()
                && !self.known_jobs.contains(&job.id)
                && job.start_time.is_some_and(|at| at >= since)
        });
        let mut nodes: BTreeSet<NodeName> = in_the_way.flat_map(|job| job.nodes.iter().cloned()).collect();
        // If no malleable job is in the way, the main job waits for something else.
        if nodes.is_empty() {
            return None;
        }
        nodes.extend(idle.into_iter().map(|(node, _)| node.clone()));
        Some(nodes)
    }
}

/// The jobs of the malleable partition.
fn malleable_jobs<'a>(snapshot: &'a Snapshot, malleable: &'a str) -> impl Iterator<Item = &'a Job> {
    snapshot.jobs.iter().filter(move |job| job.partition == malleable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{BaseState, Node, NodeState, NodeType};

    const NOW: UnixTime = UnixTime(1000);

    fn node(name: &str, state: &str) -> Node {
        let state = NodeState::from_words([state]);
        Node { state, ..Node::new(name.into(), NodeType::new("cpu8")) }
    }

    fn job(id: u32, partition: &str, nodes: &[&str], secs: i64) -> Job {
        let state = if nodes.is_empty() { BaseState::Pending } else { BaseState::Running };
        Job {
            nodes: nodes.iter().map(|n| NodeName::from(*n)).collect(),
            state_reason: "Resources".to_owned(),
            submit_time: Some(NOW + secs),
            start_time: Some(NOW + secs),
            ..Job::new(JobId(id), partition, state)
        }
    }

    fn conflict_nodes(conflict: &StartConflict) -> Vec<String> {
        conflict.nodes.iter().map(NodeName::to_string).collect()
    }

    /// The conflict's nodes at 3 s, if Slurm took n1 back at 1 s. `n1` is the state of n1 in the snapshot.
    fn left(n1: &str, jobs: &[Job]) -> Vec<String> {
        left_beside(&[], n1, jobs)
    }

    /// The conflict's nodes at 3 s, if these jobs were present when Slurm took n1 back.
    fn left_beside(present: &[u32], n1: &str, jobs: &[Job]) -> Vec<String> {
        let mut conflict = StartConflict::default();
        conflict.record_taken_node(&"n1".into(), present.iter().map(|id| JobId(*id)), NOW + 1);
        let nodes = vec![node("n1", n1), node("n2", "ALLOCATED"), node("n3", "IDLE")];
        let snapshot = Snapshot { nodes, jobs: jobs.to_vec(), ..Snapshot::default() };
        conflict.detect_conflicts(&snapshot, "infill", NOW + 3);
        conflict_nodes(&conflict)
    }

    #[test]
    fn a_job_that_started_while_nodes_were_taken_back_makes_way() {
        let main = job(1, "main", &[], 0);
        let ours = job(2, "infill", &["n2"], 1);
        assert_eq!(left("IDLE", &[main.clone(), ours.clone()]), ["n1", "n2"]);
        // It had started just before.
        assert!(left_beside(&[2], "IDLE", &[main.clone(), ours.clone()]).is_empty());
        // The main job has the node, or does not exist, or waits for something else, or was submitted later.
        assert!(left("ALLOCATED", &[main.clone(), ours.clone()]).is_empty());
        assert!(left("IDLE", std::slice::from_ref(&ours)).is_empty());
        let held = Job { state_reason: "Dependency".to_owned(), ..main.clone() };
        assert!(left("IDLE", &[held, ours.clone()]).is_empty());
        assert!(left("IDLE", &[job(1, "main", &[], 3), ours]).is_empty());
        // A job that ran before is not in the way: Slurm preempts it if necessary.
        assert!(left("IDLE", &[main, job(2, "infill", &["n2"], -9)]).is_empty());
    }

    #[test]
    fn a_node_that_was_taken_back_is_forgotten_after_the_race() {
        let nodes = vec![node("n1", "IDLE"), node("n2", "ALLOCATED")];
        let jobs = vec![job(1, "main", &[], 0), job(2, "infill", &["n2"], 1)];
        let snapshot = Snapshot { nodes, jobs, ..Snapshot::default() };
        let mut conflict = StartConflict::default();
        conflict.record_taken_node(&"n1".into(), std::iter::empty(), NOW + 1);
        conflict.detect_conflicts(&snapshot, "infill", NOW + 3);
        assert_eq!(conflict_nodes(&conflict), ["n1", "n2"]);
        conflict.detect_conflicts(&snapshot, "infill", NOW + 30);
        assert_eq!(conflict_nodes(&conflict), ["n1", "n2"], "the last moment");
        conflict.detect_conflicts(&snapshot, "infill", NOW + 31);
        assert!(conflict.nodes.is_empty(), "the main job waits for something else");
    }

    #[test]
    fn a_job_that_slurm_preempts_too_is_not_in_the_way() {
        let main = job(1, "main", &[], 0);
        let ours = job(2, "infill", &["n2"], 1);
        let leaves = Job { preempt_time: Some(NOW + 2), ..ours.clone() };
        assert!(left("IDLE", &[main.clone(), leaves]).is_empty());
        // The preemption of an earlier run does not count.
        let again = Job { preempt_time: Some(NOW), ..ours };
        assert_eq!(left("IDLE", &[main, again]), ["n1", "n2"]);
    }

    #[test]
    fn a_shown_preemption_counts_without_an_agents_report() {
        fn left_at(secs: i64, jobs: &[Job]) -> Vec<String> {
            let nodes = vec![node("n1", "IDLE"), node("n2", "ALLOCATED"), node("n3", "IDLE")];
            let snapshot = Snapshot { nodes, jobs: jobs.to_vec(), ..Snapshot::default() };
            let mut conflict = StartConflict::default();
            conflict.detect_conflicts(&snapshot, "infill", NOW + secs);
            conflict_nodes(&conflict)
        }
        let preempted = Job { preempt_time: Some(NOW + 1), ..job(3, "infill", &["n1"], -60) };
        let main = job(1, "main", &[], 0);
        let ours = job(2, "infill", &["n2"], 2);
        assert_eq!(left_at(3, &[main.clone(), preempted.clone(), ours.clone()]), ["n1", "n2"]);
        let earlier = job(2, "infill", &["n2"], 0);
        assert!(left_at(3, &[main.clone(), preempted.clone(), earlier]).is_empty(), "it had started before");
        assert!(left_at(90, &[main.clone(), preempted.clone(), ours.clone()]).is_empty(), "long ago");
        // The preemption of an earlier run.
        let again = Job { start_time: Some(NOW + 2), ..preempted };
        assert!(left_at(3, &[main, again, ours]).is_empty());
    }
}
