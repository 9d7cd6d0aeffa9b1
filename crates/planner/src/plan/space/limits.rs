//! Finds what can run short, how much of it there is in each step, and what each option uses of it.

use std::cmp::Reverse;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::decision::{JobSpace, Space};
use super::resource::{Demand, Level, Limit, Resource};
use super::shares::Part;
use super::slots::{Slot, excludes};
use super::spec::Spec;
use super::worker::needs_of;
use infill_model::{CpuMemory, ExcludedNodes};

/// Most sets of nodes to avoid that have limits of their own: each costs as much in every step of every
/// search. Of the others laying finds out.
const MOST_SETS: usize = 16;

/// Most sets of which it is looked whether they hold another one.
const MOST_COMPARED: usize = 64;

/// A resource, with the nodes to avoid where it is about such.
type Source = (Resource, Option<Rc<Avoided>>);

/// A set of nodes that jobs must avoid.
struct Avoided {
    /// Whether each slot is one of them.
    slots: Vec<bool>,
    /// Jobs that avoid at least these.
    jobs: Vec<usize>,
}

/// Adds all limits to a space, and to its jobs what they use of them.
pub(crate) fn add(space: &mut Space<'_>) {
    let sources = sources(space);
    let mut limit_at = vec![vec![None; sources.len()]; space.steps.len()];
    let mut limits = Vec::new();
    for (step, at) in limit_at.iter_mut().enumerate() {
        for ((of, avoided), place) in sources.iter().zip(at) {
            let most = most(space, step, *of, avoided.as_deref());
            if let Some(most) = most {
                *place = Some(limits.len());
                limits.push(Limit { of: *of, step, most });
            }
        }
    }
    for job in 0..space.jobs.len() {
        let demands = sources.iter().enumerate().filter_map(|(r, source)| demand(space, job, r, source));
        space.jobs[job].demands = demands.collect();
    }
    (space.limits, space.limit_at) = (limits, limit_at);
}

/// All that can run short in some step.
fn sources(space: &Space<'_>) -> Vec<Source> {
    let mut found = Vec::new();
    let avoided = avoided_sets(space);
    let levels = |t: usize| space.blocks.levels.iter().map(move |level| (t, *level));
    for (node_type, level) in (0..space.types.len()).flat_map(levels) {
        found.push((Resource::Nodes(node_type, level), None));
        found.push((Resource::StartNodes(node_type, level), None));
        let of_set = |set: &Rc<Avoided>| (Resource::Allowed(node_type, level), Some(set.clone()));
        found.extend(avoided.iter().map(of_set));
    }
    for (node_type, part, unit) in space.shares.iter().flat_map(|shares| shares.rows.iter().copied()) {
        let of = match part {
            Part::Cpus => Resource::Cpus(node_type, unit),
            Part::Memory => Resource::Memory(node_type, unit),
        };
        found.push((of, None));
    }
    if !space.problem.drain {
        found.push((Resource::Changes, None));
    }
    found
}

/// How much of a resource there is in a step; `None` where that is no limit of its own.
fn most(space: &Space<'_>, step: usize, of: Resource, avoided: Option<&Avoided>) -> Option<u32> {
    let all = |t: usize| space.supply[t].nodes[step];
    match of {
        Resource::Nodes(_, level) | Resource::StartNodes(_, level) | Resource::Allowed(_, level)
            if level > 1 =>
        {
            most_blocks(space, step, of, avoided)
        }
        Resource::Nodes(t, _) => Some(all(t)),
        Resource::StartNodes(t, _) => Some(space.supply[t].startable[step]).filter(|n| *n < all(t)),
        Resource::Allowed(t, _) => {
            let lasts = |s: &Slot<'_>| s.node_type == t && s.lasts > step;
            let slots = avoided.into_iter().flat_map(|set| space.slots.iter().zip(&set.slots));
            let lost = slots.filter(|(slot, is_avoided)| **is_avoided && lasts(slot)).count() as u32;
            Some(all(t).saturating_sub(lost)).filter(|n| *n < all(t))
        }
        Resource::Cpus(t, unit) => most_of_hosts(space, step, (t, Part::Cpus, unit)),
        Resource::Memory(t, unit) => most_of_hosts(space, step, (t, Part::Memory, unit)),
        Resource::Changes => (step == 0).then_some(space.problem.config.max_changes),
    }
}

/// As [`most`], of CPUs or memory of hosts.
fn most_of_hosts(space: &Space<'_>, step: usize, (t, part, unit): (usize, Part, u64)) -> Option<u32> {
    let most = space.shares.as_ref()?.most(t, part, unit, step);
    // More than a row can tell is no limit.
    u32::try_from(most).ok()
}

