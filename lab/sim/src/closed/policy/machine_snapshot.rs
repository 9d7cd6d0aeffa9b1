//! A closed machine as a snapshot of Slurm would show it: each GPU is a place that is lent, and there are no
//! main jobs.

use std::collections::BTreeMap;

use super::ClosedView;
use crate::closed::machine::ClosedMachine;
use infill_model::{
    BackfillState, BaseState, Job, JobId, Node, NodeName, NodeState, NodeType, Snapshot, UnixTime,
};

/// The partition of the jobs.
pub(super) const PARTITION: &str = "infill";

/// The planner's id for a job of the workload.
pub(super) fn job_id(job: usize) -> JobId {
    JobId(u32::try_from(job + 1).unwrap_or(u32::MAX))
}

/// The node type of a pool's places, in the form for GPUs whose name Slurm shows.
pub(super) fn place_type(machine: &ClosedMachine, pool: usize) -> Option<NodeType> {
    Some(NodeType::new(format!("gpu:{}/closed", machine.pools.get(pool)?.node_type)))
}

/// The pool that a place belongs to.
pub(super) fn pool_of(machine: &ClosedMachine, place: &NodeName) -> Option<usize> {
    let host = place.host();
    let (pool, _) = host.as_str().rsplit_once('-')?;
    machine.pools.iter().position(|p| p.node_type.as_str() == pool)
}

fn host_name(pool: &NodeType, number: usize) -> NodeName {
    NodeName::new(format!("{pool}-{number:05}"))
}

/// The machine of one moment.
#[derive(Clone, Debug)]
pub(super) struct MachineSnapshot {
    /// The snapshot that Slurm would show.
    pub snapshot: Snapshot,
    /// The places of each running job, sorted by name.
    held: BTreeMap<usize, Vec<NodeName>>,
}

impl MachineSnapshot {
    /// The machine as it is now.
    pub fn from_view(view: &ClosedView<'_>) -> MachineSnapshot {
        let mut users: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (id, run) in view.jobs.iter().filter_map(|(id, job)| Some((*id, job.run.as_ref()?))) {
            for (node, gpus) in &run.seat.nodes {
                let of_node = users.entry((run.seat.pool, *node)).or_default();
                of_node.extend(std::iter::repeat_n(id, *gpus as usize));
            }
        }
        let mut mirror = MachineSnapshot { snapshot: Snapshot::default(), held: BTreeMap::new() };
        for (number, pool) in view.machine.pools.iter().enumerate() {
            let Some(node_type) = place_type(view.machine, number) else { continue };
            for host in 0..pool.free_by_node().len() {
                let name = host_name(&pool.node_type, host);
                let of_node = users.get(&(number, host)).map_or(&[][..], Vec::as_slice);
                for gpu in 0..pool.per_node as usize {
                    mirror.add_place(name.place_name(gpu), &node_type, of_node.get(gpu).copied());
                }
            }
        }
        mirror.finish_snapshot(UnixTime(view.now as i64));
        mirror
    }

    /// The places of a job, sorted by name.
    pub fn job_places(&self, job: usize) -> &[NodeName] {
        self.held.get(&job).map_or(&[], Vec::as_slice)
    }

    fn add_place(&mut self, place: NodeName, node_type: &NodeType, user: Option<usize>) {
        let state = if user.is_some() { "ALLOCATED" } else { "IDLE" };
        self.snapshot.nodes.push(Node {
            state: NodeState::from_words([state]),
            partitions: vec![PARTITION.to_owned()],
            ..Node::new(place.clone(), node_type.clone())
        });
        if let Some(job) = user {
            self.held.entry(job).or_default().push(place);
        }
    }

    fn finish_snapshot(&mut self, now: UnixTime) {
        for places in self.held.values_mut() {
            places.sort();
        }
        let jobs = self.held.iter().map(|(id, places)| Job {
            node_count: places.len() as u32,
            nodes: places.clone(),
            ..Job::new(job_id(*id), PARTITION, BaseState::Running)
        });
        let snapshot = &mut self.snapshot;
        snapshot.taken_at = now;
        snapshot.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        snapshot.jobs = jobs.collect();
        snapshot.backfill =
            BackfillState { complete: true, exit: "end_job_queue".to_owned(), ..BackfillState::default() };
    }
}
