//! Whether hosts have the CPUs and the memory that a plan gives out, by the judge's own reckoning.
//!
//! A worker takes what its plan needs; what the plan does not say is the share of its places. A worker that
//! stays takes what it has, or what its plan needs where that is more. As long as nobody on a host takes more
//! than its places come with, or than it has, all is there. Where somebody does, all of them together keep
//! within what the host has for malleable jobs, less what comes with places that none of them may use. Those
//! who were there before and take no more than before are not to blame.

use std::collections::BTreeMap;

use super::checked_job::{CheckedJob, NodeGaps};
use super::rules::Violation;
use crate::plan::space::{problem::PlanningProblem, steps::TimeSteps};
use infill_model::{CpuMemory, ExecPlan, Gap, MalleableJob, NodeName, NodeType, PlanNeeds};

/// One worker of the plan.
struct CheckedWorker<'a> {
    job: &'a MalleableJob,
    node: &'a NodeName,
    takes: CpuMemory,
    /// What its places come with, or it has.
    backed: CpuMemory,
    /// Whether it is new, or takes more than before.
    asks: bool,
    is_busy: bool,
}

/// Adds a violation for each host of which more is given out than there is.
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
        let there = available_on_host(problem, steps, gaps.get(host).map_or(&[], Vec::as_slice), on_host);
        let planned = on_host.iter().filter(|w| !w.is_busy);
        let takes = CpuMemory::sum_all(planned.clone().map(|w| w.takes));
        if let Some(w) = planned.clone().find(|w| w.asks).filter(|_| !takes.is_within(there)) {
            found.push(Violation::TooLittleOfHost { job: w.job.id, node: w.node.clone(), takes, there });
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

/// What a plan leaves of a host.
pub(super) struct HostLeftover<'a> {
    /// Its gaps.
    pub gaps: Vec<&'a Gap>,
    /// What the workers of the plan do not take.
    pub there: CpuMemory,
    /// Whether one of them takes more than its own.
    pub is_tight: bool,
}

/// What a plan leaves of each host. One whose CPUs and memory are not counted has any amount.
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
        let there = match gaps.iter().all(|gap| gap.share.is_some()) {
            true => available_on_host(problem, steps, &gaps, on_host).saturating_sub(takes),
            false => CpuMemory { cpus: u32::MAX, memory_mib: u64::MAX },
        };
        found.push(HostLeftover { gaps, there, is_tight: is_tight(on_host) });
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
    let patch = NodeGaps::for_node(problem, node)?;
    let shares: Vec<_> = patch.gaps.iter().map(|gap| gap.share).collect::<Option<_>>()?;
    let own = CpuMemory::sum_all(shares.iter().map(|share| share.own));
    let held = CpuMemory::sum_all(shares.iter().map(|share| share.held));
    let takes = |plan: &ExecPlan| {
        let needs = plan_needs(facts.job, &patch.first_to_end.node_type, plan);
        let has = if is_held && !held.is_none() { held } else { CpuMemory::default() };
        let otherwise = if has.is_none() { own } else { has };
        let memory = needs.memory_mib.filter(|_| own.memory_mib > 0).unwrap_or(otherwise.memory_mib);
        let needed = CpuMemory { cpus: needs.cpus.unwrap_or(otherwise.cpus), memory_mib: memory };
        needed.max_each(has)
    };
    let backed = if is_held { own.max_each(held) } else { own };
    let planned = takes(&facts.planned.exec_plan);
    let before = takes(&facts.job.exec_plan).max_each(backed);
    let asks = !facts.is_busy && (!is_held || !planned.is_within(before));
    Some(CheckedWorker { job: facts.job, node, takes: planned, backed, asks, is_busy: facts.is_busy })
}

/// What a plan's workers need, as their owner says. What is known of the type goes before what is said of
/// all.
pub(super) fn plan_needs(job: &MalleableJob, node_type: &NodeType, exec_plan: &ExecPlan) -> PlanNeeds {
    let mut of_plan = job.rates.iter().filter(|rate| rate.exec_plan == *exec_plan);
    let for_all = of_plan.clone().find(|rate| rate.node_type.is_none());
    let of_type = of_plan.find(|rate| rate.node_type.as_ref() == Some(node_type));
    of_type.or(for_all).map_or(PlanNeeds::default(), |rate| rate.needs)
}

/// What a host has for the workers that may change: all that no job has, and what malleable jobs have there;
/// less the shares of places that are others' or end before the first step does, and less what those have
/// beyond these whom the plan does not move.
fn available_on_host(
    problem: &PlanningProblem<'_>,
    steps: &TimeSteps,
    gaps: &[&Gap],
    on_host: &[CheckedWorker<'_>],
) -> CpuMemory {
    let shares = || gaps.iter().filter_map(|gap| Some((*gap, gap.share?)));
    let free = shares().next().map_or(CpuMemory::default(), |(_, share)| share.free);
    let all = CpuMemory::sum_all(shares().map(|(_, share)| share.held)).sum_with(free);
    let is_busy = |job| problem.jobs.iter().any(|j| j.id == job && problem.is_busy(j));
    let is_planned = |job| problem.jobs.iter().any(|j| j.id == job && !problem.is_busy(j));
    let is_others = |gap: &Gap| gap.holder.is_some_and(|job| !is_planned(job));
    let lasts = |gap: &Gap| steps.ends().first().is_some_and(|end| gap.usable_until >= *end);
    let lost = shares().filter(|(gap, _)| is_others(gap) || !lasts(gap)).map(|(_, share)| share.own);
    let foreign =
        shares().filter(|(gap, _)| is_others(gap)).map(|(_, share)| share.held.saturating_sub(share.own));
    let busy =
        on_host.iter().filter(|w| w.is_busy && is_busy(w.job.id)).map(|w| w.takes.saturating_sub(w.backed));
    all.saturating_sub(CpuMemory::sum_all(lost.chain(foreign).chain(busy)))
}
