//! CPUs and memory that workers take of each host during placement.
//!
//! Where every worker keeps to what its places come with, or to what it has, the host needs no limit. Where
//! one takes more, all workers on the host together must keep within its capacity.

use super::placement_request::NodeSlots;
use super::worker_reservation::WorkerReservation;
use crate::plan::space::{
    decision::{DecisionSpace, JobSpace},
    host_shares::HostShares,
    job_option::JobOption,
    worker_places::granted_share,
};
use infill_model::CpuMemory;

/// What is taken of all hosts.
#[derive(Clone, Debug)]
pub(crate) struct HostBudget<'a> {
    shares: &'a HostShares,
    hosts: Vec<HostUse>,
}

/// What is taken of one host.
#[derive(Clone, Debug, Default)]
struct HostUse {
    taken: CpuMemory,
    /// Whether a worker takes more than its places come with.
    is_tight: bool,
}

impl<'a> HostBudget<'a> {
    /// A budget before any worker takes something.
    pub fn new(shares: &'a HostShares) -> HostBudget<'a> {
        let mut hosts = Vec::with_capacity(shares.hosts.len());
        for host in &shares.hosts {
            hosts.push(HostUse { taken: CpuMemory::default(), is_tight: host.is_tight });
        }
        HostBudget { shares, hosts }
    }

    /// The host of a slot.
    pub fn host_of(&self, slot: usize) -> usize {
        self.shares.host[slot]
    }

    /// Number of steps, from the first, in which the host has capacity for one more worker.
    pub fn fitting_steps(&self, host: usize, more: WorkerReservation) -> usize {
        let in_use = &self.hosts[host];
        let capacity = &self.shares.hosts[host].capacity;
        if !in_use.is_tight && !more.exceeds_backed() {
            return capacity.len();
        }
        let all = in_use.taken.sum_with(more.takes);
        capacity.iter().take_while(|capacity| all.is_within(**capacity)).count()
    }

    /// Takes what one more worker takes.
    pub fn reserve_worker(&mut self, host: usize, more: WorkerReservation) {
        let in_use = &mut self.hosts[host];
        in_use.taken = in_use.taken.sum_with(more.takes);
        in_use.is_tight |= more.exceeds_backed();
    }

    /// What a host has left in the first step.
    pub fn remaining_share(&self, host: usize) -> CpuMemory {
        let capacity = self.shares.hosts[host].capacity.first().copied().unwrap_or_default();
        capacity.saturating_sub(self.hosts[host].taken)
    }

    /// The number of places whose shares `own` cover what a worker takes.
    pub fn places_needed(takes: CpuMemory, own: CpuMemory) -> u32 {
        let for_cpus = if own.cpus > 0 { u64::from(takes.cpus.div_ceil(own.cpus)) } else { 0 };
        let for_memory = if own.memory_mib > 0 { takes.memory_mib.div_ceil(own.memory_mib) } else { 0 };
        u32::try_from(for_cpus.max(for_memory)).unwrap_or(u32::MAX)
    }

    /// Takes what kept workers take: what they have, or may have at any time. They take more where their
    /// job's option needs more and their hosts have it. Returns for each job whether its option must do
    /// without. `favoured` jobs ask first.
    pub fn reserve_kept(
        &mut self,
        space: &DecisionSpace<'_>,
        specs: &[Option<&JobOption>],
        nodes: &[Vec<NodeSlots>],
        favoured: &[usize],
    ) -> Vec<bool> {
        let mut kept: Vec<Vec<KeptWorker>> = Vec::with_capacity(nodes.len());
        for (job, spec) in specs.iter().enumerate() {
            let workers = spec.map(|spec| self.kept_workers(space, &space.jobs[job], spec, &nodes[job]));
            kept.push(workers.unwrap_or_default());
        }
        let raises: Vec<bool> = specs.iter().map(|spec| spec.is_some_and(|spec| spec.raises)).collect();
        for (workers, raises) in kept.iter().zip(&raises) {
            for worker in workers {
                let takes = if *raises { worker.granted } else { worker.takes };
                self.reserve_worker(worker.host, WorkerReservation { takes, backed: worker.backed });
            }
        }
        let mut denied = vec![false; nodes.len()];
        let mut order: Vec<usize> = (0..nodes.len()).filter(|job| raises[*job]).collect();
        order.sort_by_key(|job| !favoured.contains(job));
        for job in order {
            denied[job] = !self.raise_workers(&kept[job]);
        }
        denied
    }

    fn kept_workers(
        &self,
        space: &DecisionSpace<'_>,
        job: &JobSpace<'_>,
        spec: &JobOption,
        nodes: &[NodeSlots],
    ) -> Vec<KeptWorker> {
        let name = &space.types[spec.node_type];
        let mut kept = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Some(worker) = space.worker_on(node) else { continue };
            let Some(slot) = node.first() else { continue };
            let WorkerReservation { takes, backed } =
                WorkerReservation::for_kept_worker(space, job.job, spec, &worker);
            let granted = granted_share(job.job, name, &worker);
            kept.push(KeptWorker { host: self.host_of(*slot), takes, granted, backed });
        }
        kept
    }

    /// Raises workers from what they are granted to what they need, if all their hosts have that.
    fn raise_workers(&mut self, workers: &[KeptWorker]) -> bool {
        let before = self.hosts.clone();
        for kept in workers {
            let host = &mut self.hosts[kept.host];
            host.taken = host.taken.saturating_sub(kept.granted);
            let more = WorkerReservation { takes: kept.takes, backed: kept.backed };
            if !kept.takes.is_within(kept.granted) && self.fitting_steps(kept.host, more) == 0 {
                self.hosts = before;
                return false;
            }
            self.reserve_worker(kept.host, more);
        }
        true
    }
}

/// A worker that its job keeps.
struct KeptWorker {
    host: usize,
    /// What it takes with the plan of its option.
    takes: CpuMemory,
    /// What it may take at any time.
    granted: CpuMemory,
    /// What no other worker may use.
    backed: CpuMemory,
}
