//! Finds what can run short, how much of it there is in each step, and what each option uses of it.

use std::cmp::Reverse;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::decision::{DecisionSpace, JobSpace};
use super::host_shares::HostResource;
use super::job_option::JobOption;
use super::resource::{BlockSize, LimitedResource, ResourceDemand, StepLimit};
use super::slots::{NodeSlot, job_excludes};
use super::worker_places::plan_needs;
use infill_model::{CpuMemory, ExcludedNodes};

/// Most sets of nodes to avoid that have limits of their own: each costs as much in every step of every
/// search. Of the others laying finds out.
const MOST_SETS: usize = 16;

/// Most sets of which it is looked whether they hold another one.
const MOST_COMPARED: usize = 64;

/// A resource, with the nodes to avoid where it is about such.
type LimitSource = (LimitedResource, Option<Rc<AvoidedNodes>>);

/// A set of nodes that jobs must avoid.
struct AvoidedNodes {
    /// Whether each slot is one of them.
    slots: Vec<bool>,
    /// Jobs that avoid at least these.
    jobs: Vec<usize>,
}

/// Adds all limits to a space, and to its jobs what they use of them.
pub(crate) fn add_limits(space: &mut DecisionSpace<'_>) {
    let sources = limit_sources(space);
    let mut limit_at = vec![vec![None; sources.len()]; space.steps.len()];
    let mut limits = Vec::new();
    for (step, at) in limit_at.iter_mut().enumerate() {
        for ((of, avoided), place) in sources.iter().zip(at) {
            let most = max_amount(space, step, *of, avoided.as_deref());
            if let Some(most) = most {
                *place = Some(limits.len());
                limits.push(StepLimit { of: *of, step, most });
            }
        }
    }
    for job in 0..space.jobs.len() {
        let demands = sources.iter().enumerate().filter_map(|(r, source)| job_demand(space, job, r, source));
        space.jobs[job].demands = demands.collect();
    }
    (space.limits, space.limit_at) = (limits, limit_at);
}

/// All that can run short in some step.
fn limit_sources(space: &DecisionSpace<'_>) -> Vec<LimitSource> {
    let mut found = Vec::new();
    let avoided = avoided_sets(space);
    let levels = |t: usize| space.blocks.levels.iter().map(move |level| (t, *level));
    for (node_type, level) in (0..space.types.len()).flat_map(levels) {
        found.push((LimitedResource::Nodes(node_type, level), None));
        found.push((LimitedResource::StartNodes(node_type, level), None));
        found.extend(
            avoided.iter().map(|set: &Rc<AvoidedNodes>| {
                (LimitedResource::Allowed(node_type, level), Some(set.clone()))
            }),
        );
    }
    for (node_type, part, unit) in space.shares.iter().flat_map(|shares| shares.rows.iter().copied()) {
        let of = match part {
            HostResource::Cpus => LimitedResource::Cpus(node_type, unit),
            HostResource::Memory => LimitedResource::Memory(node_type, unit),
        };
        found.push((of, None));
    }
    if !space.problem.drain {
        found.push((LimitedResource::Changes, None));
    }
    found
}

/// How much of a resource there is in a step; `None` where that is no limit of its own.
fn max_amount(
    space: &DecisionSpace<'_>,
    step: usize,
    of: LimitedResource,
    avoided: Option<&AvoidedNodes>,
) -> Option<u32> {
    let all = |t: usize| space.supply[t].nodes[step];
    match of {
        LimitedResource::Nodes(_, level)
        | LimitedResource::StartNodes(_, level)
        | LimitedResource::Allowed(_, level)
            if level > 1 =>
        {
            max_blocks(space, step, of, avoided)
        }
        LimitedResource::Nodes(t, _) => Some(all(t)),
        LimitedResource::StartNodes(t, _) => Some(space.supply[t].startable[step]).filter(|n| *n < all(t)),
        LimitedResource::Allowed(t, _) => {
            let lasts = |s: &NodeSlot<'_>| s.node_type == t && s.lasts > step;
            let slots = avoided.into_iter().flat_map(|set| space.slots.iter().zip(&set.slots));
            let lost = slots.filter(|(slot, is_avoided)| **is_avoided && lasts(slot)).count() as u32;
            Some(all(t).saturating_sub(lost)).filter(|n| *n < all(t))
        }
        LimitedResource::Cpus(t, unit) => max_of_hosts(space, step, (t, HostResource::Cpus, unit)),
        LimitedResource::Memory(t, unit) => max_of_hosts(space, step, (t, HostResource::Memory, unit)),
        LimitedResource::Changes => (step == 0).then_some(space.problem.config.max_changes),
    }
}

