//! Finds what can run short, how much of it each step has, and how much of it each option uses.

use std::cmp::Reverse;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::decision::{DecisionSpace, JobSpace};
use super::host_shares::HostResource;
use super::job_option::JobOption;
use super::resource::{BlockSize, LimitedResource, ResourceDemand, StepLimit};
use super::slots::{NodeSlot, job_excludes};
use super::worker_places::plan_needs;
use infill_model::ExcludedNodes;

/// The largest number of sets of excluded nodes with limits of their own. Each set costs as much in every
/// step of every search. Placement finds out about the other sets.
const MAX_SETS: usize = 16;

/// The largest number of sets that are compared to find sets that contain another one.
const MAX_COMPARED: usize = 64;

/// A resource, with the excluded nodes where it is [`LimitedResource::Allowed`].
type LimitSource = (LimitedResource, Option<Rc<AvoidedNodes>>);

/// Excluded nodes of a set of jobs, and these jobs.
type ExclusionSet = (ExcludedNodes, Vec<usize>);

/// A set of nodes that jobs must avoid.
struct AvoidedNodes {
    /// Whether each slot is one of them.
    slots: Vec<bool>,
    /// Jobs that avoid at least these slots, ascending.
    jobs: Vec<usize>,
}

/// Adds all limits to a space, and to its jobs what they use of each.
pub(crate) fn add_limits(space: &mut DecisionSpace<'_>) {
    let sources = limit_sources(space);
    let mut limit_at = vec![vec![None; sources.len()]; space.steps.len()];
    let mut limits = Vec::new();
    for (step, at) in limit_at.iter_mut().enumerate() {
        for ((resource, avoided), place) in sources.iter().zip(at) {
            let Some(most) = max_amount(space, step, *resource, avoided.as_deref()) else { continue };
            *place = Some(limits.len());
            limits.push(StepLimit { resource: *resource, step, most });
        }
    }
    for job in 0..space.jobs.len() {
        let demands = sources.iter().enumerate().filter_map(|(r, source)| job_demand(space, job, r, source));
        space.jobs[job].demands = demands.collect();
    }
    space.limits = limits;
    space.limit_at = limit_at;
}

/// Everything that can run short in some step.
fn limit_sources(space: &DecisionSpace<'_>) -> Vec<LimitSource> {
    let mut found = Vec::new();
    let avoided = avoided_sets(space);
    for node_type in 0..space.types.len() {
        for level in space.blocks.levels.iter().copied() {
            found.push((LimitedResource::Nodes(node_type, level), None));
            found.push((LimitedResource::StartNodes(node_type, level), None));
            let allowed = LimitedResource::Allowed(node_type, level);
            found.extend(avoided.iter().map(|set| (allowed, Some(set.clone()))));
        }
    }
    for (node_type, host_resource, unit) in space.shares.iter().flat_map(|shares| shares.rows.iter().copied())
    {
        let resource = match host_resource {
            HostResource::Cpus => LimitedResource::Cpus(node_type, unit),
            HostResource::Memory => LimitedResource::Memory(node_type, unit),
        };
        found.push((resource, None));
    }
    if !space.problem.drain {
        found.push((LimitedResource::Changes, None));
    }
    found
}

/// The amount of a resource in a step; `None` where that is not a limit beyond the others.
fn max_amount(
    space: &DecisionSpace<'_>,
    step: usize,
    resource: LimitedResource,
    avoided: Option<&AvoidedNodes>,
) -> Option<u32> {
    match resource {
        LimitedResource::Nodes(t, level)
        | LimitedResource::StartNodes(t, level)
        | LimitedResource::Allowed(t, level)
            if level > 1 =>
        {
            max_blocks(space, step, resource, t, level, avoided)
        }
        LimitedResource::Nodes(t, _) => Some(space.supply[t].nodes[step]),
        LimitedResource::StartNodes(t, _) => {
            let all = space.supply[t].nodes[step];
            Some(space.supply[t].startable[step]).filter(|n| *n < all)
        }
        LimitedResource::Allowed(t, _) => {
            let all = space.supply[t].nodes[step];
            let lost = avoided
                .into_iter()
                .flat_map(|set| space.slots.iter().zip(&set.slots))
                .filter(|(slot, is_avoided)| **is_avoided && slot.node_type == t && slot.lasts > step)
                .count() as u32;
            Some(all.saturating_sub(lost)).filter(|n| *n < all)
        }
        LimitedResource::Cpus(t, unit) => max_of_hosts(space, step, t, HostResource::Cpus, unit),
        LimitedResource::Memory(t, unit) => max_of_hosts(space, step, t, HostResource::Memory, unit),
        LimitedResource::Changes => (step == 0).then_some(space.problem.config.max_changes),
    }
}

