//! A node that is lent in parts, its GPUs or some of its CPUs at a time, and who is on which of them.

use crate::gres;
use infill_model::{
    CpuMemory, GpuCounts, Job, JobId, LendingUnit, Node, NodeState, NodeType, PlaceShare, Resources, UnixTime,
};

/// A place: the node's place among those that are lent, and the number of the part.
pub(super) type PlaceIndex = (usize, usize);

/// A job on a node that is lent.
#[derive(Debug)]
pub(super) struct NodeOccupant {
    pub job: JobId,
    /// Whether it is one of the malleable partition.
    pub ours: bool,
    /// Whether it does more than clean up.
    pub runs: bool,
    /// Whether it is on its way off the node: it cleans up, or Slurm has told it to leave.
    pub leaves: bool,
    /// When its time limit ends it.
    pub end: Option<UnixTime>,
    /// The places that it was sent to.
    pub asked: Vec<usize>,
    /// What it has of the node; `None`: all of it.
    pub holds: Option<Resources>,
}

/// A node that is lent in parts.
#[derive(Debug)]
pub(super) struct LentNode {
    /// The node.
    pub node: Node,
    /// What one place of it comes with.
    pub unit: LendingUnit,
    /// The type of such a place.
    node_type: NodeType,
    /// The job on each place.
    pub on: Vec<Option<JobId>>,
    /// All jobs on it.
    pub holders: Vec<NodeOccupant>,
    /// Places that no job is on, and that are of no use: the CPUs or the memory that belong to them has this
    /// main job, if any has.
    pub starved: Vec<(usize, Option<JobId>)>,
    /// Places that no job is on, and that nobody may be sent to: ours have all CPUs of the node that the
    /// partition may have.
    capped: Vec<usize>,
    /// What no job has of the node, so far as ours may have it; nothing where that is not sure.
    free: CpuMemory,
    /// Whether the records of the node and its jobs contradict each other.
    doubtful: bool,
}

impl LentNode {
    /// A node with this `unit`, and the jobs that were on its places.
    pub fn new(node: Node, unit: LendingUnit, mut on: Vec<Option<JobId>>) -> LentNode {
        on.resize(unit.part_count(&node.has) as usize, None);
        let gres = match node.has.gpus.only_type() {
            Some(kind) if !kind.is_empty() => format!("gpu:{kind}:1"),
            Some(_) => "gpu:1".to_owned(),
            None => String::new(),
        };
        let node_type = gres::node_type(&gres, i64::from(unit.cpus), &node.features);
        let holders = Vec::new();
        let starved = Vec::new();
        let capped = Vec::new();
        let free = CpuMemory::default();
        LentNode { node, unit, node_type, on, holders, starved, capped, free, doubtful: false }
    }

    /// Gives the jobs on the node their places; all of ours together may have so many CPUs.
    pub fn assign_places(&mut self, max_cpus: Option<u32>) {
        for on in &mut self.on {
            on.take_if(|job| !self.holders.iter().any(|h| h.job == *job));
        }
        self.assign_sent_jobs();
        let mut holders = std::mem::take(&mut self.holders);
        for holder in &mut holders {
            self.assign_job(holder);
        }
        self.holders = holders;
        self.find_usable(max_cpus);
    }

