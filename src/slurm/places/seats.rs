//! Who is on which place.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::claims;
use crate::model::{
    Allocation, Doubt, Gpus, Job, JobId, Node, NodeName, NodeState, NodeType, Reservation, Resources,
    Snapshot, Unit, UnixTime, lead_of, place_in,
};
use crate::slurm::gres;

/// A place: the node's place among those that are lent, and the number of the GPU.
pub(super) type Place = (usize, usize);

/// Most leads whose places are remembered.
const MOST_SENT: usize = 20_000;

/// What is remembered from snapshot to snapshot: who was where.
#[derive(Debug, Default)]
pub struct Seats {
    partition: String,
    /// The jobs on the places of each node, as they were last seen.
    taken: BTreeMap<NodeName, Vec<Option<JobId>>>,
    /// Where leads were sent.
    sent: BTreeMap<JobId, NodeName>,
}

/// A job on a node that is lent.
#[derive(Debug)]
pub(super) struct Holder {
    pub job: JobId,
    /// Whether it is one of the malleable partition.
    pub ours: bool,
    /// Whether it does more than clean up.
    runs: bool,
    /// When its time limit ends it.
    pub end: Option<UnixTime>,
    /// The places that it was sent to.
    asked: Vec<usize>,
    /// What it has of the node; `None`: all of it.
    pub holds: Option<Resources>,
}

/// A node whose GPUs are lent.
#[derive(Debug)]
pub(super) struct Lent {
    /// The node.
    pub node: Node,
    /// What one place of it comes with.
    pub unit: Unit,
    /// The type of such a place.
    node_type: NodeType,
    /// The job on each place.
    pub on: Vec<Option<JobId>>,
    /// All jobs on it.
    pub holders: Vec<Holder>,
    /// Places that no job is on, and that are of no use: the CPUs or the memory that belong to them has this
    /// main job, if any has.
    pub starved: Vec<(usize, Option<JobId>)>,
    /// Whether the records of the node and its jobs contradict each other.
    doubtful: bool,
}

impl Seats {
    /// The places of the nodes of this partition. `known`: which lead is on which place, as far as anybody
    /// remembers.
    pub fn new(partition: &str, known: BTreeMap<JobId, NodeName>) -> Seats {
        Seats { partition: partition.to_owned(), taken: BTreeMap::new(), sent: known }
    }

    /// From now on this lead is on this place.
    pub(super) fn send(&mut self, job: JobId, place: &NodeName) {
        self.sent.insert(job, place.clone());
        if self.sent.len() > MOST_SENT {
            // Ids grow: the oldest goes.
            self.sent.pop_first();
        }
    }

    /// The snapshot with places for nodes. Nodes of our partition that have no GPUs, or GPUs of several
    /// types, are not lent: they leave the partition.
    pub fn places(&mut self, snapshot: Snapshot) -> Snapshot {
        // An answer that says nothing of jobs, or contradicts itself, says nothing of places either.
        let odd = |d: &Doubt| matches!(d, Doubt::Inconsistent(_));
        let is_sound = !snapshot.jobs.is_empty() && !snapshot.doubts.iter().any(odd);
        let Snapshot { nodes, jobs, reservations, .. } = snapshot;
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
        let claimed = claims::of(&lent, &index, &jobs, &self.partition);
        let jobs: Vec<Job> = jobs.into_iter().map(|job| self.show(job, &lent, &index, &claimed)).collect();
        let reservations = reservations.into_iter().map(|r| covered(r, &lent, &index)).collect();
        let mut nodes = others;
        nodes.extend(lent.iter().flat_map(|l| (0..l.on.len()).map(|gpu| place(l, gpu, &jobs))));
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Snapshot { nodes, jobs, reservations, ..snapshot }
    }

    /// One job as it was last seated; `None` where that cannot be known yet: no snapshot has come.
    pub(super) fn seated(&self, mut job: Job) -> Option<Job> {
        let is_on = |place: &(usize, &Option<JobId>)| *place.1 == Some(job.id);
        let host = |node: &NodeName| {
            let asked = self.asked(&job, node);
            match self.taken.get(node) {
                _ if !asked.is_empty() => Some(asked.into_iter().map(|gpu| node.place(gpu)).collect()),
                Some(taken) => {
                    Some(taken.iter().enumerate().filter(is_on).map(|(gpu, _)| node.place(gpu)).collect())
                }
                None if self.taken.is_empty() => None,
                None => Some(vec![node.clone()]),
            }
        };
        let nodes: Option<Vec<Vec<NodeName>>> = job.nodes.iter().map(host).collect();
        job.nodes = nodes?.concat();
        job.batch_host = self.batch_place(&job);
        Some(job)
    }

