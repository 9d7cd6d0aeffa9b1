//! Finds what can run short, how much of it there is in each step, and what each option uses of it.

use std::collections::BTreeMap;

use super::decision::{JobSpace, Space};
use super::resource::{Demand, Level, Limit, Resource};
use super::slots::{self, Slot, excludes};
use super::spec::Spec;
use infill_model::NodeName;

/// A resource with the nodes to avoid and the jobs that avoid at least these, where it is about such.
type Source = (Resource, Option<(Vec<NodeName>, Vec<usize>)>);

/// Adds all limits to a space, and to its jobs what they use of them.
pub(crate) fn add(space: &mut Space<'_>) {
    let sources = sources(space);
    let mut limit_at = vec![vec![None; sources.len()]; space.steps.len()];
    let mut limits = Vec::new();
    for (step, at) in limit_at.iter_mut().enumerate() {
        for ((of, avoided), place) in sources.iter().zip(at) {
            let most = most(space, step, *of, avoided.as_ref().map(|(set, _)| set.as_slice()));
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
        let sets = avoided.iter().map(|(set, jobs)| (set.clone(), jobs.clone()));
        found.extend(sets.map(|set| (Resource::Allowed(node_type, level), Some(set))));
    }
    if !space.problem.drain {
        found.push((Resource::Changes, None));
    }
    found
}

/// How much of a resource there is in a step; `None` where that is no limit of its own.
fn most(space: &Space<'_>, step: usize, of: Resource, avoided: Option<&[NodeName]>) -> Option<u32> {
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
            let lasts = |s: &&Slot<'_>| s.node_type == t && s.lasts > step;
            let slots = slots::distinct(avoided.unwrap_or_default()).filter_map(|n| space.slot(n));
            let lost = slots.map(|i| &space.slots[i]).filter(lasts).count() as u32;
            Some(all(t).saturating_sub(lost)).filter(|n| *n < all(t))
        }
        Resource::Changes => (step == 0).then_some(space.problem.config.max_changes),
    }
}

/// As [`most`], of blocks.
fn most_blocks(space: &Space<'_>, step: usize, of: Resource, avoided: Option<&[NodeName]>) -> Option<u32> {
    let count = |t: usize, level: Level, also: &dyn Fn(&Slot<'_>) -> bool| {
        let may_be_used = |slot: &Slot<'_>| slot.node_type == t && slot.lasts > step && also(slot);
        space.blocks.count(level, |i| may_be_used(&space.slots[i]))
    };
    let all = |t: usize, level: Level| count(t, level, &|_| true);
    let is_allowed = |slot: &Slot<'_>| avoided.is_none_or(|set| set.binary_search(&slot.gap.node).is_err());
    match of {
        Resource::Nodes(t, level) => Some(all(t, level)),
        Resource::StartNodes(t, level) => {
            Some(count(t, level, &|slot| slot.startable)).filter(|n| *n < all(t, level))
        }
        Resource::Allowed(t, level) => Some(count(t, level, &is_allowed)).filter(|n| *n < all(t, level)),
        Resource::Changes => None,
    }
}

/// Each distinct set of nodes that jobs must avoid, with the jobs that avoid at least these.
fn avoided_sets(space: &Space<'_>) -> BTreeMap<Vec<NodeName>, Vec<usize>> {
    let mut sets: BTreeMap<Vec<NodeName>, Vec<usize>> = BTreeMap::new();
    for job in space.jobs.iter().filter(|j| !j.job.excluded.is_empty()) {
        sets.entry(job.job.excluded.clone()).or_default();
    }
    for (set, jobs) in &mut sets {
        let avoids = |i: &usize| set.iter().all(|node| excludes(space.jobs[*i].job, node));
        *jobs = (0..space.jobs.len()).filter(avoids).collect();
    }
    sets
}

/// What a job's options use of a resource; `None` if nothing.
fn demand(space: &Space<'_>, job: usize, resource: usize, (of, avoided): &Source) -> Option<Demand> {
    let avoids = avoided.as_ref().is_none_or(|(_, jobs)| jobs.binary_search(&job).is_ok());
    let job = &space.jobs[job];
    let amount = |spec: &Spec| f64::from(if avoids { amount(space, job, spec, *of) } else { 0 });
    let amounts: Vec<f64> = job.options.iter().map(amount).collect();
    let most = amounts.iter().copied().fold(0.0, f64::max);
    (most > 0.0).then_some(Demand { resource, amounts, most })
}

fn amount(space: &Space<'_>, job: &JobSpace<'_>, spec: &Spec, of: Resource) -> u32 {
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
        Resource::Changes => return u32::from(spec.voluntary),
    };
    if t == spec.node_type { nodes * blocks_in(job.job.block, level) } else { 0 }
}

/// How many blocks of a level one of these takes: none of a level that it is no multiple of.
fn blocks_in(block: Level, level: Level) -> u32 {
    let block = block.max(1);
    if block.is_multiple_of(level) { block / level } else { 0 }
}
