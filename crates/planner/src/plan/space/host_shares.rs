//! CPUs and memory of hosts, where workers take more of them than their places come with.
//!
//! A place's share is for the worker on it. What free places, and workers that need less, leave of a host may
//! go to a worker there that needs more. So if any worker needs more, each host has a capacity in each step:
//! the shares of its places that last, and what is left over besides. All workers on the host together take
//! at most that.
//!
//! Counts know types of nodes, not hosts. Each type has a row for the total, and one for each of the largest
//! needs d: Σ ⌊what a worker takes ÷ d⌋ ≤ Σ over hosts ⌊capacity ÷ d⌋. Both follow from the limit on each
//! host, because ⌊a⌋ + ⌊b⌋ ≤ ⌊a + b⌋. On one host the total is the exact limit for CPUs, and for memory. On
//! several hosts the rows are necessary, but not sufficient. So placement goes host by host, and a job gets
//! fewer workers where they do not fit.
//!
//! Running workers never stand in their own way: rows have capacity for all present workers.

use rustc_hash::FxHashMap;

use super::problem::PlanningProblem;
use super::slots::NodeSlot;
use super::steps::TimeSteps;
use super::worker_places::{WorkerPlaces, granted_share};
use infill_model::{CpuMemory, Gap, JobId, MalleableJob, NodeName, NodeType};

/// The largest number of needs for which a node type has rows of their own; one limit for CPUs, one for
/// memory.
const MAX_NEEDS: usize = 4;

/// A resource of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostResource {
    /// CPUs.
    Cpus,
    /// Memory, MiB.
    Memory,
}

impl HostResource {
    /// The amount of this resource in a portion.
    pub fn amount_in(self, portion: CpuMemory) -> u64 {
        match self {
            HostResource::Cpus => portion.cpus.into(),
            HostResource::Memory => portion.memory_mib,
        }
    }
}

/// The capacity of one host.
#[derive(Clone, Debug)]
pub(crate) struct HostCapacity {
    /// Index of its node type.
    pub node_type: usize,
    /// For each step what all workers on it may take together, if one of them takes more than its places come
    /// with.
    pub capacity: Vec<CpuMemory>,
    /// The capacity in the rows of counts: as `capacity`, but at least what jobs hold there now.
    pub counted: Vec<CpuMemory>,
    /// Whether a job in the middle of a change takes more there than its places come with.
    pub is_tight: bool,
}

/// All hosts with the rows that count their CPUs and memory.
#[derive(Clone, Debug)]
pub(crate) struct HostShares {
    /// The host of each slot.
    pub host: Vec<usize>,
    /// All hosts. A host whose CPUs and memory are not counted has unlimited capacity.
    pub hosts: Vec<HostCapacity>,
    /// For each type the smallest share of a place; nothing where shares are not counted.
    pub smallest_shares: Vec<CpuMemory>,
    /// The rows: type, resource, and the amount that counts as one unit.
    pub rows: Vec<(usize, HostResource, u64)>,
}

/// Unlimited capacity.
const ANY: CpuMemory = CpuMemory { cpus: u32::MAX, memory_mib: u64::MAX };