    /// Where the job's script runs: of one of ours all its places there as one, of others the first.
    fn batch_place(&self, job: &Job) -> Option<NodeName> {
        let host = job.batch_host.as_ref()?;
        let there = || job.nodes.iter().filter(|n| n.host() == *host);
        let numbers: Vec<usize> = there().flat_map(NodeName::numbers).collect();
        match there().next() {
            Some(_) if job.partition == self.partition && !numbers.is_empty() => Some(host.places(&numbers)),
            first => Some(first.unwrap_or(host).clone()),
        }
    }

    /// The places of this node on which a job of ours is meant to be. Of a lead the daemon knows it; of a
    /// wing its comment tells.
    fn asked(&self, job: &Job, node: &NodeName) -> Vec<usize> {
        if job.partition != self.partition {
            return Vec::new();
        }
        let named = match lead_of(job) {
            Some(_) => place_in(&job.comment),
            None => self.sent.get(&job.id).cloned(),
        };
        named.filter(|place| place.host() == *node).map(|place| place.numbers()).unwrap_or_default()
    }

    fn lend(&self, node: Node, unit: Unit) -> Lent {
        let count = node.has.gpus.count() as usize;
        let mut on = self.taken.get(&node.name).cloned().unwrap_or_default();
        on.resize(count, None);
        let gres = match node.has.gpus.only_type() {
            Some(kind) if !kind.is_empty() => format!("gpu:{kind}:1"),
            _ => "gpu:1".to_owned(),
        };
        let node_type = gres::node_type(&gres, i64::from(unit.cpus), &node.features);
        Lent { node, unit, node_type, on, holders: Vec::new(), starved: Vec::new(), doubtful: false }
    }

    /// Gives every job that occupies nodes its places: those it had, those it was meant to have, then the
    /// lowest that are left.
    fn seat(&self, lent: &mut [Lent], index: &FxHashMap<NodeName, usize>, jobs: &[Job]) {
        for job in jobs.iter().filter(|j| j.state.occupies_nodes()) {
            for node in &job.nodes {
                let Some(lent) = index.get(node).and_then(|at| lent.get_mut(*at)) else { continue };
                let part = job.allocations.binary_search_by(|a: &Allocation| a.node.cmp(node)).ok();
                lent.holders.push(Holder {
                    job: job.id,
                    ours: job.partition == self.partition,
                    runs: job.state.is_running(),
                    end: job.end_time,
                    asked: self.asked(job, node),
                    holds: part.map(|part| job.allocations[part].holds.clone()),
                });
            }
        }
        lent.iter_mut().for_each(Lent::seat);
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
                mine.map(|gpu| lent.node.name.place(gpu)).collect()
            }
            // Where it was.
            Some(_) => self.asked(&job, node).into_iter().map(|gpu| node.place(gpu)).collect(),
        };
        let mut nodes: Vec<NodeName> = job.nodes.iter().flat_map(on).collect();
        nodes.sort();
        let elsewhere = job.scheduled_nodes.iter().filter(|n| !index.contains_key(*n)).cloned();
        let mut planned: Vec<NodeName> = elsewhere.collect();
        let claimed = claimed.get(&job.id).into_iter().flatten();
        planned.extend(claimed.map(|(at, gpu)| lent[*at].node.name.place(*gpu)));
        planned.sort();
        (job.nodes, job.scheduled_nodes, job.allocations) = (nodes, planned, Vec::new());
        job.batch_host = self.batch_place(&job);
        job
    }
}

impl Lent {
    /// Gives the jobs on the node their places.
    fn seat(&mut self) {
        for on in &mut self.on {
            on.take_if(|job| !self.holders.iter().any(|h| h.job == *job));
        }
        self.seat_those_sent();
        let mut holders = std::mem::take(&mut self.holders);
        for holder in &mut holders {
            self.sit(holder);
        }
        self.holders = holders;
        self.settle();
    }

    /// Those whose place somebody knows come first: others go where they are not. Of two that were sent to
    /// one place, the one that is there has it, unless it has ended already and cleans up.
    fn seat_those_sent(&mut self) {
        let mut sent: Vec<(bool, bool, JobId, &[usize])> = Vec::new();
        for holder in &self.holders {
            let Some(first) = holder.asked.first() else { continue };
            if holder.asked.iter().all(|place| *place < self.on.len()) {
                let is_there = self.on[*first] == Some(holder.job);
                sent.push((!holder.runs, !is_there, holder.job, &holder.asked));
            }
        }
        sent.sort_unstable();
        let mut fixed = vec![false; self.on.len()];
        for (_, _, job, places) in sent {
            if places.iter().any(|place| fixed[*place]) {
                continue;
            }
            // It has no others.
            self.on.iter_mut().filter(|on| **on == Some(job)).for_each(|on| *on = None);
            for place in places {
                (self.on[*place], fixed[*place]) = (Some(job), true);
            }
        }
    }

