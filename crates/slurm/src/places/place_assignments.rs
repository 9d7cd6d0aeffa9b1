//! Assigns jobs to places, from snapshot to snapshot.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::claims;
use super::lent_node::{LentNode, NodeOccupant, PlaceIndex};
use crate::PartitionSharing;
use infill_model::{
    Job, JobId, LendingRules, Node, NodeName, Reservation, Snapshot, SnapshotDoubt, lead_of_wing,
    place_from_comment,
};

/// Most leads whose places are remembered.
const MAX_SENT_LEADS: usize = 20_000;

/// The jobs on each place by the last snapshot, and the places where leads were launched.
#[derive(Debug, Default)]
pub struct PlaceAssignments {
    partition: String,
    /// How nodes are divided into places.
    rules: LendingRules,
    /// Most CPUs of one node that the partition's jobs may have together.
    max_cpus: Option<u32>,
    /// The jobs on the places of each node in the last snapshot.
    occupied: BTreeMap<NodeName, Vec<Option<JobId>>>,
    /// The places where leads were launched.
    sent: BTreeMap<JobId, NodeName>,
}

impl PlaceAssignments {
    /// Divides the nodes of this partition by `rules`. `lead_places` are the places of leads that were
    /// launched earlier, as far as they are recorded.
    pub fn new(
        partition: &str,
        rules: LendingRules,
        lead_places: BTreeMap<JobId, NodeName>,
    ) -> PlaceAssignments {
        let partition = partition.to_owned();
        PlaceAssignments { partition, rules, max_cpus: None, occupied: BTreeMap::new(), sent: lead_places }
    }

    /// Sets the limit on the CPUs of one node from the partition's record.
    pub(super) fn apply_cpu_limit(&mut self, partitions: &[PartitionSharing]) {
        let ours = partitions.iter().find(|p| p.name == self.partition);
        self.max_cpus = ours.and_then(|p| p.max_cpus_per_node);
    }

    /// Records that this lead is on this place from now on.
    pub(super) fn record_sent(&mut self, job: JobId, place: &NodeName) {
        self.sent.insert(job, place.clone());
        if self.sent.len() > MAX_SENT_LEADS {
            // Ids grow, so the first one is the oldest.
            self.sent.pop_first();
        }
    }

