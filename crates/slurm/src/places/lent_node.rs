//! A node that is lent in parts, by single GPUs or by some CPUs each, and the jobs on these parts.

use crate::gres;
use infill_model::{
    CpuMemory, GpuCounts, Job, JobId, LendingUnit, Node, NodeState, NodeType, PlaceShare, Resources, UnixTime,
};

/// A place: the index of the node among the lent nodes, and the number of the part.
pub(super) type PlaceIndex = (usize, usize);

/// A job on a node that is lent.
#[derive(Debug)]
pub(super) struct NodeOccupant {
    pub job: JobId,
    /// Whether it is in the malleable partition.
    pub ours: bool,
    /// Whether it runs, and is not just cleaning up.
    pub runs: bool,
    /// Whether it is leaving the node: it is cleaning up, or Slurm preempts it.
    pub leaves: bool,
    /// When its time limit ends it.
    pub end: Option<UnixTime>,
    /// The places that it was sent to.
    pub asked: Vec<usize>,
    /// The resources that it has on the node; `None` if it has all of them.
    pub holds: Option<Resources>,
}

/// A node that is lent in parts.
#[derive(Debug)]
pub(super) struct LentNode {
    /// The node as Slurm shows it.
    pub node: Node,
    /// The resources of one place.
    pub unit: LendingUnit,
    /// The node type of one place.
    node_type: NodeType,
    /// The job on each place.
    pub on: Vec<Option<JobId>>,
    /// All jobs on the node.
    pub holders: Vec<NodeOccupant>,
    /// Vacant places that are unusable because jobs have their CPUs or memory. Each comes with the main job
    /// that has most CPUs, if there is one.
    pub starved: Vec<(usize, Option<JobId>)>,
    /// Vacant places that stay empty because malleable jobs have all CPUs that the partition may have on this
    /// node.
    capped: Vec<usize>,
    /// The free resources that malleable jobs may use; none where the records are doubtful.
    free: CpuMemory,
    /// Whether the records of the node and its jobs contradict each other.
    doubtful: bool,
}

impl LentNode {
    /// A node that is lent in parts of this `unit`. `on` has the jobs that were on its places.
    pub fn new(node: Node, unit: LendingUnit, mut on: Vec<Option<JobId>>) -> LentNode {
        on.resize(unit.part_count(&node.has) as usize, None);
        let gres = match node.has.gpus.only_type() {
            Some(kind) if !kind.is_empty() => format!("gpu:{kind}:1"),
            Some(_) => "gpu:1".to_owned(),
            None => String::new(),
        };
        let node_type = gres::node_type(&gres, i64::from(unit.cpus), &node.features);
        LentNode {
            node,
            unit,
            node_type,
            on,
            holders: Vec::new(),
            starved: Vec::new(),
            capped: Vec::new(),
            free: CpuMemory::default(),
            doubtful: false,
        }
    }

    /// Gives the jobs on the node their places. All malleable jobs together may have `max_cpus` CPUs.
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