/// As [`max_amount`], of CPUs or memory of hosts.
fn max_of_hosts(
    space: &DecisionSpace<'_>,
    step: usize,
    (t, part, unit): (usize, HostResource, u64),
) -> Option<u32> {
    let most = space.shares.as_ref()?.max_units(t, part, unit, step);
    // More than a row can tell is no limit.
    u32::try_from(most).ok()
}

/// As [`max_amount`], of blocks.
fn max_blocks(
    space: &DecisionSpace<'_>,
    step: usize,
    of: LimitedResource,
    avoided: Option<&AvoidedNodes>,
) -> Option<u32> {
    let count = |t: usize, level: BlockSize, also: &dyn Fn(usize) -> bool| {
        let may_be_used = |slot: &NodeSlot<'_>| slot.node_type == t && slot.lasts > step;
        space.blocks.count_blocks(level, |i| may_be_used(&space.slots[i]) && also(i))
    };
    let all = |t: usize, level: BlockSize| count(t, level, &|_| true);
    let is_allowed = |slot: usize| avoided.is_none_or(|set| !set.slots[slot]);
    match of {
        LimitedResource::Nodes(t, level) => Some(all(t, level)),
        LimitedResource::StartNodes(t, level) => {
            Some(count(t, level, &|slot| space.slots[slot].startable)).filter(|n| *n < all(t, level))
        }
        LimitedResource::Allowed(t, level) => {
            Some(count(t, level, &is_allowed)).filter(|n| *n < all(t, level))
        }
        LimitedResource::Cpus(..) | LimitedResource::Memory(..) | LimitedResource::Changes => None,
    }
}

/// Each distinct set of nodes that jobs must avoid, by name, with the jobs that avoid at least these; of too
/// many sets those that most jobs have.
fn avoided_sets(space: &DecisionSpace<'_>) -> Vec<Rc<AvoidedNodes>> {
    let mut jobs_of: FxHashMap<&ExcludedNodes, Vec<usize>> = FxHashMap::default();
    // Jobs that share a list are told by its number; to read all of it takes time.
    let mut same: FxHashMap<usize, &ExcludedNodes> = FxHashMap::default();
    let mut of_number: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for (i, job) in space.jobs.iter().enumerate().filter(|(_, j)| !j.job.excluded.is_empty()) {
        let list = &job.job.excluded;
        same.entry(list.list_id()).or_insert(list);
        of_number.entry(list.list_id()).or_default().push(i);
    }
    for (number, jobs) in of_number {
        jobs_of.entry(same[&number]).or_default().extend(jobs);
    }
    let mut sets: Vec<(&ExcludedNodes, Vec<usize>)> = jobs_of.into_iter().collect();
    sets.iter_mut().for_each(|(_, jobs)| jobs.sort_unstable());
    // Each job is in one of them, so that the order is always the same.
    sets.sort_unstable_by_key(|(_, jobs)| (Reverse(jobs.len()), jobs[0]));
    let with_larger = |(set, jobs): &(&ExcludedNodes, Vec<usize>)| {
        let mut all = jobs.clone();
        let others = sets.iter().take(MOST_COMPARED).filter(|(other, _)| other.len() > set.len());
        let larger = others.filter(|(other, _)| set.iter().all(|node| other.contains(node)));
        all.extend(larger.flat_map(|(_, jobs)| jobs));
        all.sort_unstable();
        ((*set).clone(), all)
    };
    let mut found: Vec<(ExcludedNodes, Vec<usize>)> = sets.iter().take(MOST_SETS).map(with_larger).collect();
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let avoided = |(set, jobs): (ExcludedNodes, Vec<usize>)| {
        let mut slots = vec![false; space.slots.len()];
        set.iter().filter_map(|node| space.slot_at(node)).for_each(|slot| slots[slot] = true);
        Rc::new(AvoidedNodes { slots, jobs })
    };
    found.into_iter().map(avoided).collect()
}

