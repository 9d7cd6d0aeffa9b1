//! Whether CPUs and memory of hosts keep a job from a size for which there are places, by what a plan leaves
//! of them.
//!
//! A plan may need more than its places come with. Then nodes and windows alone do not say why the job gets
//! no more.

use std::collections::BTreeMap;

use super::checked_job::CheckedJob;
use super::host_capacity::{leftovers, plan_needs};
use crate::plan::space::{cost, problem::PlanningProblem, slots::job_excludes, steps::TimeSteps};
use infill_model::{
    CpuMemory, ExecPlan, Gap, HostPart, HostShortage, JobPlan, MalleableJob, NodeType, Plan, PlanNeeds,
};

/// What a plan leaves of all hosts.
pub(super) struct HostLeftovers<'a> {
    /// By the type of free places. None where no plan of any job says what it needs, or no host is counted.
    hosts: BTreeMap<&'a NodeType, Vec<FreePlaces<'a>>>,
}

/// Free places of one type on a host.
struct FreePlaces<'a> {
    places: Vec<&'a Gap>,
    /// What the host has left.
    there: CpuMemory,
    /// Whether a worker on the host takes more than its own.
    is_tight: bool,
}

impl<'a> HostLeftovers<'a> {
    /// `is_free`: whether a place is left on which jobs could start.
    pub fn from_plan(
        problem: &PlanningProblem<'a>,
        steps: &TimeSteps,
        plan: &'a Plan,
        is_free: impl Fn(&Gap) -> bool,
    ) -> Self {
        let mut hosts: BTreeMap<&'a NodeType, Vec<FreePlaces<'a>>> = BTreeMap::new();
        let says_needs = problem.jobs.iter().flat_map(|job| &job.rates).any(|rate| !rate.needs.is_empty());
        if !says_needs || problem.gaps.gaps.iter().all(|gap| gap.share.is_none()) {
            return HostLeftovers { hosts };
        }
        let facts = problem
            .jobs
            .iter()
            .filter_map(|job| Some(CheckedJob::from_plan(problem, steps, job, plan.job_plan(job.id)?)));
        for left in leftovers(problem, steps, &facts.collect::<Vec<_>>()) {
            let mut of_type: BTreeMap<&'a NodeType, Vec<&'a Gap>> = BTreeMap::new();
            for gap in left.gaps.iter().copied().filter(|gap| is_free(gap)) {
                of_type.entry(&gap.node_type).or_default().push(gap);
            }
            for (node_type, places) in of_type {
                let free = FreePlaces { places, there: left.there, is_tight: left.is_tight };
                hosts.entry(node_type).or_default().push(free);
            }
        }
        HostLeftovers { hosts }
    }

    /// What keeps a job that gets nothing from its smallest size, if hosts do with all of its plans.
    pub fn start_shortage(&self, job: &MalleableJob) -> Option<HostShortage> {
        let least = job.sizes.min();
        let mut found = None;
        for node_type in self.hosts.keys() {
            for exec_plan in job.rates.iter().map(|rate| &rate.exec_plan) {
                if cost::rate_of(job, node_type, exec_plan, least).is_none() {
                    continue;
                }
                match self.room_for(job, node_type, exec_plan, least) {
                    HostRoomFor::Enough => return None,
                    HostRoomFor::TooFewPlaces => {}
                    HostRoomFor::TooLittle(shortage) => found = found.or(Some(shortage)),
                }
            }
        }
        found
    }

    /// What keeps a job from its next larger size, on which it makes more with the plan that it has, if hosts
    /// do.
    pub fn growth_shortage(
        &self,
        job: &MalleableJob,
        planned: &JobPlan,
        node_type: &NodeType,
    ) -> Option<HostShortage> {
        if !self.hosts.contains_key(node_type) {
            return None;
        }
        let gets = planned.nodes.len() as u32;
        let larger = job.sizes.up_to(u32::MAX).into_iter().find(|nodes| {
            let rate = cost::rate_of(job, node_type, &planned.exec_plan, *nodes);
            *nodes > gets && rate.is_some_and(|rate| job.rate_without_bonus(rate) > planned.rate)
        })?;
        match self.room_for(job, node_type, &planned.exec_plan, larger - gets) {
            HostRoomFor::TooLittle(shortage) => Some(shortage),
            HostRoomFor::Enough | HostRoomFor::TooFewPlaces => None,
        }
    }

    /// Whether hosts have room for this number of new workers.
    fn room_for(
        &self,
        job: &MalleableJob,
        node_type: &NodeType,
        exec_plan: &ExecPlan,
        workers: u32,
    ) -> HostRoomFor {
        let needs = plan_needs(job, node_type, exec_plan);
        let block = job.block.max(1);
        let mut fits = WorkerFits::default();
        let mut takes = CpuMemory::default();
        for host in self.hosts.get(node_type).into_iter().flatten() {
            let count = host.places.iter().filter(|gap| !job_excludes(job, &gap.node)).count() as u32 / block;
            let share = host.places.first().and_then(|gap| gap.share).unwrap_or_default();
            let own = share.own.scaled_by(block);
            fits.add_host(count, own, needs, host);
            takes = takes.max_each(needs.host_portion(own));
        }
        if fits.places < workers {
            return HostRoomFor::TooFewPlaces;
        }
        if fits.by_both >= workers {
            return HostRoomFor::Enough;
        }
        let lacks = if fits.by_cpus < workers { HostPart::Cpus } else { HostPart::Memory };
        HostRoomFor::TooLittle(HostShortage { workers, takes, lacks, fit: fits.by_both })
    }
}

/// Whether hosts have room for some workers.
enum HostRoomFor {
    Enough,
    TooFewPlaces,
    TooLittle(HostShortage),
}

/// How many workers fit on hosts.
#[derive(Default)]
struct WorkerFits {
    /// By their places alone.
    places: u32,
    /// By places and CPUs.
    by_cpus: u32,
    /// By places, CPUs and memory.
    by_both: u32,
}

impl WorkerFits {
    /// Counts a host that has places for `count` workers, each with the share `own`.
    fn add_host(&mut self, count: u32, own: CpuMemory, needs: PlanNeeds, host: &FreePlaces<'_>) {
        let takes = needs.host_portion(own);
        // While all workers keep to their own shares, each share is there.
        let is_counted = host.is_tight || !takes.is_within(own);
        let by_cpus = host.there.cpus.checked_div(takes.cpus).unwrap_or(u32::MAX);
        let by_memory = host.there.memory_mib.checked_div(takes.memory_mib).unwrap_or(u64::MAX);
        let by_memory = u32::try_from(by_memory).unwrap_or(u32::MAX);
        let most = |by: u32| if is_counted { count.min(by) } else { count };
        self.places = self.places.saturating_add(count);
        self.by_cpus = self.by_cpus.saturating_add(most(by_cpus));
        self.by_both = self.by_both.saturating_add(most(by_cpus.min(by_memory)));
    }
}
