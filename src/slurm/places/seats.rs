//! Who is on which place.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::claims;
use crate::model::{
    Allocation, Job, JobId, Node, NodeName, NodeState, NodeType, Reservation, Resources, Snapshot, Unit,
    place_in,
};
use crate::slurm::gres;

/// A place: the node's place among those that are lent, and the number of the GPU.
pub(super) type Place = (usize, usize);

/// What is remembered from snapshot to snapshot: who was where.
#[derive(Debug, Default)]
pub(super) struct Seats {
    partition: String,
    /// The jobs on the places of each node, as they were last seen.
    taken: BTreeMap<NodeName, Vec<Option<JobId>>>,
    /// Where leads were sent.
    sent: BTreeMap<JobId, NodeName>,
}

/// A node whose GPUs are lent.
#[derive(Debug)]
pub(super) struct Lent {
    /// The node.
    pub node: Node,
    /// What one place of it comes with.
    pub unit: Unit,
    /// The job on each place.
    pub on: Vec<Option<JobId>>,
    /// Places that no job is on, and that are of no use: the CPUs or the memory that belong to them has this
    /// main job, if any has.
    pub starved: Vec<(usize, Option<JobId>)>,
    /// Whether the records of the node and its jobs contradict each other.
    pub doubtful: bool,
}

impl Lent {
    /// The name of a place.
    pub(super) fn name(&self, gpu: usize) -> NodeName {
        self.node.name.place(gpu)
    }
}

impl Seats {
    pub(super) fn new(partition: &str, known: BTreeMap<JobId, NodeName>) -> Seats {
        Seats { partition: partition.to_owned(), taken: BTreeMap::new(), sent: known }
    }

    /// From now on this lead is on this place.
    pub(super) fn send(&mut self, job: JobId, place: &NodeName) {
        self.sent.insert(job, place.clone());
    }

    /// The snapshot with places for nodes. Nodes of our partition that have no GPUs, or GPUs of several
    /// types, are not lent: they leave the partition.
    pub(super) fn places(&mut self, snapshot: Snapshot) -> Snapshot {
        let Snapshot { nodes, jobs, reservations, .. } = snapshot;
        self.sent.retain(|id, _| jobs.binary_search_by(|j| j.id.cmp(id)).is_ok());
        let is_ours = |n: &Node| n.partitions.contains(&self.partition);
        let (ours, mut others): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(is_ours);
        let mut lent = Vec::new();
        for mut node in ours {
            match unit(&node) {
                Some(unit) => lent.push(self.lend(node, unit)),
                None => {
                    node.partitions.retain(|p| *p != self.partition);
                    others.push(node);
                }
            }
        }
        let index: FxHashMap<NodeName, usize> =
            lent.iter().enumerate().map(|(at, l)| (l.node.name.clone(), at)).collect();
        self.seat(&mut lent, &index, &jobs);
        self.taken = lent.iter().map(|l| (l.node.name.clone(), l.on.clone())).collect();
        let claimed = claims::of(&lent, &index, &jobs, &self.partition);
        let jobs: Vec<Job> = jobs.into_iter().map(|job| self.show(job, &lent, &index, &claimed)).collect();
        let reservations = reservations.into_iter().map(|r| covered(r, &lent, &index)).collect();
        let mut nodes = others;
        nodes.extend(lent.iter().flat_map(|l| (0..l.on.len()).map(|gpu| place(l, gpu, &jobs))));
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Snapshot { nodes, jobs, reservations, ..snapshot }
    }

    /// One job as it was last seated.
    pub(super) fn seated(&self, mut job: Job) -> Job {
        let is_on = |place: &(usize, &Option<JobId>)| *place.1 == Some(job.id);
        let host = |node: &NodeName| {
            let Some(taken) = self.taken.get(node) else { return vec![node.clone()] };
            match self.asked(&job, node) {
                Some(gpu) => vec![node.place(gpu)],
                None => taken.iter().enumerate().filter(is_on).map(|(gpu, _)| node.place(gpu)).collect(),
            }
        };
        job.nodes = job.nodes.iter().flat_map(host).collect();
        job.batch_host =
            job.batch_host.map(|h| job.nodes.iter().find(|n| n.host() == h).cloned().unwrap_or(h));
        job
    }