/// As [`max_amount`], for CPUs or memory of hosts.
fn max_of_hosts(
    space: &DecisionSpace<'_>,
    step: usize,
    node_type: usize,
    host_resource: HostResource,
    unit: u64,
) -> Option<u32> {
    let most = space.shares.as_ref()?.max_units(node_type, host_resource, unit, step);
    // More than a row can count is not a limit.
    u32::try_from(most).ok()
}

/// As [`max_amount`], for blocks of `level` places.
fn max_blocks(
    space: &DecisionSpace<'_>,
    step: usize,
    resource: LimitedResource,
    node_type: usize,
    level: BlockSize,
    avoided: Option<&AvoidedNodes>,
) -> Option<u32> {
    let all = space.blocks.count_blocks(level, |i| is_usable(&space.slots[i], node_type, step));
    let some = match resource {
        LimitedResource::StartNodes(..) => space.blocks.count_blocks(level, |i| {
            let slot = &space.slots[i];
            is_usable(slot, node_type, step) && slot.startable
        }),
        LimitedResource::Allowed(..) => space.blocks.count_blocks(level, |i| {
            let is_avoided = avoided.is_some_and(|set| set.slots[i]);
            is_usable(&space.slots[i], node_type, step) && !is_avoided
        }),
        _ => return Some(all),
    };
    Some(some).filter(|n| *n < all)
}

fn is_usable(slot: &NodeSlot<'_>, node_type: usize, step: usize) -> bool {
    slot.node_type == node_type && slot.lasts > step
}

/// Each distinct set of nodes that jobs must avoid, sorted by name, with the jobs that avoid at least these.
/// If there are too many sets, those that most jobs have.
fn avoided_sets(space: &DecisionSpace<'_>) -> Vec<Rc<AvoidedNodes>> {
    let sets = exclusion_sets(space);
    let mut found: Vec<ExclusionSet> = Vec::new();
    for (set, jobs) in sets.iter().take(MAX_SETS) {
        let mut all = jobs.clone();
        for (other, jobs) in sets.iter().take(MAX_COMPARED) {
            if other.len() > set.len() && set.iter().all(|node| other.contains(node)) {
                all.extend(jobs);
            }
        }
        all.sort_unstable();
        found.push(((*set).clone(), all));
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut avoided = Vec::with_capacity(found.len());
    for (set, jobs) in found {
        let mut slots = vec![false; space.slots.len()];
        set.iter().filter_map(|node| space.slot_at(node)).for_each(|slot| slots[slot] = true);
        avoided.push(Rc::new(AvoidedNodes { slots, jobs }));
    }
    avoided
}

/// The distinct sets of excluded nodes with the jobs that have exactly this set, the most common set first.
fn exclusion_sets<'s>(space: &'s DecisionSpace<'_>) -> Vec<(&'s ExcludedNodes, Vec<usize>)> {
    let mut jobs_of: FxHashMap<&ExcludedNodes, Vec<usize>> = FxHashMap::default();
    // Jobs that share a list are found by its identity, because comparing whole lists takes time.
    let mut lists: FxHashMap<usize, &ExcludedNodes> = FxHashMap::default();
    let mut jobs_of_list: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for (i, job) in space.jobs.iter().enumerate().filter(|(_, j)| !j.job.excluded.is_empty()) {
        let list = &job.job.excluded;
        lists.entry(list.list_id()).or_insert(list);
        jobs_of_list.entry(list.list_id()).or_default().push(i);
    }
    for (list_id, jobs) in jobs_of_list {
        jobs_of.entry(lists[&list_id]).or_default().extend(jobs);
    }
    let mut sets: Vec<(&ExcludedNodes, Vec<usize>)> = jobs_of.into_iter().collect();
    sets.iter_mut().for_each(|(_, jobs)| jobs.sort_unstable());
    // Each job is in exactly one set, so this order is always the same.
    sets.sort_unstable_by_key(|(_, jobs)| (Reverse(jobs.len()), jobs[0]));
    sets
}

