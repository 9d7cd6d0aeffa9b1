//! CPUs and memory of hosts, where workers take more of them than their places come with.
//!
//! A place's share is for the worker on it. What free places, and workers that need less, leave of a host may
//! go to a worker there that needs more. So where any does, each host has a room in each step: the shares of
//! its places that last, and what is left over besides. What workers on the host take together is no more.
//!
//! Counts know types of nodes, not hosts. For each type there is a row on the total, and one for each of the
//! largest needs d: Σ ⌊what a worker takes ÷ d⌋ ≤ Σ over hosts ⌊room ÷ d⌋. Both follow from what holds on
//! each host, for ⌊a⌋ + ⌊b⌋ ≤ ⌊a + b⌋. On one host the total is all that there is to CPUs, and to memory; on
//! several the rows are necessary, and not enough. So laying goes host by host, and a job gets fewer workers
//! where they do not fit.
//!
//! What runs is never in the way of itself: rows leave room for what is held now.

use rustc_hash::FxHashMap;

use super::problem::PlanningProblem;
use super::slots::NodeSlot;
use super::steps::TimeSteps;
use super::worker_places::{WorkerPlaces, granted_share};
use infill_model::{CpuMemory, Gap, JobId, MalleableJob, NodeName, NodeType, PlanNeeds};

/// Most needs of a type of nodes that have a row of their own, of CPUs and of memory each.
const MOST_NEEDS: usize = 4;

/// A resource of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostResource {
    /// CPUs.
    Cpus,
    /// Memory, MiB.
    Memory,
}

impl HostResource {
    /// How much of it this is.
    pub fn amount_in(self, portion: CpuMemory) -> u64 {
        match self {
            HostResource::Cpus => portion.cpus.into(),
            HostResource::Memory => portion.memory_mib,
        }
    }
}

/// One host.
#[derive(Clone, Debug)]
pub(crate) struct HostRoom {
    /// Index of its type.
    pub node_type: usize,
    /// What all workers on it may take together in each step, if one of them takes more than its own.
    pub room: Vec<CpuMemory>,
    /// The same in the rows of counts: no less than what jobs hold there now.
    pub counted: Vec<CpuMemory>,
    /// Whether a job in the middle of a change takes more there than its own.
    pub is_tight: bool,
}

/// The hosts, and what is counted of them.
#[derive(Clone, Debug)]
pub(crate) struct HostShares {
    /// The host of each slot.
    pub host: Vec<usize>,
    /// All hosts. One whose CPUs and memory are not counted has room for all.
    pub hosts: Vec<HostRoom>,
    /// For each type the least that a place comes with; nothing where that is not counted.
    pub least: Vec<CpuMemory>,
    /// The rows: type, resource, and the amount that counts as one.
    pub rows: Vec<(usize, HostResource, u64)>,
}

/// Has room for all.
const ANY: CpuMemory = CpuMemory { cpus: u32::MAX, memory_mib: u64::MAX };

