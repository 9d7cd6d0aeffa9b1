//! Whether hosts have the CPUs and the memory that a plan gives out, by the checker's own computation.
//!
//! A worker takes what its plan needs. Where the plan says nothing, it takes the share of its places. A
//! worker that stays takes what it has, or what its plan needs where that is more. If no worker of a host
//! takes more than its places come with, or than it has, the host has enough. If some worker does, all
//! workers together must keep within what the host has for malleable jobs. Shares of places that none of them
//! may use do not count. Workers that were there before and take no more than before are not to blame.

use std::collections::BTreeMap;

use super::checked_job::{CheckedJob, NodeGaps};
use super::rules::Violation;
use crate::plan::space::{problem::PlanningProblem, steps::TimeSteps};
use infill_model::{CpuMemory, ExecPlan, Gap, MalleableJob, NodeName, NodeType, PlanNeeds};

/// One worker of the plan.
struct CheckedWorker<'a> {
    job: &'a MalleableJob,
    node: &'a NodeName,
    /// CPUs and memory under the plan.
    takes: CpuMemory,
    /// CPUs and memory that its places come with, or that it has.
    backed: CpuMemory,
    /// Whether it is new, or takes more than before.
    asks: bool,
    /// Whether its job is in the middle of a change.
    is_busy: bool,
}

/// Adds a violation for each host where the plan gives out more than the host has.
pub(super) fn check_hosts(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    facts: &[CheckedJob<'_>],
    found: &mut Vec<Violation>,
) {
    let mut workers = workers_by_host(problem, facts);
    workers.retain(|_, on_host| is_tight(on_host) && on_host.iter().any(|w| w.asks));
    if workers.is_empty() {
        return;
    }
    let gaps = gaps_by_host(problem);
    for (host, on_host) in &workers {
        let gaps: &[&Gap] = gaps.get(host).map_or(&[], Vec::as_slice);
        let available = available_on_host(problem, steps, gaps, on_host);
        let planned = on_host.iter().filter(|w| !w.is_busy);
        let takes = CpuMemory::sum_all(planned.clone().map(|w| w.takes));
        if let Some(w) = planned.clone().find(|w| w.asks).filter(|_| !takes.is_within(available)) {
            found.push(Violation::TooLittleOfHost { job: w.job.id, node: w.node.clone(), takes, available });
        }
    }
}

fn workers_by_host<'a>(
    problem: &PlanningProblem<'a>,
    facts: &[CheckedJob<'a>],
) -> BTreeMap<NodeName, Vec<CheckedWorker<'a>>> {
    let mut workers: BTreeMap<NodeName, Vec<CheckedWorker<'a>>> = BTreeMap::new();
    for facts in facts {
        for (placement, (_, held)) in facts.planned.nodes.iter().zip(&facts.gaps) {
            let worker = checked_worker(problem, facts, &placement.node, *held);
            workers.entry(placement.node.host()).or_default().extend(worker);
        }
    }
    workers
}

fn gaps_by_host<'a>(problem: &PlanningProblem<'a>) -> BTreeMap<NodeName, Vec<&'a Gap>> {
    let mut gaps: BTreeMap<NodeName, Vec<&Gap>> = BTreeMap::new();
    for gap in &problem.gaps.gaps {
        gaps.entry(gap.node.host()).or_default().push(gap);
    }
    gaps
}

/// Whether a worker on a host takes more than its places come with, or than it has.
fn is_tight(on_host: &[CheckedWorker<'_>]) -> bool {
    on_host.iter().any(|w| !w.takes.is_within(w.backed))
}

/// The places, CPUs and memory of a host that a plan leaves.
pub(super) struct HostLeftover<'a> {
    /// The gaps on the host.
    pub gaps: Vec<&'a Gap>,
    /// CPUs and memory that no worker of the plan takes.
    pub available: CpuMemory,
    /// Whether a worker takes more than its places come with, or than it has.
    pub is_tight: bool,
}