    /// The snapshot with places instead of nodes. Nodes of the partition that cannot be lent in parts leave
    /// the partition.
    pub fn snapshot_with_places(&mut self, snapshot: Snapshot) -> Snapshot {
        // A snapshot that has no jobs, or contradicts itself, is not evidence of who left a place.
        let is_inconsistent =
            snapshot.doubts.iter().any(|doubt| matches!(doubt, SnapshotDoubt::Inconsistent(_)));
        let is_sound = !snapshot.jobs.is_empty() && !is_inconsistent;
        let Snapshot { nodes, jobs, reservations, .. } = snapshot;
        let (mut lent, others) = self.lend_nodes(nodes);
        let index: FxHashMap<NodeName, usize> =
            lent.iter().enumerate().map(|(at, l)| (l.node.name.clone(), at)).collect();
        self.assign_places(&mut lent, &index, &jobs);
        if is_sound || self.occupied.is_empty() {
            self.occupied = lent.iter().map(|l| (l.node.name.clone(), l.on.clone())).collect();
        }
        if is_sound {
            self.sent.retain(|id, _| !has_ended(*id, &jobs));
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

    /// Divides the nodes of the partition that can be lent in parts. Returns them, and all other nodes.
    fn lend_nodes(&self, nodes: Vec<Node>) -> (Vec<LentNode>, Vec<Node>) {
        let (ours, mut others): (Vec<Node>, Vec<Node>) =
            nodes.into_iter().partition(|node| node.partitions.contains(&self.partition));
        let mut lent = Vec::new();
        for mut node in ours {
            let on = self.occupied.get(&node.name).cloned().unwrap_or_default();
            match self.rules.unit_of_node(&node.has) {
                Some(unit) => lent.push(LentNode::new(node, unit, on)),
                None => {
                    node.partitions.retain(|p| *p != self.partition);
                    others.push(node);
                }
            }
        }
        (lent, others)
    }

    /// One job with its places by the last snapshot; `None` before the first snapshot.
    pub(super) fn job_with_last_places(&self, mut job: Job) -> Option<Job> {
        let nodes: Option<Vec<Vec<NodeName>>> =
            job.nodes.iter().map(|node| self.last_places(&job, node)).collect();
        job.nodes = nodes?.concat();
        job.batch_host =
            self.batch_place(&job, |host| self.occupied.get(host).map_or(&[][..], Vec::as_slice));
        Some(job)
    }

    /// The places of one job on this node; `None` before the first snapshot.
    fn last_places(&self, job: &Job, node: &NodeName) -> Option<Vec<NodeName>> {
        // Only the last snapshot shows where a main job is.
        if job.partition == self.partition {
            let requested = self.requested_places(job, node);
            if !requested.is_empty() {
                return Some(requested.into_iter().map(|gpu| node.place_name(gpu)).collect());
            }
        }
        match self.occupied.get(node) {
            Some(occupied) => {
                let places = occupied.iter().enumerate().filter(|(_, on)| **on == Some(job.id));
                Some(places.map(|(gpu, _)| node.place_name(gpu)).collect())
            }
            None if self.occupied.is_empty() => None,
            None => Some(vec![node.clone()]),
        }
    }

    /// The name of all places on the batch host together. For a main job that has no place there, the first
    /// place that it makes unusable. `occupants` gives the jobs on the places of a node.
    fn batch_place<'a>(
        &self,
        job: &Job,
        occupants: impl Fn(&NodeName) -> &'a [Option<JobId>],
    ) -> Option<NodeName> {
        let host = job.batch_host.as_ref()?;
        let places_there: Vec<&NodeName> = job.nodes.iter().filter(|n| n.host() == *host).collect();
        let numbers: Vec<usize> = if job.partition == self.partition {
            places_there.iter().flat_map(|place| place.place_numbers()).collect()
        } else {
            let places = occupants(host).iter().enumerate();
            places.filter(|(_, on)| **on == Some(job.id)).map(|(at, _)| at).collect()
        };
        match places_there.first() {
            Some(_) if !numbers.is_empty() => Some(host.block_name(&numbers)),
            first => Some(first.copied().unwrap_or(host).clone()),
        }
    }

    /// The places of this node on which a job is meant to be. The daemon records them for a lead, also for
    /// one in the main queue after its agent has reported. A wing's comment names them.
    fn requested_places(&self, job: &Job, node: &NodeName) -> Vec<usize> {
        let place = match lead_of_wing(job) {
            Some(_) if job.partition == self.partition => place_from_comment(&job.comment),
            _ => self.sent.get(&job.id).cloned(),
        };
        match place {
            Some(place) if place.host() == *node => place.place_numbers(),
            _ => Vec::new(),
        }
    }

    /// Gives each job that occupies nodes its places: those it had, those it was meant to have, then the
    /// lowest that are left.
    fn assign_places(&self, lent: &mut [LentNode], index: &FxHashMap<NodeName, usize>, jobs: &[Job]) {
        for job in jobs.iter().filter(|j| j.state.occupies_nodes()) {
            for node in &job.nodes {
                let Some(lent) = index.get(node).and_then(|at| lent.get_mut(*at)) else { continue };
                let part = job.allocations.binary_search_by(|a| a.node.cmp(node)).ok();
                lent.holders.push(NodeOccupant {
                    job: job.id,
                    ours: job.partition == self.partition,
                    runs: job.state.is_running(),
                    leaves: !job.state.is_running() || job.was_preempted(),
                    end: job.end_time,
                    asked: self.requested_places(job, node),
                    holds: part.map(|part| job.allocations[part].holds.clone()),
                });
            }
        }
        for node in lent {
            node.assign_places(self.max_cpus);
        }
    }

    /// The job with places instead of nodes.
    fn job_with_places(
        &self,
        mut job: Job,
        lent: &[LentNode],
        index: &FxHashMap<NodeName, usize>,
        claimed: &BTreeMap<JobId, Vec<PlaceIndex>>,
    ) -> Job {
        let mut nodes: Vec<NodeName> = Vec::new();
        for node in &job.nodes {
            let lent = index.get(node).map(|at| &lent[*at]);
            nodes.extend(self.places_on_node(&job, node, lent));
        }
        nodes.sort();
        let elsewhere = job.scheduled_nodes.iter().filter(|n| !index.contains_key(*n)).cloned();
        let mut planned: Vec<NodeName> = elsewhere.collect();
        let claimed = claimed.get(&job.id).into_iter().flatten();
        planned.extend(claimed.map(|(at, gpu)| lent[*at].node.name.place_name(*gpu)));
        planned.sort();
        job.nodes = nodes;
        job.scheduled_nodes = planned;
        job.allocations = Vec::new();
        job.batch_host =
            self.batch_place(&job, |host| index.get(host).map_or(&[][..], |at| lent[*at].on.as_slice()));
        job
    }

    /// The places of a job on one of its nodes: the node itself if it is not lent in parts (`lent` is
    /// `None`).
    fn places_on_node(&self, job: &Job, node: &NodeName, lent: Option<&LentNode>) -> Vec<NodeName> {
        let Some(lent) = lent else { return vec![node.clone()] };
        let numbers: Vec<usize> = if job.state.occupies_nodes() {
            (0..lent.on.len()).filter(|gpu| lent.place_user(*gpu) == Some(job.id)).collect()
        } else {
            // The job has left the node: show where it was.
            self.requested_places(job, node)
        };
        numbers.into_iter().map(|gpu| node.place_name(gpu)).collect()
    }
}

/// Whether the snapshot shows that a job has ended. `jobs` is sorted by id.
fn has_ended(id: JobId, jobs: &[Job]) -> bool {
    let position = jobs.binary_search_by_key(&id, |job| job.id);
    position.is_ok_and(|at| jobs[at].state.is_ended())
}

fn reservation_with_places(
    mut reservation: Reservation,
    lent: &[LentNode],
    index: &FxHashMap<NodeName, usize>,
) -> Reservation {
    reservation.nodes = reservation
        .nodes
        .iter()
        .flat_map(|node| match index.get(node) {
            None => vec![node.clone()],
            Some(at) => (0..lent[*at].on.len()).map(|gpu| node.place_name(gpu)).collect(),
        })
        .collect();
    reservation
}