impl HostShares {
    /// Those of a problem; `None` where no plan of any job needs more than its places come with.
    pub fn from_problem(
        problem: &PlanningProblem<'_>,
        steps: &TimeSteps,
        types: &[NodeType],
        slots: &[NodeSlot<'_>],
    ) -> Option<HostShares> {
        let least = min_shares(types, slots);
        let rows = share_rows(problem, types, slots, &least);
        if rows.is_empty() {
            return None;
        }
        let mut numbers = FxHashMap::default();
        let host = slots.iter().map(|slot| {
            let next = numbers.len();
            *numbers.entry(slot.gap.node.host()).or_insert(next)
        });
        let host: Vec<usize> = host.collect();
        let mut gaps: Vec<Vec<&Gap>> = vec![Vec::new(); numbers.len()];
        for gap in &problem.gaps.gaps {
            if let Some(number) = numbers.get(&gap.node.host()) {
                gaps[*number].push(gap);
            }
        }
        let mut own: Vec<Vec<&NodeSlot<'_>>> = vec![Vec::new(); numbers.len()];
        slots.iter().zip(&host).for_each(|(slot, number)| own[*number].push(slot));
        let mut held: Vec<Vec<HeldWorker>> = vec![Vec::new(); numbers.len()];
        for job in problem.jobs {
            for (name, number) in
                job.held.iter().filter_map(|h| Some((&h.node, *numbers.get(&h.node.host())?)))
            {
                held[number].extend(HeldWorker::for_node(problem, steps, job, name));
            }
        }
        let all = own.iter().zip(&gaps).zip(&held);
        let hosts = all.map(|((own, gaps), held)| host_room(steps, own, gaps, held)).collect();
        Some(HostShares { host, hosts, least, rows })
    }

    /// How many units of a resource all hosts of a type have in a step, each by itself.
    pub fn max_units(&self, node_type: usize, part: HostResource, unit: u64, step: usize) -> u64 {
        let hosts = self.hosts.iter().filter(|host| host.node_type == node_type);
        hosts.map(|host| part.amount_in(host.counted[step]) / unit.max(1)).fold(0, u64::saturating_add)
    }
}

/// A worker that a job has.
#[derive(Clone, Copy, Debug)]
struct HeldWorker {
    worker: WorkerPlaces,
    /// What it takes, or may take at any time.
    granted: CpuMemory,
    /// Number of steps that all of its places last through.
    lasts: usize,
    /// Whether its job is in the middle of a change.
    is_busy: bool,
}

impl HeldWorker {
    fn for_node(
        problem: &PlanningProblem<'_>,
        steps: &TimeSteps,
        job: &MalleableJob,
        name: &NodeName,
    ) -> Option<HeldWorker> {
        let gaps = problem.gaps_of(name).filter(|gaps| gaps.iter().all(|g| g.holder == Some(job.id)))?;
        let node_type = &gaps.first()?.node_type;
        let worker = WorkerPlaces::from_gaps(gaps.iter().copied())?;
        let lasts = gaps.iter().map(|gap| steps.steps_through(gap.usable_until)).min().unwrap_or(0);
        Some(HeldWorker {
            worker,
            granted: granted_share(job, node_type, &worker),
            lasts,
            is_busy: problem.is_busy(job),
        })
    }
}

/// The least that a place of each type comes with.
fn min_shares(types: &[NodeType], slots: &[NodeSlot<'_>]) -> Vec<CpuMemory> {
    let mut least: Vec<Option<CpuMemory>> = vec![None; types.len()];
    for slot in slots {
        let own = slot.gap.share.map_or(CpuMemory::default(), |share| share.own);
        let known = &mut least[slot.node_type];
        *known = Some(known.map_or(own, |known| known.min_each(own)));
    }
    least.into_iter().map(Option::unwrap_or_default).collect()
}

/// The rows: of each type and resource of which some worker may take more than its places come with.
fn share_rows(
    problem: &PlanningProblem<'_>,
    types: &[NodeType],
    slots: &[NodeSlot<'_>],
    least: &[CpuMemory],
) -> Vec<(usize, HostResource, u64)> {
    let mut rows = Vec::new();
    for (number, node_type) in types.iter().enumerate() {
        let own = least[number];
        if own.cpus == 0 {
            continue;
        }
        let takes = |job: &MalleableJob, needs: PlanNeeds| {
            let own = own.scaled_by(job.block.max(1));
            (needs.host_portion(own), own)
        };
        let on_type = |job: &'_ MalleableJob| {
            let fits = |t: &Option<NodeType>| t.as_ref().is_none_or(|t| t == node_type);
            let rates = job.rates.iter().filter(|rate| fits(&rate.node_type));
            rates.map(|rate| takes(job, rate.needs)).collect::<Vec<_>>()
        };
        let all: Vec<(CpuMemory, CpuMemory)> = problem.jobs.iter().flat_map(on_type).collect();
        let of_type = slots.iter().filter(|slot| slot.node_type == number).count() as u64;
        for part in [HostResource::Cpus, HostResource::Memory] {
            let over = all.iter().filter(|(needs, own)| part.amount_in(*needs) > part.amount_in(*own));
            let mut needs: Vec<u64> = over.map(|(needs, _)| part.amount_in(*needs)).collect();
            needs.sort_unstable_by(|a, b| b.cmp(a));
            needs.dedup();
            needs.truncate(MOST_NEEDS);
            if needs.is_empty() {
                continue;
            }
            // A count of bytes must not outgrow a row.
            let is_large = part.amount_in(own).saturating_mul(of_type) > u64::from(u32::MAX / 4);
            rows.push((number, part, if is_large { 1024 } else { 1 }));
            rows.extend(needs.into_iter().map(|need| (number, part, need)));
        }
    }
    rows
}

/// A host of these `slots` and `gaps`, on which are such workers.
fn host_room(steps: &TimeSteps, slots: &[&NodeSlot<'_>], gaps: &[&Gap], held: &[HeldWorker]) -> HostRoom {
    let node_type = slots.first().map_or(0, |slot| slot.node_type);
    let all: Option<Vec<_>> = gaps.iter().map(|gap| gap.share).collect();
    let Some(all) = all.filter(|all| !all.is_empty()) else {
        let any = vec![ANY; steps.len()];
        return HostRoom { node_type, room: any.clone(), counted: any, is_tight: false };
    };
    let total = CpuMemory::sum_all(all.iter().map(|share| share.held)).sum_with(all[0].free);
    let planned: Vec<JobId> = slots.iter().filter_map(|slot| slot.gap.holder).collect();
    let foreign = gaps.iter().filter(|gap| gap.holder.is_some_and(|h| !planned.contains(&h)));
    // What those take beyond their own whom nobody moves now.
    let of_foreign = foreign.filter_map(|gap| gap.share).map(|share| share.held.saturating_sub(share.own));
    let busy = held.iter().filter(|held| held.is_busy);
    let of_busy = busy.clone().map(|held| held.granted.saturating_sub(held.worker.backed_share()));
    let beyond = CpuMemory::sum_all(of_foreign.chain(of_busy));
    let spoken = CpuMemory::sum_all(all.iter().map(|share| share.own)).sum_with(beyond);
    // From the first planned start on nobody knows what is left besides the places that stay.
    let is_claimed = |step: usize| {
        gaps.iter().any(|gap| gap.vacate_by.is_some() && steps.steps_through(gap.usable_until) <= step)
    };
    let own = |step: usize| {
        let last = slots.iter().filter(|slot| slot.lasts > step).filter_map(|slot| slot.gap.share);
        CpuMemory::sum_all(last.map(|share| share.own))
    };
    let room = |step: usize| {
        let left = own(step).sum_with(total).saturating_sub(spoken);
        if is_claimed(step) { left.min_each(own(step)) } else { left }
    };
    let there = |step: usize| {
        let stay = held.iter().filter(|held| !held.is_busy && held.lasts > step);
        CpuMemory::sum_all(stay.map(|held| held.granted))
    };
    let all_steps = || 0..steps.len();
    HostRoom {
        node_type,
        room: all_steps().map(room).collect(),
        counted: all_steps().map(|step| room(step).max_each(there(step))).collect(),
        is_tight: busy.clone().any(|held| !held.granted.is_within(held.worker.backed_share())),
    }
}