    /// The place of this node on which a job of ours is meant to be.
    fn asked(&self, job: &Job, node: &NodeName) -> Option<usize> {
        if job.partition != self.partition {
            return None;
        }
        let named = place_in(&job.comment).or_else(|| self.sent.get(&job.id).cloned())?;
        (named.host() == *node).then(|| named.number()).flatten()
    }

    fn lend(&self, node: Node, unit: Unit) -> Lent {
        let count = node.has.gpus.count() as usize;
        let mut on = self.taken.get(&node.name).cloned().unwrap_or_default();
        on.resize(count, None);
        Lent { node, unit, on, starved: Vec::new(), doubtful: false }
    }

    /// Gives every job that occupies nodes its places: those it had, those it was meant to have, then the
    /// lowest that are left.
    fn seat(&self, lent: &mut [Lent], index: &FxHashMap<NodeName, usize>, jobs: &[Job]) {
        let mut here: Vec<Vec<(&Job, Option<&Resources>)>> = vec![Vec::new(); lent.len()];
        for job in jobs.iter().filter(|j| j.state.occupies_nodes()) {
            for node in &job.nodes {
                let Some(at) = index.get(node) else { continue };
                let part = job.allocations.binary_search_by(|a: &Allocation| a.node.cmp(node)).ok();
                here[*at].push((job, part.map(|part| &job.allocations[part].holds)));
            }
        }
        for (lent, mut here) in lent.iter_mut().zip(here) {
            for on in &mut lent.on {
                on.take_if(|job| !here.iter().any(|(j, _)| j.id == *job));
            }
            // Those whose place somebody knows come first: others go where they are not. Of two that were
            // sent to one place, the first has ended already and cleans up.
            let asked = |job: &Job| self.asked(job, &lent.node.name);
            let asked: BTreeMap<JobId, usize> =
                here.iter().filter_map(|(job, _)| Some((job.id, asked(job)?))).collect();
            here.sort_by_key(|(job, _)| (!asked.contains_key(&job.id), !job.state.is_running(), job.id));
            let mut fixed = vec![false; lent.on.len()];
            for (job, _) in &here {
                let Some(place) = asked.get(&job.id).filter(|place| fixed.get(**place) == Some(&false))
                else {
                    continue;
                };
                // It has one place only.
                lent.on.iter_mut().filter(|on| **on == Some(job.id)).for_each(|on| *on = None);
                (lent.on[*place], fixed[*place]) = (Some(job.id), true);
            }
            for (job, holds) in &here {
                sit(lent, job.id, holds.map_or(lent.on.len(), |h| h.gpus.count() as usize));
            }
            lent.settle(&here, &self.partition);
        }
    }

    /// The job with places for nodes.
    fn show(
        &self,
        mut job: Job,
        lent: &[Lent],
        index: &FxHashMap<NodeName, usize>,
        claimed: &BTreeMap<JobId, Vec<Place>>,
    ) -> Job {
        let on = |node: &NodeName| match index.get(node) {
            None => vec![node.clone()],
            Some(at) if job.state.occupies_nodes() => {
                let lent = &lent[*at];
                let mine = (0..lent.on.len()).filter(|gpu| lent.user(*gpu) == Some(job.id));
                mine.map(|gpu| lent.name(gpu)).collect()
            }
            // Where it was.
            Some(_) => self.asked(&job, node).map(|gpu| node.place(gpu)).into_iter().collect(),
        };
        let mut nodes: Vec<NodeName> = job.nodes.iter().flat_map(on).collect();
        nodes.sort();
        let elsewhere = job.scheduled_nodes.iter().filter(|n| !index.contains_key(*n)).cloned();
        let mut planned: Vec<NodeName> = elsewhere.collect();
        planned.extend(claimed.get(&job.id).into_iter().flatten().map(|(at, gpu)| lent[*at].name(*gpu)));
        planned.sort();
        job.batch_host = job.batch_host.map(|h| nodes.iter().find(|n| n.host() == h).cloned().unwrap_or(h));
        (job.nodes, job.scheduled_nodes, job.allocations) = (nodes, planned, Vec::new());
        job
    }
}

