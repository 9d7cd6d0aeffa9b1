//! CPUs and memory of its host that one worker takes.
//!
//! A new worker gets what its execution plan needs. Where the plan says nothing, it gets the share of its
//! places. A running worker keeps what Slurm gave its job, whatever plan it runs. So it takes that, or what
//! its plan needs where that is more.

use super::problem::PlanningProblem;
use infill_model::{CpuMemory, ExecPlan, Gap, MalleableJob, NodeName, NodeType, PlanNeeds};

/// The places of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerPlaces {
    /// The share that they come with.
    pub own: CpuMemory,
    /// What the job on them has; zero before Slurm has started it.
    pub held: CpuMemory,
}

impl WorkerPlaces {
    /// A worker on the places of these gaps; `None` where CPUs and memory are not counted.
    pub fn from_gaps<'g>(gaps: impl IntoIterator<Item = &'g Gap>) -> Option<WorkerPlaces> {
        let shares: Vec<_> = gaps.into_iter().map(|gap| gap.share).collect::<Option<_>>()?;
        let own = shares.iter().map(|s| s.own);
        let held = shares.iter().map(|s| s.held);
        Some(WorkerPlaces { own: CpuMemory::sum_all(own), held: CpuMemory::sum_all(held) })
    }

    /// The worker that a job has on this node; `None` where nothing is counted, or a place is not a gap.
    pub fn held_on(problem: &PlanningProblem<'_>, node: &NodeName) -> Option<WorkerPlaces> {
        WorkerPlaces::from_gaps(problem.gaps_of(node)?)
    }

    /// What a new worker takes whose plan has these needs.
    pub fn share_for_new(&self, needs: PlanNeeds) -> CpuMemory {
        needs.host_portion(self.own)
    }

    /// What a kept worker takes with a plan of these needs.
    pub fn share_for_kept(&self, needs: PlanNeeds) -> CpuMemory {
        if self.held.is_none() {
            return self.share_for_new(needs);
        }
        let memory_mib = needs.memory_mib.filter(|_| self.own.memory_mib > 0);
        let needed = CpuMemory { cpus: needs.cpus.unwrap_or(0), memory_mib: memory_mib.unwrap_or(0) };
        self.held.max_each(needed)
    }

    /// The share that its places come with, or what it has. No other worker may use this.
    pub fn backed_share(&self) -> CpuMemory {
        self.own.max_each(self.held)
    }
}

/// What one worker of a plan needs on nodes of this type. Needs for this type take precedence over those for
/// any type.
pub(crate) fn plan_needs(job: &MalleableJob, node_type: &NodeType, exec_plan: &ExecPlan) -> PlanNeeds {
    let mut of_plan = job.rates.iter().filter(|r| r.exec_plan == *exec_plan);
    let for_type = of_plan.clone().find(|r| r.node_type.as_ref() == Some(node_type));
    let rate = for_type.or_else(|| of_plan.find(|r| r.node_type.is_none()));
    rate.map_or(PlanNeeds::default(), |rate| rate.needs)
}

/// What a kept worker may take without asking: what it takes with the job's present plan, or what its places
/// come with.
pub(crate) fn granted_share(job: &MalleableJob, node_type: &NodeType, worker: &WorkerPlaces) -> CpuMemory {
    worker.share_for_kept(plan_needs(job, node_type, &job.exec_plan)).max_each(worker.backed_share())
}
