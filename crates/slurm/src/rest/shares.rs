//! What nodes have, and what of it each job holds.
//!
//! A job's own records are the truth; a node's sums lag behind them by seconds. Where a record does not say
//! clearly what a job has of a node, the job counts as having all of it: nobody else is sent there then.

use super::field::{List, Number, Object, Text, Words};
use super::record::{self, Flaws, Record, Shared};
use super::wire;
use crate::{Partition, gres};
use infill_model::{AllocatedResources, GpuCounts, NodeName, Resources};

/// A word of a job's `shared` that leaves its nodes open to other jobs; all others keep them to the job, its
/// user or some group.
const OPEN: &str = "oversubscribe";

impl Record for Partition {
    const LIST: &'static str = "partitions";
    const KIND: &'static str = "partition";
    type Wire<'a> = wire::Partition<'a>;

    fn name(wire: &wire::Partition<'_>) -> Option<String> {
        if let Text::Value(name) = &wire.name { Some(name.to_string()) } else { None }
    }

    /// Slurm writes EXCLUSIVE as 0 jobs that share. Of a limit that cannot be read nobody knows what it
    /// leaves: nothing is lent.
    fn convert(wire: &wire::Partition<'_>, _: &mut Shared, flaws: &mut Flaws) -> Self {
        let name = Self::name(wire).ok_or("name");
        let maximums = if let Object::Value(maximums) = &wire.maximums { Some(maximums) } else { None };
        let jobs = maximums.and_then(|maximums| match &maximums.oversubscribe {
            Object::Value(most) => natural(most.jobs),
            _ => None,
        });
        let exclusive = jobs.map(|jobs| jobs == 0).ok_or("maximums.oversubscribe.jobs");
        let max_cpus_per_node = match maximums.map_or(Number::Bad, |maximums| maximums.cpus_per_node) {
            Number::Infinite => Ok(None),
            most => record::natural(most, "maximums.cpus_per_node"),
        };
        Partition {
            name: flaws.or_default(name),
            exclusive: flaws.or_default(exclusive),
            max_cpus_per_node: flaws.or(max_cpus_per_node, Some(0)),
        }
    }
}

/// What jobs may have of a node: without the cores and the memory that the site keeps for itself. What cannot
/// be read is not there to be had.
pub(super) fn has(w: &wire::Node<'_>) -> Resources {
    let kept_mib = natural(w.specialized_memory).unwrap_or(0);
    Resources {
        cpus: cpus(natural(w.effective_cpus).or(natural(w.cpus))),
        memory_mib: natural(w.real_memory).unwrap_or(0).saturating_sub(kept_mib),
        gpus: gpus(&w.gres),
    }
}

/// What jobs have of a node by its own sums.
pub(super) fn used(w: &wire::Node<'_>) -> Resources {
    Resources {
        cpus: cpus(natural(w.alloc_cpus)),
        memory_mib: natural(w.alloc_memory).unwrap_or(0),
        gpus: gpus(&w.gres_used),
    }
}

/// What a job has of its nodes, sorted by node; empty where it has them whole, or does not say what.
pub(super) fn allocations(w: &wire::Job<'_>, shared: &mut Shared) -> Vec<AllocatedResources> {
    parts(w, shared).unwrap_or_default()
}

fn parts(w: &wire::Job<'_>, shared: &mut Shared) -> Option<Vec<AllocatedResources>> {
    if !is_open(&w.shared) {
        return None;
    }
    let Object::Value(resources) = w.job_resources.read::<Object<wire::JobResources<'_>>>() else {
        return None;
    };
    let Object::Value(nodes) = resources.nodes else { return None };
    if nodes.whole != Number::Value(0) {
        return None;
    }
    let List::Value(listed) = nodes.allocation.read::<List<Object<wire::NodeAllocation<'_>>>>() else {
        return None;
    };
    // One for each node, in their order; none at all where the job has no generic resources.
    let details: &[Text<'_>] = match &w.gres_detail {
        List::Unset => &[],
        List::Value(details) if details.is_empty() || details.len() == listed.len() => details,
        List::Value(_) | List::Bad => return None,
    };
    let part = |(at, listed): (usize, &Object<wire::NodeAllocation<'_>>)| {
        let Object::Value(listed) = listed else { return None };
        Some(AllocatedResources { node: name(listed, shared)?, holds: holds(listed, details.get(at))? })
    };
    let mut parts: Vec<AllocatedResources> = listed.iter().enumerate().map(part).collect::<Option<_>>()?;
    parts.sort_by(|a, b| a.node.cmp(&b.node));
    Some(parts)
}