/// What a job's options use of a resource; `None` if nothing.
fn job_demand(
    space: &DecisionSpace<'_>,
    job: usize,
    resource: usize,
    source: &LimitSource,
) -> Option<ResourceDemand> {
    let (kind, avoided) = source;
    let avoids = avoided.as_ref().is_none_or(|set| set.jobs.binary_search(&job).is_ok());
    let job = &space.jobs[job];
    let amounts: Vec<f64> = job
        .options
        .iter()
        .map(|spec| if avoids { option_amount(space, job, spec, *kind) } else { 0.0 })
        .collect();
    ResourceDemand::from_amounts(resource, amounts)
}

/// What one option of a job uses of a resource.
fn option_amount(
    space: &DecisionSpace<'_>,
    job: &JobSpace<'_>,
    spec: &JobOption,
    resource: LimitedResource,
) -> f64 {
    // Kept nodes that only this job may use, or that it may use only because it has them, are not counted.
    let (t, level, nodes) = match resource {
        LimitedResource::Nodes(t, level) => (t, level, spec.nodes),
        LimitedResource::StartNodes(t, level) => {
            let kept = count_kept(space, job, spec, |slot| !slot.startable);
            (t, level, spec.nodes - kept)
        }
        LimitedResource::Allowed(t, level) => {
            let kept = count_kept(space, job, spec, |slot| job_excludes(job.job, &slot.gap.node));
            (t, level, spec.nodes - kept)
        }
        LimitedResource::Cpus(t, _) | LimitedResource::Memory(t, _) if t != spec.node_type => return 0.0,
        LimitedResource::Cpus(_, unit) => {
            return host_units(space, job, spec, HostResource::Cpus, unit) as f64;
        }
        LimitedResource::Memory(_, unit) => {
            return host_units(space, job, spec, HostResource::Memory, unit) as f64;
        }
        LimitedResource::Changes => return f64::from(u8::from(spec.voluntary)),
    };
    f64::from(if t == spec.node_type { nodes * blocks_in(job.job.places_per_node, level) } else { 0 })
}

/// The number of nodes that an option keeps and that have a slot which passes the test.
fn count_kept(
    space: &DecisionSpace<'_>,
    job: &JobSpace<'_>,
    spec: &JobOption,
    is_counted: impl Fn(&NodeSlot<'_>) -> bool,
) -> u32 {
    let kept = job.kept_order.iter().take(spec.kept as usize);
    kept.filter(|kept| kept.slots.iter().any(|i| is_counted(&space.slots[*i]))).count() as u32
}

/// Units of CPUs or memory of hosts that an option takes. What each worker takes is rounded down by itself. 0
/// where CPUs and memory are not counted.
pub(crate) fn host_units(
    space: &DecisionSpace<'_>,
    job: &JobSpace<'_>,
    spec: &JobOption,
    host_resource: HostResource,
    unit: u64,
) -> u64 {
    let Some(shares) = &space.shares else { return 0 };
    let unit = unit.max(1);
    let needs = plan_needs(job.job, &space.types[spec.node_type], &spec.exec_plan);
    let own = shares.smallest_shares[spec.node_type].scaled_by(job.job.places_per_node.max(1));
    let per_fresh = host_resource.amount_in(needs.host_portion(own)) / unit;
    let fresh = per_fresh.saturating_mul((spec.nodes - spec.kept).into());
    job.kept_order
        .iter()
        .take(spec.kept as usize)
        .filter_map(|kept| space.worker_on(&kept.slots))
        .map(|worker| host_resource.amount_in(worker.share_for_kept(needs)) / unit)
        .fold(fresh, u64::saturating_add)
}

/// The number of blocks of a level that one block takes; 0 if its size is not a multiple of the level.
fn blocks_in(block: BlockSize, level: BlockSize) -> u32 {
    let block = block.max(1);
    if block.is_multiple_of(level) { block / level } else { 0 }
}
