//! Who is on which place.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::claims;
use super::lent_node::{LentNode, NodeOccupant, PlaceIndex};
use crate::PartitionSharing;
use infill_model::{
    AllocatedResources, Job, JobId, LendingRules, Node, NodeName, Reservation, Snapshot, SnapshotDoubt,
    lead_of_wing, place_from_comment,
};

/// Most leads whose places are remembered.
const MAX_SENT_LEADS: usize = 20_000;

/// What is remembered from snapshot to snapshot: who was where.
#[derive(Debug, Default)]
pub struct PlaceAssignments {
    partition: String,
    /// What nodes are lent in.
    parts: LendingRules,
    /// Most CPUs of one node that the partition's jobs may have together.
    max_cpus: Option<u32>,
    /// The jobs on the places of each node, as they were last seen.
    taken: BTreeMap<NodeName, Vec<Option<JobId>>>,
    /// Where leads were sent.
    sent: BTreeMap<JobId, NodeName>,
}

impl PlaceAssignments {
    /// The places of the nodes of this partition, which are such parts of them. `known`: which lead is on
    /// which place, as far as anybody remembers.
    pub fn new(partition: &str, parts: LendingRules, known: BTreeMap<JobId, NodeName>) -> PlaceAssignments {
        let partition = partition.to_owned();
        PlaceAssignments { partition, parts, max_cpus: None, taken: BTreeMap::new(), sent: known }
    }

    /// From now on the partition's own limit on the CPUs of one node counts.
    pub(super) fn apply_cpu_limit(&mut self, partitions: &[PartitionSharing]) {
        let ours = partitions.iter().find(|p| p.name == self.partition);
        self.max_cpus = ours.and_then(|p| p.max_cpus_per_node);
    }

    /// From now on this lead is on this place.
    pub(super) fn record_sent(&mut self, job: JobId, place: &NodeName) {
        self.sent.insert(job, place.clone());
        if self.sent.len() > MAX_SENT_LEADS {
            // Ids grow: the oldest goes.
            self.sent.pop_first();
        }
    }

    /// The snapshot with places for nodes. Nodes of our partition that cannot be lent in parts leave it.
    pub fn snapshot_with_places(&mut self, snapshot: Snapshot) -> Snapshot {
        // An answer that says nothing of jobs, or contradicts itself, says nothing of places either.
        let odd = |d: &SnapshotDoubt| matches!(d, SnapshotDoubt::Inconsistent(_));
        let is_sound = !snapshot.jobs.is_empty() && !snapshot.doubts.iter().any(odd);
        let Snapshot { nodes, jobs, reservations, .. } = snapshot;
        let (ours, mut others): (Vec<Node>, Vec<Node>) =
            nodes.into_iter().partition(|n: &Node| n.partitions.contains(&self.partition));
        let mut lent = Vec::new();
        for mut node in ours {
            let on = self.taken.get(&node.name).cloned().unwrap_or_default();
            match self.parts.unit_of_node(&node.has) {
                Some(unit) => lent.push(LentNode::new(node, unit, on)),
                None => {
                    node.partitions.retain(|p| *p != self.partition);
                    others.push(node);
                }
            }
        }
        let index: FxHashMap<NodeName, usize> =
            lent.iter().enumerate().map(|(at, l)| (l.node.name.clone(), at)).collect();
        self.assign_places(&mut lent, &index, &jobs);
        if is_sound || self.taken.is_empty() {
            self.taken = lent.iter().map(|l| (l.node.name.clone(), l.on.clone())).collect();
        }
        if is_sound {
            let ended = |id: &JobId| {
                let at = jobs.binary_search_by(|j| j.id.cmp(id));
                at.is_ok_and(|at| jobs[at].state.is_ended())
            };
            self.sent.retain(|id, _| !ended(id));
        }
        let claimed = claims::planned_claims(&lent, &index, &jobs, &self.partition);
        let jobs: Vec<Job> =
            jobs.into_iter().map(|job| self.job_with_places(job, &lent, &index, &claimed)).collect();
        let reservations =
            reservations.into_iter().map(|r| reservation_with_places(r, &lent, &index)).collect();
        let mut nodes = others;
        nodes.extend(lent.iter().flat_map(|l| (0..l.on.len()).map(|gpu| l.place_as_node(gpu, &jobs))));
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Snapshot { nodes, jobs, reservations, ..snapshot }
    }

    /// One job as it was last seated; `None` where that cannot be known yet: no snapshot has come.
    pub(super) fn job_as_seated(&self, mut job: Job) -> Option<Job> {
        // Of a main job nobody but the last snapshot says where it is.
        let is_ours = job.partition == self.partition;
        let host = |node: &NodeName| {
            let asked = if is_ours { self.requested_places(&job, node) } else { Vec::new() };
            match self.taken.get(node) {
                _ if !asked.is_empty() => Some(asked.into_iter().map(|gpu| node.place_name(gpu)).collect()),
                Some(taken) => Some(
                    taken
                        .iter()
                        .enumerate()
                        .filter(|place: &(usize, &Option<JobId>)| *place.1 == Some(job.id))
                        .map(|(gpu, _)| node.place_name(gpu))
                        .collect(),
                ),
                None if self.taken.is_empty() => None,
                None => Some(vec![node.clone()]),
            }
        };
        let nodes: Option<Vec<Vec<NodeName>>> = job.nodes.iter().map(host).collect();
        job.nodes = nodes?.concat();
        job.batch_host =
            self.batch_place(&job, |host: &NodeName| self.taken.get(host).map_or(&[][..], Vec::as_slice));
        Some(job)
    }