/// What a plan leaves of each host. A host whose CPUs and memory are not counted has unlimited amounts.
pub(super) fn leftovers<'a>(
    problem: &PlanningProblem<'a>,
    steps: &TimeSteps,
    facts: &[CheckedJob<'a>],
) -> Vec<HostLeftover<'a>> {
    let workers = workers_by_host(problem, facts);
    let mut found = Vec::new();
    for (host, gaps) in gaps_by_host(problem) {
        let on_host = workers.get(&host).map_or(&[][..], Vec::as_slice);
        let takes = CpuMemory::sum_all(on_host.iter().filter(|w| !w.is_busy).map(|w| w.takes));
        let is_counted = gaps.iter().all(|gap| gap.share.is_some());
        let available = if is_counted {
            available_on_host(problem, steps, &gaps, on_host).saturating_sub(takes)
        } else {
            CpuMemory { cpus: u32::MAX, memory_mib: u64::MAX }
        };
        found.push(HostLeftover { gaps, available, is_tight: is_tight(on_host) });
    }
    found
}

/// A worker of the plan; `None` where CPUs and memory are not counted.
fn checked_worker<'a>(
    problem: &PlanningProblem<'a>,
    facts: &CheckedJob<'a>,
    node: &'a NodeName,
    is_held: bool,
) -> Option<CheckedWorker<'a>> {
    let gaps = NodeGaps::for_node(problem, node)?;
    let shares: Vec<_> = gaps.gaps.iter().map(|gap| gap.share).collect::<Option<_>>()?;
    let own = CpuMemory::sum_all(shares.iter().map(|share| share.own));
    let held = CpuMemory::sum_all(shares.iter().map(|share| share.held));
    let has = if is_held { held } else { CpuMemory::default() };
    let node_type = &gaps.first_to_end.node_type;
    let backed = if is_held { own.max_each(held) } else { own };
    let planned = worker_takes(plan_needs(facts.job, node_type, &facts.planned.exec_plan), own, has);
    let present = worker_takes(plan_needs(facts.job, node_type, &facts.job.exec_plan), own, has);
    let asks = !facts.is_busy && (!is_held || !planned.is_within(present.max_each(backed)));
    Some(CheckedWorker { job: facts.job, node, takes: planned, backed, asks, is_busy: facts.is_busy })
}

/// What a worker takes: what its plan needs, and at least what it `has`. The plan's gaps are filled from what
/// it has, or from the share `own` of its places where it has nothing.
fn worker_takes(needs: PlanNeeds, own: CpuMemory, has: CpuMemory) -> CpuMemory {
    let default = if has.is_none() { own } else { has };
    let memory = needs.memory_mib.filter(|_| own.memory_mib > 0).unwrap_or(default.memory_mib);
    let needed = CpuMemory { cpus: needs.cpus.unwrap_or(default.cpus), memory_mib: memory };
    needed.max_each(has)
}

/// What one worker of a plan needs, as its owner declares. A declaration for this type takes precedence over
/// one for all types.
pub(super) fn plan_needs(job: &MalleableJob, node_type: &NodeType, exec_plan: &ExecPlan) -> PlanNeeds {
    let mut of_plan = job.rates.iter().filter(|rate| rate.exec_plan == *exec_plan);
    let for_all = of_plan.clone().find(|rate| rate.node_type.is_none());
    let of_type = of_plan.find(|rate| rate.node_type.as_ref() == Some(node_type));
    of_type.or(for_all).map_or(PlanNeeds::default(), |rate| rate.needs)
}

/// What a host has for the workers that may change: what no job has, and what malleable jobs have there. It
/// leaves out the shares of places that other jobs hold or that end before the first step does. It also
/// leaves out what those jobs, and busy jobs, have beyond their places.
fn available_on_host(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    gaps: &[&Gap],
    on_host: &[CheckedWorker<'_>],
) -> CpuMemory {
    let mut all = gaps.iter().find_map(|gap| gap.share).map_or(CpuMemory::default(), |share| share.free);
    let mut lost = CpuMemory::default();
    for (gap, share) in gaps.iter().filter_map(|gap| Some((gap, gap.share?))) {
        all = all.sum_with(share.held);
        let is_foreign = gap
            .holder
            .is_some_and(|job| !problem.jobs.iter().any(|other| other.id == job && !problem.is_busy(other)));
        let lasts = steps.ends().first().is_some_and(|end| gap.usable_until >= *end);
        if is_foreign || !lasts {
            lost = lost.sum_with(share.own);
        }
        if is_foreign {
            lost = lost.sum_with(share.held.saturating_sub(share.own));
        }
    }
    for worker in on_host.iter().filter(|worker| worker.is_busy) {
        lost = lost.sum_with(worker.takes.saturating_sub(worker.backed));
    }
    all.saturating_sub(lost)
}
