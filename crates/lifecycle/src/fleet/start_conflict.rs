//! Nodes on which ours has started in the way of a main job.
//!
//! While a main job takes nodes back, Slurm may start a lead or wing of ours on one that was idle: its main
//! scheduler preempts for the job and goes on, and backfill leaves the job out until its nodes are free (seen
//! on 24.11). The job then waits until Slurm next looks at its whole queue. What shows it: nodes that Slurm
//! has taken back stay idle, a main job that was there before still waits for nodes, and ours have begun
//! since.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{Job, JobId, NodeName, Snapshot, UnixTime, is_waiting_for_nodes};

/// Seconds for which a node that was taken back may wait for the job that it was taken for.
const RACE_SECS: f64 = 30.0;

/// Slurm knows whole seconds.
const ROUNDING_SECS: f64 = 1.0;

/// What Slurm takes back, and what is in its way.
#[derive(Clone, Debug, Default)]
pub(super) struct StartConflict {
    /// When Slurm took a node back, as its agent said, or as Slurm shows.
    taken_at: BTreeMap<NodeName, UnixTime>,
    /// Parts of the job whose node was the first to be taken that had said hello by then, or all that had
    /// begun: Slurm knew of them.
    here: BTreeSet<JobId>,
    /// Nodes that nobody plans for now: those, and those of the jobs that are in the way.
    pub nodes: BTreeSet<NodeName>,
}

impl StartConflict {
    /// Takes in that Slurm takes a node back, while these parts of the job that had it are here.
    pub fn record_taken_node(&mut self, node: &NodeName, here: impl Iterator<Item = JobId>, now: UnixTime) {
        if self.taken_at.is_empty() {
            self.here = here.collect();
        }
        self.taken_at.insert(node.host(), now);
    }

    /// Takes in what Slurm shows to have taken back, where no agent has said so: it may be stopped, or dead.
    fn record_shown_preemptions(&mut self, snapshot: &Snapshot, malleable: &str, read_at: UnixTime) {
        let ours = || snapshot.jobs.iter().filter(|job| job.partition == malleable);
        let told = ours().filter(|job| job.was_told_to_leave());
        let told = told.filter_map(|job| {
            Some((job, job.preempt_time.filter(|at: &UnixTime| read_at.secs_since(*at) < RACE_SECS)?))
        });
        for (job, at) in told {
            for node in job.nodes.iter().map(NodeName::host) {
                if self.taken_at.contains_key(&node) {
                    continue;
                }
                if self.taken_at.is_empty() {
                    self.here = ours()
                        .filter(|job: &&Job| job.start_time.is_some_and(|start| start < at))
                        .map(|job| job.id)
                        .collect();
                }
                self.taken_at.insert(node, at);
            }
        }
    }

    /// Looks who is in the way now, in a snapshot that was read from `read_at` on.
    pub fn detect_conflicts(&mut self, snapshot: &Snapshot, malleable: &str, read_at: UnixTime) {
        self.taken_at.retain(|_, at| read_at.secs_since(*at) < RACE_SECS);
        self.record_shown_preemptions(snapshot, malleable, read_at);
        self.nodes = self.conflicting_nodes(snapshot, malleable).unwrap_or_default();
    }

    fn conflicting_nodes(&self, snapshot: &Snapshot, malleable: &str) -> Option<BTreeSet<NodeName>> {
        let is_idle = |node: &NodeName| snapshot.node(node).is_some_and(|n| n.state.is_idle());
        let idle: Vec<(&NodeName, UnixTime)> =
            self.taken_at.iter().map(|(node, at)| (node, *at)).filter(|(node, _)| is_idle(node)).collect();
        let since = idle.iter().map(|(_, at)| *at).min()?.plus_secs(-ROUNDING_SECS);
        let waits = |job: &&Job| {
            job.waits_in_main_queue(malleable)
                && is_waiting_for_nodes(&job.state_reason)
                && job.submit_time.is_some_and(|at| at <= since.plus_secs(2.0 * ROUNDING_SECS))
        };
        snapshot.jobs.iter().find(waits)?;
        let began = |job: &&Job| {
            job.partition == malleable
                && job.state.is_running()
                && !job.is_preempted()
                && !self.here.contains(&job.id)
                && job.start_time.is_some_and(|at| at >= since)
        };
        let theirs = snapshot.jobs.iter().filter(began).flat_map(|job| job.nodes.iter().cloned());
        let theirs: BTreeSet<NodeName> = theirs.collect();
        // Where nothing of ours is in the way, the job waits for something else.
        let idle = idle.into_iter().map(|(node, _)| node.clone());
        (!theirs.is_empty()).then(|| theirs.into_iter().chain(idle).collect())
    }
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

