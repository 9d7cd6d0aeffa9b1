//! What nodes have, and what of it each job holds.
//!
//! A job's own records are the truth; a node's sums lag behind them by seconds. Where a record does not say
//! clearly what a job has of a node, the job counts as having all of it: nobody else is sent there then.

use super::field::{WireList, WireNumber, WireObject, WireText, WireWords};
use super::record::{self, RecordFlaws, SharedNames, WireRecord};
use super::wire;
use crate::{PartitionSharing, gres};
use infill_model::{AllocatedResources, GpuCounts, NodeName, Resources};

/// A word of a job's `shared` that leaves its nodes open to other jobs; all others keep them to the job, its
/// user or some group.
const OVERSUBSCRIBE_WORD: &str = "oversubscribe";

impl WireRecord for PartitionSharing {
    const LIST: &'static str = "partitions";
    const KIND: &'static str = "partition";
    type Wire<'a> = wire::WirePartition<'a>;

    fn record_name(wire: &wire::WirePartition<'_>) -> Option<String> {
        if let WireText::Value(name) = &wire.name { Some(name.to_string()) } else { None }
    }

    /// Slurm writes EXCLUSIVE as 0 jobs that share. Of a limit that cannot be read nobody knows what it
    /// leaves: nothing is lent.
    fn from_wire(wire: &wire::WirePartition<'_>, _: &mut SharedNames, flaws: &mut RecordFlaws) -> Self {
        let name = Self::record_name(wire).ok_or("name");
        let maximums = if let WireObject::Value(maximums) = &wire.maximums { Some(maximums) } else { None };
        let jobs = maximums.and_then(|maximums| match &maximums.oversubscribe {
            WireObject::Value(most) => as_u64(most.jobs),
            _ => None,
        });
        let exclusive = jobs.map(|jobs| jobs == 0).ok_or("maximums.oversubscribe.jobs");
        let max_cpus_per_node = match maximums.map_or(WireNumber::Bad, |maximums| maximums.cpus_per_node) {
            WireNumber::Infinite => Ok(None),
            most => record::whole_number(most, "maximums.cpus_per_node"),
        };
        PartitionSharing {
            name: flaws.or_default(name),
            exclusive: flaws.or_default(exclusive),
            max_cpus_per_node: flaws.value_or(max_cpus_per_node, Some(0)),
        }
    }
}

/// What jobs may have of a node: without the cores and the memory that the site keeps for itself. What cannot
/// be read is not there to be had.
pub(super) fn node_capacity(w: &wire::WireNode<'_>) -> Resources {
    let kept_mib = as_u64(w.specialized_memory).unwrap_or(0);
    Resources {
        cpus: cpu_count(as_u64(w.effective_cpus).or(as_u64(w.cpus))),
        memory_mib: as_u64(w.real_memory).unwrap_or(0).saturating_sub(kept_mib),
        gpus: gpu_counts(&w.gres),
    }
}

/// What jobs have of a node by its own sums.
pub(super) fn node_usage(w: &wire::WireNode<'_>) -> Resources {
    Resources {
        cpus: cpu_count(as_u64(w.alloc_cpus)),
        memory_mib: as_u64(w.alloc_memory).unwrap_or(0),
        gpus: gpu_counts(&w.gres_used),
    }
}

/// What a job has of its nodes, sorted by node; empty where it has them whole, or does not say what.
pub(super) fn job_allocations(w: &wire::WireJob<'_>, shared: &mut SharedNames) -> Vec<AllocatedResources> {
    listed_allocations(w, shared).unwrap_or_default()
}

fn listed_allocations(w: &wire::WireJob<'_>, shared: &mut SharedNames) -> Option<Vec<AllocatedResources>> {
    if !allows_sharing(&w.shared) {
        return None;
    }
    let WireObject::Value(resources) =
        w.job_resources.parse_or_default::<WireObject<wire::JobResources<'_>>>()
    else {
        return None;
    };
    let WireObject::Value(nodes) = resources.nodes else { return None };
    if nodes.whole != WireNumber::Value(0) {
        return None;
    }
    let WireList::Value(listed) =
        nodes.allocation.parse_or_default::<WireList<WireObject<wire::NodeAllocation<'_>>>>()
    else {
        return None;
    };
    // One for each node, in their order; none at all where the job has no generic resources.
    let details: &[WireText<'_>] = match &w.gres_detail {
        WireList::Unset => &[],
        WireList::Value(details) if details.is_empty() || details.len() == listed.len() => details,
        WireList::Value(_) | WireList::Bad => return None,
    };
    let part = |(at, listed): (usize, &WireObject<wire::NodeAllocation<'_>>)| {
        let WireObject::Value(listed) = listed else { return None };
        Some(AllocatedResources {
            node: allocation_node(listed, shared)?,
            holds: allocation_resources(listed, details.get(at))?,
        })
    };
    let mut parts: Vec<AllocatedResources> = listed.iter().enumerate().map(part).collect::<Option<_>>()?;
    parts.sort_by(|a, b| a.node.cmp(&b.node));
    Some(parts)
}