    /// Gives a job so many places as it has GPUs; it may have some already. Sets what it holds by that, where
    /// Slurm does not say it.
    fn sit(&mut self, holder: &mut Holder) {
        let mut mine: Vec<usize> =
            (0..self.on.len()).filter(|gpu| self.on[*gpu] == Some(holder.job)).collect();
        let said = holder.holds.as_ref().map(|h| h.gpus.count() as usize);
        let count = match said {
            // One of ours that has its nodes for itself is none that we have sent so.
            None if holder.ours => holder.asked.len().max(1),
            None => self.on.len(),
            Some(said) if holder.runs => said,
            // While a job cleans up its record has no GPUs any more, but its node's has.
            Some(said) => said.max(mine.len()).max(holder.asked.len()),
        };
        self.doubtful |= said.is_none() && holder.ours;
        for gpu in mine.split_off(count.min(mine.len())) {
            self.on[gpu] = None;
        }
        let missing = count - mine.len();
        let is_free = |gpu: &usize| self.on[*gpu].is_none();
        let gets: Vec<usize> = (0..self.on.len()).filter(is_free).take(missing).collect();
        self.doubtful |= gets.len() < missing;
        gets.into_iter().for_each(|gpu| self.on[gpu] = Some(holder.job));
        let kind = self.node.has.gpus.only_type().unwrap_or_default();
        match &mut holder.holds {
            None if holder.ours => holder.holds = Some(self.unit.times(count, kind)),
            Some(holds) if said < Some(count) => {
                holds.gpus = Gpus::of([(kind.to_owned(), u32::try_from(count).unwrap_or(u32::MAX))]);
            }
            _ => {}
        }
    }

    /// Finds out how many of the free places are of use.
    fn settle(&mut self) {
        let mut held = Resources::default();
        for holder in &self.holders {
            held.add(holder.holds.as_ref().unwrap_or(&self.node.has));
        }
        let left = self.node.has.without(&held);
        let is_whole = self.holders.iter().any(|h| h.holds.is_none());
        self.doubtful |= (left.is_none() || self.node.used != held) && !is_whole;
        let usable = left.map_or(0, |left| self.unit.count(&left)) as usize;
        let free: Vec<usize> = (0..self.on.len()).filter(|gpu| self.on[*gpu].is_none()).collect();
        // Whichever main job has most CPUs keeps the last places from being of use.
        let main = self.holders.iter().filter(|h| !h.ours);
        let most = main.max_by_key(|h| h.holds.as_ref().map_or(u32::MAX, |holds| holds.cpus)).map(|h| h.job);
        self.starved = free.into_iter().skip(usable).map(|gpu| (gpu, most)).collect();
    }

    /// Whether no job is on a place, but it is of no use.
    pub(super) fn is_starved(&self, gpu: usize) -> bool {
        self.starved.iter().any(|(starved, _)| *starved == gpu)
    }

    /// The job that is on a place, or a main job that keeps it from being of use.
    fn user(&self, gpu: usize) -> Option<JobId> {
        let starver = || self.starved.iter().find(|(starved, _)| *starved == gpu).and_then(|(_, job)| *job);
        self.on[gpu].or_else(starver)
    }

    /// Whether nobody may say that a free place is one.
    fn is_doubtful(&self, gpu: usize) -> bool {
        self.doubtful || self.is_starved(gpu)
    }
}

/// What one place of a node comes with; `None` where its GPUs cannot be lent one by one.
fn unit(node: &Node) -> Option<Unit> {
    Unit::of(&node.has).filter(|unit| unit.has_gpu && node.has.gpus.only_type().is_some())
}

/// A place as a node.
fn place(lent: &Lent, gpu: usize, jobs: &[Job]) -> Node {
    let node = &lent.node;
    let has = lent.unit.resources(node.has.gpus.only_type().unwrap_or_default());
    let user =
        lent.user(gpu).and_then(|id| jobs.binary_search_by(|j| j.id.cmp(&id)).ok()).map(|at| &jobs[at]);
    Node {
        name: node.name.place(gpu),
        state: state(lent, gpu, user),
        node_type: lent.node_type.clone(),
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
        Some(at) => (0..lent[*at].on.len()).map(|gpu| node.place(gpu)).collect(),
    };
    reservation.nodes = reservation.nodes.iter().flat_map(places).collect();
    reservation
}