    /// Nodes that are left to a main job which came at 0 s, where n1 was taken back at 1 s, and this is seen
    /// at 3 s.
    fn left(n1: &str, jobs: &[Job]) -> Vec<String> {
        left_beside(&[], n1, jobs)
    }

    /// The same where these were here before.
    fn left_beside(here: &[u32], n1: &str, jobs: &[Job]) -> Vec<String> {
        let mut start_conflict = StartConflict::default();
        start_conflict.record_taken_node(&"n1".into(), here.iter().map(|id| JobId(*id)), NOW + 1);
        let nodes = vec![node("n1", n1), node("n2", "ALLOCATED"), node("n3", "IDLE")];
        let snapshot = Snapshot { nodes, jobs: jobs.to_vec(), ..Snapshot::default() };
        start_conflict.detect_conflicts(&snapshot, "infill", NOW + 3);
        start_conflict.nodes.iter().map(NodeName::to_string).collect()
    }

    #[test]
    fn what_began_while_nodes_were_taken_back_makes_way() {
        let main = job(1, "main", &[], 0);
        let ours = job(2, "infill", &["n2"], 1);
        assert_eq!(left("IDLE", &[main.clone(), ours.clone()]), ["n1", "n2"]);
        // It had begun just before.
        assert!(left_beside(&[2], "IDLE", &[main.clone(), ours.clone()]).is_empty());
        // The main job has the node, or nobody waits, or for something else, or it came later.
        assert!(left("ALLOCATED", &[main.clone(), ours.clone()]).is_empty());
        assert!(left("IDLE", std::slice::from_ref(&ours)).is_empty());
        let held = Job { state_reason: "Dependency".to_owned(), ..main.clone() };
        assert!(left("IDLE", &[held, ours.clone()]).is_empty());
        assert!(left("IDLE", &[job(1, "main", &[], 3), ours]).is_empty());
        // What ran before is not in the way: Slurm takes it back if it wants it.
        assert!(left("IDLE", &[main, job(2, "infill", &["n2"], -9)]).is_empty());
    }

    #[test]
    fn a_node_that_was_taken_back_is_forgotten_after_the_race() {
        let nodes = vec![node("n1", "IDLE"), node("n2", "ALLOCATED")];
        let jobs = vec![job(1, "main", &[], 0), job(2, "infill", &["n2"], 1)];
        let snapshot = Snapshot { nodes, jobs, ..Snapshot::default() };
        let mut start_conflict = StartConflict::default();
        start_conflict.record_taken_node(&"n1".into(), std::iter::empty(), NOW + 1);
        let mut left_at = |secs: i64| {
            start_conflict.detect_conflicts(&snapshot, "infill", NOW + secs);
            start_conflict.nodes.iter().map(NodeName::to_string).collect::<Vec<_>>()
        };
        assert_eq!(left_at(3), ["n1", "n2"]);
        assert_eq!(left_at(30), ["n1", "n2"], "the last moment");
        assert!(left_at(31).is_empty(), "the main job waits for something else");
    }

    #[test]
    fn what_slurm_takes_back_too_is_not_in_the_way() {
        let main = job(1, "main", &[], 0);
        let ours = job(2, "infill", &["n2"], 1);
        let leaves = Job { preempt_time: Some(NOW + 2), ..ours.clone() };
        assert!(left("IDLE", &[main.clone(), leaves]).is_empty());
        // An earlier run's preemption says nothing of this one.
        let again = Job { preempt_time: Some(NOW), ..ours };
        assert_eq!(left("IDLE", &[main, again]), ["n1", "n2"]);
    }

    #[test]
    fn what_slurm_shows_counts_where_no_agent_has_said_so() {
        let told = Job { preempt_time: Some(NOW + 1), ..job(3, "infill", &["n1"], -60) };
        let main = job(1, "main", &[], 0);
        let ours = job(2, "infill", &["n2"], 2);
        let left = |jobs: &[Job], at| {
            let nodes = vec![node("n1", "IDLE"), node("n2", "ALLOCATED"), node("n3", "IDLE")];
            let snapshot = Snapshot { nodes, jobs: jobs.to_vec(), ..Snapshot::default() };
            let mut start_conflict = StartConflict::default();
            start_conflict.detect_conflicts(&snapshot, "infill", NOW + at);
            start_conflict.nodes.iter().map(NodeName::to_string).collect::<Vec<_>>()
        };
        assert_eq!(left(&[main.clone(), told.clone(), ours.clone()], 3), ["n1", "n2"]);
        assert!(
            left(&[main.clone(), told.clone(), job(2, "infill", &["n2"], 0)], 3).is_empty(),
            "it was here"
        );
        assert!(left(&[main.clone(), told.clone(), ours.clone()], 90).is_empty(), "long ago");
        // An earlier run's preemption.
        let again = Job { start_time: Some(NOW + 2), ..told };
        assert!(left(&[main, again, ours], 3).is_empty());
    }
}