fn allows_sharing(shared: &WireWords<'_>) -> bool {
    match shared {
        WireWords::Unset => true,
        WireWords::Value(words) => words.iter().all(|w| w.eq_ignore_ascii_case(OVERSUBSCRIBE_WORD)),
        WireWords::Bad => false,
    }
}

fn allocation_node(w: &wire::NodeAllocation<'_>, shared: &mut SharedNames) -> Option<NodeName> {
    match &w.name {
        WireText::Value(name) if !name.is_empty() => Some(shared.intern_name(name)),
        _ => None,
    }
}

fn allocation_resources(w: &wire::NodeAllocation<'_>, detail: Option<&WireText<'_>>) -> Option<Resources> {
    let (WireObject::Value(cpus), WireObject::Value(memory)) = (&w.cpus, &w.memory) else { return None };
    let gpus = match detail {
        None | Some(WireText::Unset) => gres::gpus_held(""),
        Some(WireText::Value(detail)) => gres::gpus_held(detail),
        Some(WireText::Bad) => None,
    };
    Some(Resources {
        cpus: u32::try_from(as_u64(cpus.count)?).ok()?,
        memory_mib: as_u64(memory.allocated)?,
        gpus: gpus?,
    })
}

/// What a job asks for of each of its `nodes` nodes, at the most; `None` where it wants them whole, or does
/// not say clearly what.
///
/// Where it only says what it wants altogether, one node may have to give nearly all of it: each of the
/// others gives one at least.
pub(super) fn job_request(w: &wire::WireJob<'_>, nodes: u32) -> Option<Resources> {
    let others = u64::from(nodes.max(1)) - 1;
    if !allows_sharing(&w.shared) || !is_empty(&w.tres_per_socket) {
        return None;
    }
    let gpus = gpus_wanted(w, others)?;
    let with_gpus = gpus_in(&w.cpus_per_tres)?.saturating_mul(gpus);
    let cpus = as_u64(w.cpus)?.saturating_sub(others).max(1).max(with_gpus);
    let memory_mib = match (gpus_in(&w.memory_per_tres)?, as_u64(w.memory_per_node), as_u64(w.memory_per_cpu))
    {
        (0, Some(0), _) | (0, None, Some(0)) => return None,
        (0, Some(mib), _) => mib,
        (0, None, Some(mib)) => mib.saturating_mul(cpus),
        (0, None, None) => 0,
        (mib_a_gpu, _, _) => mib_a_gpu.saturating_mul(gpus),
    };
    let gpus = GpuCounts::from_counts([(String::new(), u32::try_from(gpus).ok()?)]);
    Some(Resources { cpus: u32::try_from(cpus).ok()?, memory_mib, gpus })
}

fn gpus_wanted(w: &wire::WireJob<'_>, others: u64) -> Option<u64> {
    let per_task = gpus_in(&w.tres_per_task)?;
    let tasks = as_u64(w.tasks).unwrap_or(1);
    let per_node = gpus_in(&w.tres_per_node)?;
    let of_job = gpus_in(&w.tres_per_job)?.saturating_sub(others);
    let of_tasks = per_task.saturating_mul(tasks.saturating_sub(others));
    Some(if per_node > 0 { per_node } else { of_job.max(of_tasks) })
}

/// The number of GPUs in a request such as `gres/gpu:a100:2` or `cpu=4,gres/gpu=1`, or what is asked for
/// each; `None` if that cannot be told.
fn gpus_in(text: &WireText<'_>) -> Option<u64> {
    match text {
        WireText::Unset => Some(0),
        WireText::Value(text) => gres::gpus_requested(text),
        WireText::Bad => None,
    }
}

fn is_empty(text: &WireText<'_>) -> bool {
    match text {
        WireText::Unset => true,
        WireText::Value(text) => text.is_empty(),
        WireText::Bad => false,
    }
}

fn gpu_counts(text: &WireText<'_>) -> GpuCounts {
    if let WireText::Value(text) = text {
        gres::gpu_counts(text).unwrap_or_default()
    } else {
        GpuCounts::default()
    }
}

fn cpu_count(n: Option<u64>) -> u32 {
    n.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn as_u64(n: WireNumber) -> Option<u64> {
    if let WireNumber::Value(n) = n { u64::try_from(n).ok() } else { None }
}
