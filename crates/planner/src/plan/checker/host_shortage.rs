//! Whether CPUs and memory of hosts keep a job from a size for which enough places are free, by what a plan
//! leaves of them.
//!
//! An execution plan may need more than its places come with. Then nodes and windows alone do not explain why
//! the job gets no more.

use std::collections::BTreeMap;

use super::checked_job::CheckedJob;
use super::host_capacity::{leftovers, plan_needs};
use crate::plan::space::{cost, problem::PlanningProblem, slots::job_excludes, steps::TimeSteps};
use infill_model::{
    CpuMemory, ExecPlan, Gap, HostPart, HostShortage, JobPlan, MalleableJob, NodeType, Plan, PlanNeeds,
};

/// What a plan leaves of all hosts.
pub(super) struct HostLeftovers<'a> {
    /// Hosts with free places, by the type of these places. Empty where no job declares needs, or no host is
    /// counted.
    hosts: BTreeMap<&'a NodeType, Vec<FreePlaces<'a>>>,
}

/// Free places of one type on a host.
struct FreePlaces<'a> {
    places: Vec<&'a Gap>,
    /// CPUs and memory that the host has left.
    available: CpuMemory,
    /// Whether a worker on the host takes more than its places come with.
    is_tight: bool,
}

impl<'a> HostLeftovers<'a> {
    /// What `plan` leaves. `is_free` tells whether jobs could start on a place.
    pub fn from_plan(
        problem: &PlanningProblem<'a>,
        steps: &TimeSteps,
        plan: &'a Plan,
        is_free: impl Fn(&Gap) -> bool,
    ) -> Self {
        let mut hosts: BTreeMap<&'a NodeType, Vec<FreePlaces<'a>>> = BTreeMap::new();
        let has_needs = problem.jobs.iter().flat_map(|job| &job.rates).any(|rate| !rate.needs.is_empty());
        if !has_needs || problem.gaps.gaps.iter().all(|gap| gap.share.is_none()) {
            return HostLeftovers { hosts };
        }
        let facts: Vec<CheckedJob<'_>> = problem
            .jobs
            .iter()
            .filter_map(|job| Some(CheckedJob::from_plan(problem, steps, job, plan.job_plan(job.id)?)))
            .collect();
        for left in leftovers(problem, steps, &facts) {
            let mut of_type: BTreeMap<&'a NodeType, Vec<&'a Gap>> = BTreeMap::new();
            for gap in left.gaps.iter().copied().filter(|gap| is_free(gap)) {
                of_type.entry(&gap.node_type).or_default().push(gap);
            }
            for (node_type, places) in of_type {
                let free = FreePlaces { places, available: left.available, is_tight: left.is_tight };
                hosts.entry(node_type).or_default().push(free);
            }
        }
        HostLeftovers { hosts }
    }

    /// What hosts lack for the smallest size of a job that gets nothing; `None` if hosts have enough for one
    /// of its plans, or all plans lack places.
    pub fn start_shortage(&self, job: &MalleableJob) -> Option<HostShortage> {
        let smallest = job.sizes.min();
        let mut found = None;
        for node_type in self.hosts.keys() {
            for exec_plan in job.rates.iter().map(|rate| &rate.exec_plan) {
                if cost::rate_of(job, node_type, exec_plan, smallest).is_none() {
                    continue;
                }
                match self.capacity_for(job, node_type, exec_plan, smallest) {
                    HostFit::Enough => return None,
                    HostFit::TooFewPlaces => {}
                    HostFit::TooLittle(shortage) => found = found.or(Some(shortage)),
                }
            }
        }
        found
    }

    /// What hosts lack for the next larger size on which a job makes more with its planned execution plan;
    /// `None` if they have enough or places are too few.
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
        match self.capacity_for(job, node_type, &planned.exec_plan, larger - gets) {
            HostFit::TooLittle(shortage) => Some(shortage),
            HostFit::Enough | HostFit::TooFewPlaces => None,
        }
    }

    /// Whether hosts have capacity for this number of new workers.
    fn capacity_for(
        &self,
        job: &MalleableJob,
        node_type: &NodeType,
        exec_plan: &ExecPlan,
        workers: u32,
    ) -> HostFit {
        let needs = plan_needs(job, node_type, exec_plan);
        let block = job.places_per_node.max(1);
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
            return HostFit::TooFewPlaces;
        }
        if fits.by_both >= workers {
            return HostFit::Enough;
        }
        let lacks = if fits.by_cpus < workers { HostPart::Cpus } else { HostPart::Memory };
        HostFit::TooLittle(HostShortage { workers, takes, lacks, fit: fits.by_both })
    }
}

/// Whether hosts have capacity for some workers.
enum HostFit {
    Enough,
    TooFewPlaces,
    TooLittle(HostShortage),
}

/// The number of workers that fit on hosts.
#[derive(Default)]
struct WorkerFits {
    /// By their places only.
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
        // As long as all workers keep to the shares of their places, every share is available.
        let is_counted = host.is_tight || !takes.is_within(own);
        let by_cpus = host.available.cpus.checked_div(takes.cpus).unwrap_or(u32::MAX);
        let by_memory = host.available.memory_mib.checked_div(takes.memory_mib).unwrap_or(u64::MAX);
        let by_memory = u32::try_from(by_memory).unwrap_or(u32::MAX);
        let fit_by_cpus = if is_counted { count.min(by_cpus) } else { count };
        let fit_by_both = if is_counted { count.min(by_cpus.min(by_memory)) } else { count };
        self.places = self.places.saturating_add(count);
        self.by_cpus = self.by_cpus.saturating_add(fit_by_cpus);
        self.by_both = self.by_both.saturating_add(fit_by_both);
    }
}