/// What a job's options use of a resource; `None` if nothing.
fn job_demand(
    space: &DecisionSpace<'_>,
    job: usize,
    resource: usize,
    (of, avoided): &LimitSource,
) -> Option<ResourceDemand> {
    let avoids = avoided.as_ref().is_none_or(|set| set.jobs.binary_search(&job).is_ok());
    let job = &space.jobs[job];
    let amounts: Vec<f64> = job
        .options
        .iter()
        .map(|spec: &JobOption| if avoids { option_amount(space, job, spec, *of) } else { 0.0 })
        .collect();
    let most = amounts.iter().copied().fold(0.0, f64::max);
    (most > 0.0).then_some(ResourceDemand { resource, amounts, most })
}

fn option_amount(
    space: &DecisionSpace<'_>,
    job: &JobSpace<'_>,
    spec: &JobOption,
    of: LimitedResource,
) -> f64 {
    let on_type = |t: usize, part: HostResource, unit: u64| match &space.shares {
        Some(_) if t == spec.node_type => host_units(space, job, spec, (part, unit)) as f64,
        _ => 0.0,
    };
    // Those of the kept nodes that nobody else may use, or not this job if it did not have them.
    let kept = |is_own: &dyn Fn(&NodeSlot<'_>) -> bool| {
        let kept = job.kept_order.iter().take(spec.kept as usize);
        kept.filter(|kept| kept.slots.iter().any(|i| is_own(&space.slots[*i]))).count() as u32
    };
    let (t, level, nodes) = match of {
        LimitedResource::Nodes(t, level) => (t, level, spec.nodes),
        LimitedResource::StartNodes(t, level) => (t, level, spec.nodes - kept(&|slot| !slot.startable)),
        LimitedResource::Allowed(t, level) => {
            (t, level, spec.nodes - kept(&|slot| job_excludes(job.job, &slot.gap.node)))
        }
        LimitedResource::Cpus(t, unit) => return on_type(t, HostResource::Cpus, unit),
        LimitedResource::Memory(t, unit) => return on_type(t, HostResource::Memory, unit),
        LimitedResource::Changes => return f64::from(u8::from(spec.voluntary)),
    };
    f64::from(if t == spec.node_type { nodes * blocks_in(job.job.block, level) } else { 0 })
}

/// How many units of CPUs or memory of hosts an option takes, each of its workers by itself.
pub(crate) fn host_units(
    space: &DecisionSpace<'_>,
    job: &JobSpace<'_>,
    spec: &JobOption,
    (part, unit): (HostResource, u64),
) -> u64 {
    let Some(shares) = &space.shares else { return 0 };
    let units = |portion: CpuMemory| part.amount_in(portion) / unit.max(1);
    let needs = plan_needs(job.job, &space.types[spec.node_type], &spec.exec_plan);
    let kept = job.kept_order.iter().take(spec.kept as usize);
    let kept = kept.filter_map(|kept| space.worker_on(&kept.slots)).map(|w| units(w.share_for_kept(needs)));
    let own = shares.least[spec.node_type].scaled_by(job.job.block.max(1));
    let fresh = units(needs.host_portion(own)).saturating_mul((spec.nodes - spec.kept).into());
    kept.fold(fresh, u64::saturating_add)
}

/// How many blocks of a level one of these takes: none of a level that it is no multiple of.
fn blocks_in(block: BlockSize, level: BlockSize) -> u32 {
    let block = block.max(1);
    if block.is_multiple_of(level) { block / level } else { 0 }
}