    /// Those whose place somebody knows come first: others go where they are not. Of two that were sent to
    /// one place, the one that is there has it, unless it has ended already and cleans up.
    fn assign_sent_jobs(&mut self) {
        let mut sent: Vec<(bool, bool, JobId, &[usize])> = Vec::new();
        for holder in &self.holders {
            let asked = self.places_sent_to(holder);
            let Some(first) = asked.first() else { continue };
            if asked.iter().all(|place| *place < self.on.len()) {
                let is_there = self.on[*first] == Some(holder.job);
                sent.push((!holder.runs, !is_there, holder.job, asked));
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

    /// The places that a job was sent to, by its comment. No more of them than it holds: users write the
    /// comments of their jobs.
    fn places_sent_to<'a>(&self, holder: &'a NodeOccupant) -> &'a [usize] {
        let said = self.reported_places(holder).filter(|_| holder.runs);
        let most = said.map_or(usize::MAX, |said| said.max(self.nearest_places(holder)));
        &holder.asked[..holder.asked.len().min(most)]
    }

    /// Of how many places a job has something, by what it holds; `None` where Slurm does not say it.
    fn reported_places(&self, holder: &NodeOccupant) -> Option<usize> {
        let holds = holder.holds.as_ref()?;
        let count = match self.unit.has_gpu {
            true => holds.gpus.total_count(),
            // Main jobs may share one: all that they leave together counts ([`LentNode::find_usable`]).
            false if !holder.ours => 0,
            // Slurm gives whole cores, so that it may have a CPU more than it asked for.
            false if !holder.asked.is_empty() => self.unit.units_needed(holds).min(holder.asked.len() as u32),
            false => self.unit.units_needed(holds),
        };
        Some(count as usize)
    }

    /// How many places have the CPUs and the memory that a job has.
    fn nearest_places(&self, holder: &NodeOccupant) -> usize {
        holder.holds.as_ref().map_or(0, |holds| self.unit.units_nearest(holds) as usize)
    }

    /// Gives a job so many places as it has GPUs, or CPUs where there are none; it may have some already.
    /// Sets what it holds by that, where Slurm does not say it.
    fn assign_job(&mut self, holder: &mut NodeOccupant) {
        let mut mine: Vec<usize> =
            (0..self.on.len()).filter(|gpu| self.on[*gpu] == Some(holder.job)).collect();
        let said = self.reported_places(holder);
        let count = match said {
            // One of ours that has its nodes for itself is none that we have sent so.
            None if holder.ours => holder.asked.len().max(1),
            None => self.on.len(),
            // A worker with the CPUs or the memory of several has as many, whatever GPUs it asked for.
            Some(said) if holder.runs && holder.ours => {
                said.max(holder.asked.len().min(self.nearest_places(holder)))
            }
            Some(said) if holder.runs => said,
            // While a job cleans up its record has no GPUs any more, but its node's has.
            Some(said) => said.max(mine.len()).max(holder.asked.len()),
        };
        self.doubtful |= said.is_none() && holder.ours;
        for gpu in mine.split_off(count.min(mine.len())) {
            self.on[gpu] = None;
        }
        let missing = count - mine.len();
        let gets: Vec<usize> =
            (0..self.on.len()).filter(|gpu: &usize| self.on[*gpu].is_none()).take(missing).collect();
        self.doubtful |= gets.len() < missing;
        gets.into_iter().for_each(|gpu| self.on[gpu] = Some(holder.job));
        let kind = self.node.has.gpus.only_type().unwrap_or_default();
        match &mut holder.holds {
            None if holder.ours => holder.holds = Some(self.unit.resources_of_units(count, kind)),
            Some(holds) if said < Some(count) && self.unit.has_gpu && !holder.runs => {
                holds.gpus =
                    GpuCounts::from_counts([(kind.to_owned(), u32::try_from(count).unwrap_or(u32::MAX))]);
            }
            _ => {}
        }
    }

    /// Finds out how many of the free places are of use.
    fn find_usable(&mut self, max_cpus: Option<u32>) {
        let mut held = Resources::default();
        let mut cpus_of_ours = 0u32;
        for holder in &self.holders {
            let holds = holder.holds.as_ref().unwrap_or(&self.node.has);
            held.add(holds);
            if holder.ours {
                cpus_of_ours = cpus_of_ours.saturating_add(holds.cpus);
            }
        }
        let left = self.node.has.checked_sub(&held);
        let is_whole = self.holders.iter().any(|h| h.holds.is_none());
        self.doubtful |= (left.is_none() || self.node.used != held) && !is_whole;
        let may_have = max_cpus.map_or(u32::MAX, |most| most.saturating_sub(cpus_of_ours));
        let usable = |most: u32| {
            let left = left.clone().map(|left| Resources { cpus: left.cpus.min(most), ..left });
            left.map_or(0, |left| self.unit.units_in(&left)) as usize
        };
        self.free = match &left {
            Some(left) if !self.doubtful => {
                CpuMemory { cpus: left.cpus.min(may_have), memory_mib: left.memory_mib }
            }
            _ => CpuMemory::default(),
        };
        let (usable, allowed) = (usable(u32::MAX), usable(may_have));
        let free: Vec<usize> = (0..self.on.len()).filter(|gpu| self.on[*gpu].is_none()).collect();
        // Whichever main job has most CPUs keeps the last places from being of use.
        let main = self.holders.iter().filter(|h| !h.ours);
        let most = main.max_by_key(|h| h.holds.as_ref().map_or(u32::MAX, |holds| holds.cpus)).map(|h| h.job);
        self.capped = free.iter().take(usable).skip(allowed).copied().collect();
        self.starved = free.into_iter().skip(usable).map(|gpu| (gpu, most)).collect();
    }

    /// Whether no job is on a place, and somebody may be sent there.
    pub fn is_free(&self, gpu: usize) -> bool {
        self.on[gpu].is_none() && !self.is_starved(gpu) && !self.capped.contains(&gpu)
    }

    /// Whether no job is on a place, but it is of no use.
    fn is_starved(&self, gpu: usize) -> bool {
        self.starved.iter().any(|(starved, _)| *starved == gpu)
    }

    /// The job that is on a place, or a main job that keeps it from being of use.
    pub fn place_user(&self, gpu: usize) -> Option<JobId> {
        self.on[gpu]
            .or_else(|| self.starved.iter().find(|(starved, _)| *starved == gpu).and_then(|(_, job)| *job))
    }

    /// Whether nobody may say that a free place is one.
    fn is_doubtful(&self, gpu: usize) -> bool {
        self.doubtful || self.is_starved(gpu)
    }

    /// A place as a node.
    pub fn place_as_node(&self, gpu: usize, jobs: &[Job]) -> Node {
        let node = &self.node;
        let has = self.unit.unit_resources(node.has.gpus.only_type().unwrap_or_default());
        let user = self
            .place_user(gpu)
            .and_then(|id: JobId| jobs.binary_search_by(|j| j.id.cmp(&id)).ok().map(|at| &jobs[at]));
        Node {
            name: node.name.place_name(gpu),
            state: self.place_state(gpu, user),
            node_type: self.node_type.clone(),
            used: if user.is_some() { has.clone() } else { Resources::default() },
            has,
            share: Some(self.place_share(gpu)),
            ..node.clone()
        }
    }

    /// What a place has of its node's CPUs and memory.
    fn place_share(&self, gpu: usize) -> PlaceShare {
        let own = CpuMemory { cpus: self.unit.cpus, memory_mib: self.unit.memory_mib };
        let held = self.on[gpu].map_or(CpuMemory::default(), |job| self.held_share(gpu, job));
        PlaceShare { own, held, free: self.free }
    }

    /// The part of what a job of ours, or a main job that wings extend, has of the node that counts as this
    /// place's: an equal one, and at the first of its places what is left over.
    fn held_share(&self, gpu: usize, job: JobId) -> CpuMemory {
        let ours = self.holders.iter().find(|h| h.job == job && (h.ours || !h.asked.is_empty()));
        let Some(holds) = ours.and_then(|h| h.holds.as_ref()) else { return CpuMemory::default() };
        let mine: Vec<usize> = (0..self.on.len()).filter(|at| self.on[*at] == Some(job)).collect();
        let count = u32::try_from(mine.len()).unwrap_or(u32::MAX).max(1);
        let is_first = u32::from(mine.first() == Some(&gpu));
        CpuMemory {
            cpus: holds.cpus / count + is_first * (holds.cpus % count),
            memory_mib: holds.memory_mib / u64::from(count)
                + u64::from(is_first) * (holds.memory_mib % u64::from(count)),
        }
    }

    /// The node's words, but for those that tell who is on it. A free place of a node whose records
    /// contradict each other is UNKNOWN: it is waited for.
    fn place_state(&self, gpu: usize, user: Option<&Job>) -> NodeState {
        let mut state = self.node.state.clone();
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
        if user.is_none() && self.is_doubtful(gpu) {
            state.insert("UNKNOWN");
        }
        if self.capped.contains(&gpu) {
            state.insert(NodeState::CAPPED);
        }
        state
    }
}