    /// Where the job's script runs: all its places there as one. Of a main job that is on none, the first
    /// that it keeps from being of use. `seats`: who is on the places of a node.
    fn batch_place<'a>(
        &self,
        job: &Job,
        seats: impl Fn(&NodeName) -> &'a [Option<JobId>],
    ) -> Option<NodeName> {
        let host = job.batch_host.as_ref()?;
        let there = || job.nodes.iter().filter(|n| n.host() == *host);
        let numbers: Vec<usize> = match job.partition == self.partition {
            true => there().flat_map(NodeName::place_numbers).collect(),
            false => {
                (0..).zip(seats(host)).filter(|(_, on)| **on == Some(job.id)).map(|(at, _)| at).collect()
            }
        };
        match there().next() {
            Some(_) if !numbers.is_empty() => Some(host.block_name(&numbers)),
            first => Some(first.unwrap_or(host).clone()),
        }
    }

    /// The places of this node on which a job is meant to be. Of a lead the daemon knows it, of one of the
    /// main queue, too, once its agent is there; of a wing its comment tells.
    fn requested_places(&self, job: &Job, node: &NodeName) -> Vec<usize> {
        let named = match lead_of_wing(job) {
            Some(_) if job.partition == self.partition => place_from_comment(&job.comment),
            _ => self.sent.get(&job.id).cloned(),
        };
        named.filter(|place| place.host() == *node).map(|place| place.place_numbers()).unwrap_or_default()
    }

    /// Gives every job that occupies nodes its places: those it had, those it was meant to have, then the
    /// lowest that are left.
    fn assign_places(&self, lent: &mut [LentNode], index: &FxHashMap<NodeName, usize>, jobs: &[Job]) {
        for job in jobs.iter().filter(|j| j.state.occupies_nodes()) {
            for node in &job.nodes {
                let Some(lent) = index.get(node).and_then(|at| lent.get_mut(*at)) else { continue };
                let part = job.allocations.binary_search_by(|a: &AllocatedResources| a.node.cmp(node)).ok();
                lent.holders.push(NodeOccupant {
                    job: job.id,
                    ours: job.partition == self.partition,
                    runs: job.state.is_running(),
                    leaves: !job.state.is_running() || job.was_told_to_leave(),
                    end: job.end_time,
                    asked: self.requested_places(job, node),
                    holds: part.map(|part| job.allocations[part].holds.clone()),
                });
            }
        }
        lent.iter_mut().for_each(|lent| lent.assign_places(self.max_cpus));
    }

    /// The job with places for nodes.
    fn job_with_places(
        &self,
        mut job: Job,
        lent: &[LentNode],
        index: &FxHashMap<NodeName, usize>,
        claimed: &BTreeMap<JobId, Vec<PlaceIndex>>,
    ) -> Job {
        let on = |node: &NodeName| match index.get(node) {
            None => vec![node.clone()],
            Some(at) if job.state.occupies_nodes() => {
                let lent = &lent[*at];
                let mine = (0..lent.on.len()).filter(|gpu| lent.place_user(*gpu) == Some(job.id));
                mine.map(|gpu| lent.node.name.place_name(gpu)).collect()
            }
            // Where it was.
            Some(_) => {
                self.requested_places(&job, node).into_iter().map(|gpu| node.place_name(gpu)).collect()
            }
        };
        let mut nodes: Vec<NodeName> = job.nodes.iter().flat_map(on).collect();
        nodes.sort();
        let elsewhere = job.scheduled_nodes.iter().filter(|n| !index.contains_key(*n)).cloned();
        let mut planned: Vec<NodeName> = elsewhere.collect();
        let claimed = claimed.get(&job.id).into_iter().flatten();
        planned.extend(claimed.map(|(at, gpu)| lent[*at].node.name.place_name(*gpu)));
        planned.sort();
        (job.nodes, job.scheduled_nodes, job.allocations) = (nodes, planned, Vec::new());
        job.batch_host = self.batch_place(&job, |host: &NodeName| {
            index.get(host).map_or(&[][..], |at| lent[*at].on.as_slice())
        });
        job
    }
}

fn reservation_with_places(
    mut reservation: Reservation,
    lent: &[LentNode],
    index: &FxHashMap<NodeName, usize>,
) -> Reservation {
    reservation.nodes = reservation
        .nodes
        .iter()
        .flat_map(|node: &NodeName| match index.get(node) {
            None => vec![node.clone()],
            Some(at) => (0..lent[*at].on.len()).map(|gpu| node.place_name(gpu)).collect(),
        })
        .collect();
    reservation
}