/// As [`most`], of blocks.
fn most_blocks(space: &Space<'_>, step: usize, of: Resource, avoided: Option<&Avoided>) -> Option<u32> {
    let count = |t: usize, level: Level, also: &dyn Fn(usize) -> bool| {
        let may_be_used = |slot: &Slot<'_>| slot.node_type == t && slot.lasts > step;
        space.blocks.count(level, |i| may_be_used(&space.slots[i]) && also(i))
    };
    let all = |t: usize, level: Level| count(t, level, &|_| true);
    let is_allowed = |slot: usize| avoided.is_none_or(|set| !set.slots[slot]);
    match of {
        Resource::Nodes(t, level) => Some(all(t, level)),
        Resource::StartNodes(t, level) => {
            Some(count(t, level, &|slot| space.slots[slot].startable)).filter(|n| *n < all(t, level))
        }
        Resource::Allowed(t, level) => Some(count(t, level, &is_allowed)).filter(|n| *n < all(t, level)),
        Resource::Cpus(..) | Resource::Memory(..) | Resource::Changes => None,
    }
}

/// Each distinct set of nodes that jobs must avoid, by name, with the jobs that avoid at least these; of too
/// many sets those that most jobs have.
fn avoided_sets(space: &Space<'_>) -> Vec<Rc<Avoided>> {
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
        set.iter().filter_map(|node| space.slot(node)).for_each(|slot| slots[slot] = true);
        Rc::new(Avoided { slots, jobs })
    };
    found.into_iter().map(avoided).collect()
}

/// What a job's options use of a resource; `None` if nothing.
fn demand(space: &Space<'_>, job: usize, resource: usize, (of, avoided): &Source) -> Option<Demand> {
    let avoids = avoided.as_ref().is_none_or(|set| set.jobs.binary_search(&job).is_ok());
    let job = &space.jobs[job];
    let amount = |spec: &Spec| if avoids { amount(space, job, spec, *of) } else { 0.0 };
    let amounts: Vec<f64> = job.options.iter().map(amount).collect();
    let most = amounts.iter().copied().fold(0.0, f64::max);
    (most > 0.0).then_some(Demand { resource, amounts, most })
}

fn amount(space: &Space<'_>, job: &JobSpace<'_>, spec: &Spec, of: Resource) -> f64 {
    let on_type = |t: usize, part: Part, unit: u64| match &space.shares {
        Some(_) if t == spec.node_type => of_hosts(space, job, spec, (part, unit)) as f64,
        _ => 0.0,
    };
    // Those of the kept nodes that nobody else may use, or not this job if it did not have them.
    let kept = |is_own: &dyn Fn(&Slot<'_>) -> bool| {
        let kept = job.kept_order.iter().take(spec.kept as usize);
        kept.filter(|kept| kept.slots.iter().any(|i| is_own(&space.slots[*i]))).count() as u32
    };
    let (t, level, nodes) = match of {
        Resource::Nodes(t, level) => (t, level, spec.nodes),
        Resource::StartNodes(t, level) => (t, level, spec.nodes - kept(&|slot| !slot.startable)),
        Resource::Allowed(t, level) => {
            (t, level, spec.nodes - kept(&|slot| excludes(job.job, &slot.gap.node)))
        }
        Resource::Cpus(t, unit) => return on_type(t, Part::Cpus, unit),
        Resource::Memory(t, unit) => return on_type(t, Part::Memory, unit),
        Resource::Changes => return f64::from(u8::from(spec.voluntary)),
    };
    f64::from(if t == spec.node_type { nodes * blocks_in(job.job.block, level) } else { 0 })
}

/// How many units of CPUs or memory of hosts an option takes, each of its workers by itself.
pub(crate) fn of_hosts(space: &Space<'_>, job: &JobSpace<'_>, spec: &Spec, (part, unit): (Part, u64)) -> u64 {
    let Some(shares) = &space.shares else { return 0 };
    let units = |portion: CpuMemory| part.of(portion) / unit.max(1);
    let needs = needs_of(job.job, &space.types[spec.node_type], &spec.exec_plan);
    let kept = job.kept_order.iter().take(spec.kept as usize);
    let kept = kept.filter_map(|kept| space.worker(&kept.slots)).map(|w| units(w.keeps(needs)));
    let own = shares.least[spec.node_type].scaled_by(job.job.block.max(1));
    let fresh = units(needs.host_portion(own)).saturating_mul((spec.nodes - spec.kept).into());
    kept.fold(fresh, u64::saturating_add)
}

/// How many blocks of a level one of these takes: none of a level that it is no multiple of.
fn blocks_in(block: Level, level: Level) -> u32 {
    let block = block.max(1);
    if block.is_multiple_of(level) { block / level } else { 0 }
}