fn is_open(shared: &Words<'_>) -> bool {
    match shared {
        Words::Unset => true,
        Words::Value(words) => words.iter().all(|w| w.eq_ignore_ascii_case(OPEN)),
        Words::Bad => false,
    }
}

fn name(w: &wire::NodeAllocation<'_>, shared: &mut Shared) -> Option<NodeName> {
    match &w.name {
        Text::Value(name) if !name.is_empty() => Some(shared.name(name)),
        _ => None,
    }
}

fn holds(w: &wire::NodeAllocation<'_>, detail: Option<&Text<'_>>) -> Option<Resources> {
    let (Object::Value(cpus), Object::Value(memory)) = (&w.cpus, &w.memory) else { return None };
    let gpus = match detail {
        None | Some(Text::Unset) => gres::gpus_held(""),
        Some(Text::Value(detail)) => gres::gpus_held(detail),
        Some(Text::Bad) => None,
    };
    Some(Resources {
        cpus: u32::try_from(natural(cpus.count)?).ok()?,
        memory_mib: natural(memory.allocated)?,
        gpus: gpus?,
    })
}

/// What a job asks for of each of its `nodes` nodes, at the most; `None` where it wants them whole, or does
/// not say clearly what.
///
/// Where it only says what it wants altogether, one node may have to give nearly all of it: each of the
/// others gives one at least.
pub(super) fn wants(w: &wire::Job<'_>, nodes: u32) -> Option<Resources> {
    let others = u64::from(nodes.max(1)) - 1;
    if !is_open(&w.shared) || !is_empty(&w.tres_per_socket) {
        return None;
    }
    let gpus = gpus_wanted(w, others)?;
    let with_gpus = gpus_in(&w.cpus_per_tres)?.saturating_mul(gpus);
    let cpus = natural(w.cpus)?.saturating_sub(others).max(1).max(with_gpus);
    let memory_mib =
        match (gpus_in(&w.memory_per_tres)?, natural(w.memory_per_node), natural(w.memory_per_cpu)) {
            (0, Some(0), _) | (0, None, Some(0)) => return None,
            (0, Some(mib), _) => mib,
            (0, None, Some(mib)) => mib.saturating_mul(cpus),
            (0, None, None) => 0,
            (mib_a_gpu, _, _) => mib_a_gpu.saturating_mul(gpus),
        };
    let gpus = GpuCounts::from_counts([(String::new(), u32::try_from(gpus).ok()?)]);
    Some(Resources { cpus: u32::try_from(cpus).ok()?, memory_mib, gpus })
}

fn gpus_wanted(w: &wire::Job<'_>, others: u64) -> Option<u64> {
    let per_task = gpus_in(&w.tres_per_task)?;
    let tasks = natural(w.tasks).unwrap_or(1);
    let per_node = gpus_in(&w.tres_per_node)?;
    let of_job = gpus_in(&w.tres_per_job)?.saturating_sub(others);
    let of_tasks = per_task.saturating_mul(tasks.saturating_sub(others));
    Some(if per_node > 0 { per_node } else { of_job.max(of_tasks) })
}

/// The number of GPUs in a request such as `gres/gpu:a100:2` or `cpu=4,gres/gpu=1`, or what is asked for
/// each; `None` if that cannot be told.
fn gpus_in(text: &Text<'_>) -> Option<u64> {
    match text {
        Text::Unset => Some(0),
        Text::Value(text) => gres::gpus_asked(text),
        Text::Bad => None,
    }
}

fn is_empty(text: &Text<'_>) -> bool {
    match text {
        Text::Unset => true,
        Text::Value(text) => text.is_empty(),
        Text::Bad => false,
    }
}

fn gpus(text: &Text<'_>) -> GpuCounts {
    if let Text::Value(text) = text { gres::gpus(text).unwrap_or_default() } else { GpuCounts::default() }
}

fn cpus(n: Option<u64>) -> u32 {
    n.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn natural(n: Number) -> Option<u64> {
    if let Number::Value(n) = n { u64::try_from(n).ok() } else { None }
}