/// Gives a job so many places, of which it may have some.
fn sit(lent: &mut Lent, job: JobId, count: usize) {
    let mut mine: Vec<usize> = (0..lent.on.len()).filter(|gpu| lent.on[*gpu] == Some(job)).collect();
    for gpu in mine.split_off(count.min(mine.len())) {
        lent.on[gpu] = None;
    }
    let missing = count - mine.len();
    let is_free = |gpu: &usize| lent.on[*gpu].is_none();
    let gets: Vec<usize> = (0..lent.on.len()).filter(is_free).take(missing).collect();
    lent.doubtful |= gets.len() < missing;
    gets.into_iter().for_each(|gpu| lent.on[gpu] = Some(job));
}

impl Lent {
    /// Finds out how many of the free places are of use.
    fn settle(&mut self, here: &[(&Job, Option<&Resources>)], partition: &str) {
        let mut held = Resources::default();
        for (_, holds) in here {
            held.add(holds.unwrap_or(&self.node.has));
        }
        let left = self.node.has.without(&held);
        let is_whole = here.iter().any(|(_, holds)| holds.is_none());
        self.doubtful |= (left.is_none() || self.node.used != held) && !is_whole;
        let usable = left.map_or(0, |left| self.unit.count(&left)) as usize;
        let free: Vec<usize> = (0..self.on.len()).filter(|gpu| self.on[*gpu].is_none()).collect();
        // Whichever main job has most CPUs keeps the last places from being of use.
        let main = here.iter().filter(|(job, _)| job.partition != partition);
        let most = main.max_by_key(|(_, holds)| holds.map_or(u32::MAX, |h| h.cpus)).map(|(job, _)| job.id);
        self.starved = free.into_iter().skip(usable).map(|gpu| (gpu, most)).collect();
    }

    /// The job that is on a place, or a main job that keeps it from being of use.
    pub(super) fn user(&self, gpu: usize) -> Option<JobId> {
        let starver = || self.starved.iter().find(|(starved, _)| *starved == gpu).and_then(|(_, job)| *job);
        self.on[gpu].or_else(starver)
    }

    /// Whether nobody may say that a free place is one.
    fn is_doubtful(&self, gpu: usize) -> bool {
        self.doubtful || self.starved.iter().any(|(starved, _)| *starved == gpu)
    }
}

/// What one place of a node comes with; `None` where its GPUs cannot be lent one by one.
fn unit(node: &Node) -> Option<Unit> {
    Unit::of(&node.has).filter(|unit| unit.has_gpu && node.has.gpus.only_type().is_some())
}

/// A place as a node.
fn place(lent: &Lent, gpu: usize, jobs: &[Job]) -> Node {
    let node = &lent.node;
    let kind = node.has.gpus.only_type().unwrap_or_default();
    let gres = if kind.is_empty() { "gpu:1".to_owned() } else { format!("gpu:{kind}:1") };
    let has = lent.unit.resources(kind);
    let user =
        lent.user(gpu).and_then(|id| jobs.binary_search_by(|j| j.id.cmp(&id)).ok()).map(|at| &jobs[at]);
    Node {
        name: lent.name(gpu),
        state: state(lent, gpu, user),
        node_type: NodeType::clone(&gres::node_type(&gres, i64::from(lent.unit.cpus), &node.features)),
        used: if user.is_some() { has.clone() } else { Resources::default() },
        has,
        ..node.clone()
    }
}

/// The node's words, but for those that tell who is on it. A free place of a node whose records contradict
/// each other is UNKNOWN: it is waited for.
fn state(lent: &Lent, gpu: usize, user: Option<&Job>) -> NodeState {
    let mut state = lent.node.state.clone();
    for word in ["IDLE", "MIXED", "ALLOCATED", "COMPLETING"] {
        state.remove(word);
    }
    match user {
        Some(job) => {
            state.insert("ALLOCATED");
            if !job.state.is_running() {
                state.insert("COMPLETING");
            }
        }
        None => state.insert("IDLE"),
    }
    if user.is_none() && lent.is_doubtful(gpu) {
        state.insert("UNKNOWN");
    }
    state
}

fn covered(mut reservation: Reservation, lent: &[Lent], index: &FxHashMap<NodeName, usize>) -> Reservation {
    let places = |node: &NodeName| match index.get(node) {
        None => vec![node.clone()],
        Some(at) => (0..lent[*at].on.len()).map(|gpu| lent[*at].name(gpu)).collect(),
    };
    reservation.nodes = reservation.nodes.iter().flat_map(places).collect();
    reservation
}