impl HostShares {
    /// The hosts of a problem; `None` where no plan of any job needs more than its places come with.
    pub fn from_problem(
        problem: &PlanningProblem<'_>,
        steps: &TimeSteps,
        types: &[NodeType],
        slots: &[NodeSlot<'_>],
    ) -> Option<HostShares> {
        let smallest_shares = min_shares(types, slots);
        let rows = share_rows(problem, types, slots, &smallest_shares);
        if rows.is_empty() {
            return None;
        }
        let mut numbers = FxHashMap::default();
        let mut host = Vec::with_capacity(slots.len());
        for slot in slots {
            let next = numbers.len();
            host.push(*numbers.entry(slot.gap.node.host()).or_insert(next));
        }
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
        let hosts = all.map(|((own, gaps), held)| host_capacity(steps, own, gaps, held)).collect();
        Some(HostShares { host, hosts, smallest_shares, rows })
    }

    /// Units of a resource on all hosts of a type in a step. Each host's capacity is rounded down by itself.
    pub fn max_units(&self, node_type: usize, host_resource: HostResource, unit: u64, step: usize) -> u64 {
        let hosts = self.hosts.iter().filter(|host| host.node_type == node_type);
        hosts
            .map(|host| host_resource.amount_in(host.counted[step]) / unit.max(1))
            .fold(0, u64::saturating_add)
    }
}

/// A worker of a job that runs.
#[derive(Clone, Copy, Debug)]
struct HeldWorker {
    worker: WorkerPlaces,
    /// What it takes, or may take at any time without asking.
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

/// For each type the smallest share of a place.
fn min_shares(types: &[NodeType], slots: &[NodeSlot<'_>]) -> Vec<CpuMemory> {
    let mut least: Vec<Option<CpuMemory>> = vec![None; types.len()];
    for slot in slots {
        let own = slot.gap.share.map_or(CpuMemory::default(), |share| share.own);
        let smallest = &mut least[slot.node_type];
        *smallest = Some(smallest.map_or(own, |smallest| smallest.min_each(own)));
    }
    least.into_iter().map(Option::unwrap_or_default).collect()
}

/// The rows: one group for each type and resource where some worker may take more than its places come with.
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
        let mut all: Vec<(CpuMemory, CpuMemory)> = Vec::new();
        for job in problem.jobs {
            let own = own.scaled_by(job.places_per_node.max(1));
            let rates = job.rates.iter().filter(|r| r.node_type.as_ref().is_none_or(|t| t == node_type));
            all.extend(rates.map(|rate| (rate.needs.host_portion(own), own)));
        }
        let of_type = slots.iter().filter(|slot| slot.node_type == number).count() as u64;
        for host_resource in [HostResource::Cpus, HostResource::Memory] {
            let over = all
                .iter()
                .filter(|(needs, own)| host_resource.amount_in(*needs) > host_resource.amount_in(*own));
            let mut needs: Vec<u64> = over.map(|(needs, _)| host_resource.amount_in(*needs)).collect();
            needs.sort_unstable_by(|a, b| b.cmp(a));
            needs.dedup();
            needs.truncate(MAX_NEEDS);
            if needs.is_empty() {
                continue;
            }
            // A total in MiB must not exceed what a row can count.
            let is_large = host_resource.amount_in(own).saturating_mul(of_type) > u64::from(u32::MAX / 4);
            rows.push((number, host_resource, if is_large { 1024 } else { 1 }));
            rows.extend(needs.into_iter().map(|need| (number, host_resource, need)));
        }
    }
    rows
}

/// The capacity of a host with these `slots` and `gaps`, on which the `held` workers run.
fn host_capacity(
    steps: &TimeSteps,
    slots: &[&NodeSlot<'_>],
    gaps: &[&Gap],
    held: &[HeldWorker],
) -> HostCapacity {
    let node_type = slots.first().map_or(0, |slot| slot.node_type);
    let shares: Option<Vec<_>> = gaps.iter().map(|gap| gap.share).collect();
    let Some(shares) = shares.filter(|shares| !shares.is_empty()) else {
        let any = vec![ANY; steps.len()];
        return HostCapacity { node_type, capacity: any.clone(), counted: any, is_tight: false };
    };
    let total = CpuMemory::sum_all(shares.iter().map(|share| share.held)).sum_with(shares[0].free);
    let planned: Vec<JobId> = slots.iter().filter_map(|slot| slot.gap.holder).collect();
    let foreign = gaps.iter().filter(|gap| gap.holder.is_some_and(|h| !planned.contains(&h)));
    // What workers that this plan does not move take beyond their places.
    let of_foreign = foreign.filter_map(|gap| gap.share).map(|share| share.held.saturating_sub(share.own));
    let busy = held.iter().filter(|held| held.is_busy);
    let of_busy = busy.clone().map(|held| held.granted.saturating_sub(held.worker.backed_share()));
    let beyond = CpuMemory::sum_all(of_foreign.chain(of_busy));
    let assigned = CpuMemory::sum_all(shares.iter().map(|share| share.own)).sum_with(beyond);
    let mut capacity = Vec::with_capacity(steps.len());
    let mut counted = Vec::with_capacity(steps.len());
    for step in 0..steps.len() {
        let lasting = slots.iter().filter(|slot| slot.lasts > step).filter_map(|slot| slot.gap.share);
        let own = CpuMemory::sum_all(lasting.map(|share| share.own));
        let left = own.sum_with(total).saturating_sub(assigned);
        // From the first planned start on, only the places that stay are certain.
        let is_claimed =
            gaps.iter().any(|gap| gap.vacate_by.is_some() && steps.steps_through(gap.usable_until) <= step);
        let of_step = if is_claimed { left.min_each(own) } else { left };
        let staying = held.iter().filter(|held| !held.is_busy && held.lasts > step);
        capacity.push(of_step);
        counted.push(of_step.max_each(CpuMemory::sum_all(staying.map(|held| held.granted))));
    }
    let is_tight = busy.clone().any(|held| !held.granted.is_within(held.worker.backed_share()));
    HostCapacity { node_type, capacity, counted, is_tight }
}
