//! What workers take of each host's CPUs and memory while a plan is laid.
//!
//! A host on which every worker keeps to what its places come with, or what it has, needs no account. Where
//! one takes more, all workers on the host together keep within its room.

use super::placement_request::NodeSlots;
use super::worker_reservation::WorkerReservation;
use crate::plan::space::{
    decision::{DecisionSpace, JobSpace},
    host_shares::HostShares,
    job_option::JobOption,
    worker_places::granted_share,
};
use infill_model::CpuMemory;

/// The account of all hosts.
#[derive(Clone, Debug)]
pub(crate) struct HostBudget<'a> {
    shares: &'a HostShares,
    hosts: Vec<HostUse>,
}

/// What is taken of one host.
#[derive(Clone, Debug, Default)]
struct HostUse {
    taken: CpuMemory,
    /// Whether a worker takes more than its own.
    is_tight: bool,
}

impl<'a> HostBudget<'a> {
    /// Nothing is taken yet.
    pub fn new(shares: &'a HostShares) -> HostBudget<'a> {
        let host = |tight| HostUse { taken: CpuMemory::default(), is_tight: tight };
        HostBudget { shares, hosts: shares.hosts.iter().map(|h| host(h.is_tight)).collect() }
    }

    /// The host of a slot.
    pub fn host_of(&self, slot: usize) -> usize {
        self.shares.host[slot]
    }

    /// Number of steps, from the first, in which the host has room for one more worker.
    pub fn fitting_steps(&self, host: usize, more: WorkerReservation) -> usize {
        let taken = &self.hosts[host];
        let room = &self.shares.hosts[host].room;
        if !taken.is_tight && !more.exceeds_backed() {
            return room.len();
        }
        let all = taken.taken.sum_with(more.takes);
        room.iter().take_while(|room| all.is_within(**room)).count()
    }

    /// Takes it.
    pub fn reserve_worker(&mut self, host: usize, more: WorkerReservation) {
        let taken = &mut self.hosts[host];
        taken.taken = taken.taken.sum_with(more.takes);
        taken.is_tight |= more.exceeds_backed();
    }

    /// What a host has left in the first step.
    pub fn remaining_share(&self, host: usize) -> CpuMemory {
        let room = self.shares.hosts[host].room.first().copied().unwrap_or_default();
        room.saturating_sub(self.hosts[host].taken)
    }

    /// How many places a worker amounts to on places that come with `own`.
    pub fn places_needed(takes: CpuMemory, own: CpuMemory) -> u32 {
        let of = |takes: u64, own: u64| if own > 0 { takes.div_ceil(own) } else { 0 };
        let most = of(takes.cpus.into(), own.cpus.into()).max(of(takes.memory_mib, own.memory_mib));
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Takes what the workers that stay take: what they have, or may have at any time, and more where their
    /// job's option needs more and their hosts have it. Returns for each job whether its option must do
    /// without. `favoured` ask first.
    pub fn reserve_kept(
        &mut self,
        space: &DecisionSpace<'_>,
        specs: &[Option<&JobOption>],
        nodes: &[Vec<NodeSlots>],
        favoured: &[usize],
    ) -> Vec<bool> {
        let kept: Vec<Vec<KeptWorker>> = (0..nodes.len())
            .map(|job| {
                specs[job]
                    .map_or(Vec::new(), |spec| self.kept_workers(space, &space.jobs[job], spec, &nodes[job]))
            })
            .collect();
        let raises = |job: &usize| specs[*job].is_some_and(|spec| spec.raises);
        for (job, kept) in kept.iter().enumerate() {
            for worker in kept {
                let takes = if raises(&job) { worker.granted } else { worker.takes };
                self.reserve_worker(worker.host, WorkerReservation { takes, backed: worker.backed });
            }
        }
        let mut denied = vec![false; nodes.len()];
        let mut order: Vec<usize> = (0..nodes.len()).filter(raises).collect();
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
        let kept = |node: &NodeSlots| {
            let worker = space.worker_on(node)?;
            let WorkerReservation { takes, backed } =
                WorkerReservation::for_kept_worker(space, job.job, spec, &worker);
            let host = self.host_of(*node.first()?);
            let granted = granted_share(job.job, name, &worker);
            Some(KeptWorker { host, takes, granted, backed })
        };
        nodes.iter().filter_map(kept).collect()
    }

    /// Raises workers from what is granted to what they need, if that is there on all their hosts.
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

/// A worker that stays.
struct KeptWorker {
    host: usize,
    /// What it takes with the plan of its option.
    takes: CpuMemory,
    /// What it may take at any time.
    granted: CpuMemory,
    /// What nobody else counts on.
    backed: CpuMemory,
}
