//! The simulated cluster as a snapshot of Slurm would show it.

use std::collections::BTreeMap;

use super::PolicyView;
use crate::cluster::NodeOwner;
use crate::queue::{Foresight, NodeIx, PlannedJob};
use infill_model::{
    BackfillState, BaseState, Job, JobId, Node, NodeName, NodeState, NodeType, Snapshot, UnixTime,
};

/// The malleable partition of simulated clusters.
pub(crate) const PARTITION: &str = "infill";

/// The partition of their main queue.
const MAIN_PARTITION: &str = "main";

/// The type of their nodes.
const NODE_TYPE: &str = "node";

/// Ids of planned jobs begin here. Smaller ids are those of the jobs that stand for the users of nodes.
const FIRST_PLANNED: u32 = 100_000_000;

/// A snapshot that is updated only where the cluster has changed.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotMirror {
    snapshot: Snapshot,
    /// Position of each node in the snapshot, by number.
    places: Vec<usize>,
    /// The number of each node, by name.
    numbers: BTreeMap<NodeName, NodeIx>,
    /// Number of jobs before the malleable ones: those that stand for the users of nodes, and planned jobs.
    fixed: usize,
    plan_number: Option<u64>,
}

impl SnapshotMirror {
    /// A cluster in which the main queue has all nodes.
    pub fn new(names: &[NodeName]) -> Self {
        let mut sorted: Vec<(NodeName, NodeIx)> = names.iter().cloned().zip(0..).collect();
        sorted.sort();
        let mut places = vec![0; names.len()];
        for (place, (_, number)) in sorted.iter().enumerate() {
            places[*number as usize] = place;
        }
        let nodes = sorted.iter().map(|(name, _)| new_node(name)).collect();
        let jobs = sorted.iter().zip(1..).map(|((name, _), id)| occupying_job(name, JobId(id))).collect();
        let backfill =
            BackfillState { complete: true, exit: "end_job_queue".to_owned(), ..BackfillState::default() };
        let snapshot = Snapshot { nodes, jobs, backfill, ..Snapshot::default() };
        SnapshotMirror {
            snapshot,
            places,
            numbers: sorted.into_iter().collect(),
            fixed: names.len(),
            plan_number: None,
        }
    }

    /// The number of a node.
    pub fn node_number(&self, name: &NodeName) -> Option<NodeIx> {
        self.numbers.get(name).copied()
    }

    /// The name of a node.
    pub fn node_name(&self, number: NodeIx) -> Option<&NodeName> {
        let place = *self.places.get(number as usize)?;
        self.snapshot.nodes.get(place).map(|n| &n.name)
    }

    /// The snapshot of this moment. It shows the oracle's knowledge as planned jobs of one node each.
    pub fn update_snapshot(&mut self, view: &PolicyView<'_>, foresight: Foresight) -> &Snapshot {
        self.snapshot.taken_at = UnixTime(view.now);
        for number in view.changed {
            self.update_node(*number, view.cluster.node_owner(*number));
        }
        let (plan, plan_number) = view.queue.backfill_plan();
        match foresight {
            Foresight::None => self.snapshot.jobs.truncate(self.places.len()),
            Foresight::Backfill if self.plan_number == Some(plan_number) => {
                self.snapshot.jobs.truncate(self.fixed);
            }
            Foresight::Backfill => self.show_plan(view.cluster.node_names(), plan, plan_number),
            Foresight::Truth => self.show_truth(view),
        }
        self.fixed = self.snapshot.jobs.len();
        let names = view.cluster.node_names();
        let holding = view.jobs.values().filter(|j| j.size() > 0);
        let ours = holding
            .map(|j| malleable_job(j.id, j.nodes.iter().map(|n| names[*n as usize].clone()).collect()));
        self.snapshot.jobs.extend(ours);
        &self.snapshot
    }

    fn update_node(&mut self, number: NodeIx, usage: NodeOwner) {
        let place = self.places[number as usize];
        let (state, job) = match usage {
            NodeOwner::Main => ("ALLOCATED", BaseState::Running),
            NodeOwner::Held(_) => ("ALLOCATED", BaseState::Completed),
            NodeOwner::Free => ("IDLE", BaseState::Completed),
        };
        if let Some(node) = self.snapshot.nodes.get_mut(place) {
            node.state = NodeState::from_words([state]);
        }
        if let Some(user) = self.snapshot.jobs.get_mut(place) {
            user.state.base = job;
        }
    }

    fn show_plan(&mut self, names: &[NodeName], plan: &[PlannedJob], number: u64) {
        self.snapshot.jobs.truncate(self.places.len());
        let mut jobs: Vec<Job> =
            plan.iter().map(|p| planned_job(p.job, p.start, names_of(names, &p.nodes))).collect();
        jobs.sort_by_key(|j| j.id);
        self.snapshot.jobs.extend(jobs);
        self.plan_number = Some(number);
    }

    fn show_truth(&mut self, view: &PolicyView<'_>) {
        self.snapshot.jobs.truncate(self.places.len());
        let names = view.cluster.node_names();
        for number in 0..names.len() as NodeIx {
            let used = view.cluster.node_owner(number) == NodeOwner::Main;
            if let Some(window) = view.queue.window_end(number, Foresight::Truth).filter(|_| !used) {
                self.snapshot.jobs.push(planned_job(JobId(number), window.at, names_of(names, &[number])));
            }
        }
    }
}

fn names_of(names: &[NodeName], numbers: &[NodeIx]) -> Vec<NodeName> {
    numbers.iter().filter_map(|n| names.get(*n as usize).cloned()).collect()
}

fn new_node(name: &NodeName) -> Node {
    Node {
        state: NodeState::from_words(["ALLOCATED"]),
        partitions: vec![PARTITION.to_owned(), MAIN_PARTITION.to_owned()],
        ..Node::new(name.clone(), NodeType::new(NODE_TYPE))
    }
}

/// A job that stands for the main job on this node.
fn occupying_job(name: &NodeName, id: JobId) -> Job {
    Job { nodes: vec![name.clone()], node_count: 1, ..Job::new(id, MAIN_PARTITION, BaseState::Running) }
}

fn planned_job(id: JobId, start: i64, nodes: Vec<NodeName>) -> Job {
    Job {
        start_time: Some(UnixTime(start)),
        node_count: nodes.len() as u32,
        scheduled_nodes: nodes,
        ..Job::new(JobId(FIRST_PLANNED.saturating_add(id.0)), MAIN_PARTITION, BaseState::Pending)
    }
}

fn malleable_job(id: JobId, mut nodes: Vec<NodeName>) -> Job {
    nodes.sort();
    Job { node_count: nodes.len() as u32, nodes, ..Job::new(id, PARTITION, BaseState::Running) }
}