    /// Assigns the jobs that were sent to named places, before all others. If two jobs were sent to one
    /// place, the one that is there keeps it, unless it has ended and is cleaning up.
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
        let mut is_assigned = vec![false; self.on.len()];
        for (_, _, job, places) in sent {
            if places.iter().any(|place| is_assigned[*place]) {
                continue;
            }
            // It leaves the places that it had before.
            self.on.iter_mut().filter(|on| **on == Some(job)).for_each(|on| *on = None);
            for place in places {
                self.on[*place] = Some(job);
                is_assigned[*place] = true;
            }
        }
    }

    /// The places that a job was sent to, by its comment, but not more than its resources amount to: users
    /// write the comments of their jobs.
    fn places_sent_to<'a>(&self, holder: &'a NodeOccupant) -> &'a [usize] {
        let reported = self.reported_places(holder).filter(|_| holder.runs);
        let limit = reported.map_or(usize::MAX, |count| count.max(self.nearest_places(holder)));
        &holder.asked[..holder.asked.len().min(limit)]
    }

    /// Number of places that a job has at least in part, by its resources; `None` where Slurm does not report
    /// them.
    fn reported_places(&self, holder: &NodeOccupant) -> Option<usize> {
        let holds = holder.holds.as_ref()?;
        let count = if self.unit.has_gpu {
            holds.gpus.total_count()
        } else if !holder.ours {
            // Main jobs may share a place: only what they leave together counts ([`LentNode::find_usable`]).
            0
        } else if holder.asked.is_empty() {
            self.unit.units_needed(holds)
        } else {
            // Slurm allocates whole cores, so a job may have one CPU more than it asked for.
            self.unit.units_needed(holds).min(holder.asked.len() as u32)
        };
        Some(count as usize)
    }

    /// Number of places whose CPUs and memory come nearest to those of a job.
    fn nearest_places(&self, holder: &NodeOccupant) -> usize {
        holder.holds.as_ref().map_or(0, |holds| self.unit.units_nearest(holds) as usize)
    }

    /// Gives a job as many places as it has GPUs, or CPUs where there are no GPUs. It may have some already.
    /// Sets the resources that it holds accordingly, where Slurm does not report them.
    fn assign_job(&mut self, holder: &mut NodeOccupant) {
        let mut places: Vec<usize> =
            (0..self.on.len()).filter(|gpu| self.on[*gpu] == Some(holder.job)).collect();
        let reported = self.reported_places(holder);
        let count = match reported {
            // infill does not launch malleable jobs with whole nodes here, so count the places it was sent
            // to.
            None if holder.ours => holder.asked.len().max(1),
            None => self.on.len(),
            // A worker with the CPUs or the memory of several places has them all, whatever GPUs it asked
            // for.
            Some(reported) if holder.runs && holder.ours => {
                reported.max(holder.asked.len().min(self.nearest_places(holder)))
            }
            Some(reported) if holder.runs => reported,
            // While a job is cleaning up, its record has no GPUs any more, but its node's record still has.
            Some(reported) => reported.max(places.len()).max(holder.asked.len()),
        };
        self.doubtful |= reported.is_none() && holder.ours;
        for gpu in places.split_off(count.min(places.len())) {
            self.on[gpu] = None;
        }
        let missing = count - places.len();
        let vacant: Vec<usize> =
            (0..self.on.len()).filter(|gpu| self.on[*gpu].is_none()).take(missing).collect();
        self.doubtful |= vacant.len() < missing;
        for gpu in vacant {
            self.on[gpu] = Some(holder.job);
        }
        let kind = self.node.has.gpus.only_type().unwrap_or_default();
        match &mut holder.holds {
            None if holder.ours => holder.holds = Some(self.unit.resources_of_units(count, kind)),
            Some(holds) if reported < Some(count) && self.unit.has_gpu && !holder.runs => {
                holds.gpus =
                    GpuCounts::from_counts([(kind.to_owned(), u32::try_from(count).unwrap_or(u32::MAX))]);
            }
            _ => {}
        }
    }

    /// Number of places for which these resources suffice.
    fn usable_places(&self, resources: Option<&Resources>) -> usize {
        resources.map_or(0, |resources| self.unit.units_in(resources) as usize)
    }

    /// Determines how many of the vacant places are usable.
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
        let cpus_allowed = max_cpus.map_or(u32::MAX, |limit| limit.saturating_sub(cpus_of_ours));
        let left_for_ours = left.clone().map(|left| Resources { cpus: left.cpus.min(cpus_allowed), ..left });
        self.free = match &left_for_ours {
            Some(left) if !self.doubtful => CpuMemory { cpus: left.cpus, memory_mib: left.memory_mib },
            _ => CpuMemory::default(),
        };
        let usable = self.usable_places(left.as_ref());
        let allowed = self.usable_places(left_for_ours.as_ref());
        let vacant: Vec<usize> = (0..self.on.len()).filter(|gpu| self.on[*gpu].is_none()).collect();
        // The main job with most CPUs counts as the user of the unusable places.
        let main_jobs = self.holders.iter().filter(|h| !h.ours);
        let largest =
            main_jobs.max_by_key(|h| h.holds.as_ref().map_or(u32::MAX, |holds| holds.cpus)).map(|h| h.job);
        self.capped = vacant.iter().take(usable).skip(allowed).copied().collect();
        self.starved = vacant.into_iter().skip(usable).map(|gpu| (gpu, largest)).collect();
    }

    /// Whether a place is vacant and infill may send a job there.
    pub fn is_free(&self, gpu: usize) -> bool {
        self.on[gpu].is_none() && !self.is_starved(gpu) && !self.capped.contains(&gpu)
    }

    /// Whether a place is vacant but unusable.
    fn is_starved(&self, gpu: usize) -> bool {
        self.starved.iter().any(|(starved, _)| *starved == gpu)
    }

    /// The job that is on a place, or the main job that makes it unusable.
    pub fn place_user(&self, gpu: usize) -> Option<JobId> {
        if self.on[gpu].is_some() {
            return self.on[gpu];
        }
        let (_, job) = self.starved.iter().find(|(starved, _)| *starved == gpu)?;
        *job
    }

    /// Whether a vacant place cannot be relied on.
    fn is_doubtful(&self, gpu: usize) -> bool {
        self.doubtful || self.is_starved(gpu)
    }

    /// A place as a node.
    pub fn place_as_node(&self, gpu: usize, jobs: &[Job]) -> Node {
        let node = &self.node;
        let has = self.unit.unit_resources(node.has.gpus.only_type().unwrap_or_default());
        let user = self
            .place_user(gpu)
            .and_then(|id| jobs.binary_search_by(|j| j.id.cmp(&id)).ok().map(|at| &jobs[at]));
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

    /// The CPUs and the memory of a place: its own share, what its job holds, and what is free on the node.
    fn place_share(&self, gpu: usize) -> PlaceShare {
        let own = CpuMemory { cpus: self.unit.cpus, memory_mib: self.unit.memory_mib };
        let held = self.on[gpu].map_or(CpuMemory::default(), |job| self.held_share(gpu, job));
        PlaceShare { own, held, free: self.free }
    }

    /// The part of a job's resources on the node that counts for this place. Each of the job's places gets an
    /// equal part, and the first one also the remainder. Nothing for a main job without wings.
    fn held_share(&self, gpu: usize, job: JobId) -> CpuMemory {
        let holder = self.holders.iter().find(|h| h.job == job && (h.ours || !h.asked.is_empty()));
        let Some(holds) = holder.and_then(|h| h.holds.as_ref()) else { return CpuMemory::default() };
        let places: Vec<usize> = (0..self.on.len()).filter(|at| self.on[*at] == Some(job)).collect();
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX).max(1);
        let is_first = u32::from(places.first() == Some(&gpu));
        CpuMemory {
            cpus: holds.cpus / count + is_first * (holds.cpus % count),
            memory_mib: holds.memory_mib / u64::from(count)
                + u64::from(is_first) * (holds.memory_mib % u64::from(count)),
        }
    }

    /// The state words of the node, except those for its use, which each place has separately. A vacant place
    /// of a node with contradictory records is UNKNOWN, so that infill waits for a better snapshot.
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
