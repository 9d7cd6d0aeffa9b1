//! The resources of nodes, and the resources that each job holds or asks for on them.
//!
//! A job's own record is authoritative; a node's sums lag behind it by seconds. Where a record does not say
//! clearly what a job has on a node, the job counts as having all of it. Then infill sends no job there.

use super::field::{WireList, WireNumber, WireObject, WireText, WireWords};
use super::record::{self, RecordFlaws, SharedNames, WireRecord};
use super::wire;
use crate::{PartitionSharing, gres};
use infill_model::{AllocatedResources, GpuCounts, NodeName, Resources};

/// The word of a job's `shared` that leaves its nodes open to other jobs. All other words reserve them for
/// the job, its user or a group.
const OVERSUBSCRIBE_WORD: &str = "oversubscribe";

impl WireRecord for PartitionSharing {
    const LIST: &'static str = "partitions";
    const KIND: &'static str = "partition";
    type Wire<'a> = wire::WirePartition<'a>;

    fn record_name(wire: &wire::WirePartition<'_>) -> Option<String> {
        if let WireText::Value(name) = &wire.name { Some(name.to_string()) } else { None }
    }

    /// Slurm writes EXCLUSIVE as 0 jobs that share. If a limit on CPUs cannot be read, it counts as 0, so
    /// that nothing is lent.
    fn from_wire(wire: &wire::WirePartition<'_>, _: &mut SharedNames, flaws: &mut RecordFlaws) -> Self {
        let name = Self::record_name(wire).ok_or("name");
        let maximums = if let WireObject::Value(maximums) = &wire.maximums { Some(maximums) } else { None };
        let jobs = maximums.and_then(|maximums| match &maximums.oversubscribe {
            WireObject::Value(limit) => as_u64(limit.jobs),
            _ => None,
        });
        let exclusive = jobs.map(|jobs| jobs == 0).ok_or("maximums.oversubscribe.jobs");
        let max_cpus_per_node = match maximums.map_or(WireNumber::Bad, |maximums| maximums.cpus_per_node) {
            WireNumber::Infinite => Ok(None),
            limit => record::whole_number(limit, "maximums.cpus_per_node"),
        };
        PartitionSharing {
            name: flaws.or_default(name),
            exclusive: flaws.or_default(exclusive),
            max_cpus_per_node: flaws.value_or(max_cpus_per_node, Some(0)),
        }
    }
}

/// The resources of a node that jobs may have: without the cores and the memory that the site reserves for
/// the system. A value that cannot be read counts as 0.
pub(super) fn node_capacity(w: &wire::WireNode<'_>) -> Resources {
    let system_mib = as_u64(w.specialized_memory).unwrap_or(0);
    Resources {
        cpus: cpu_count(as_u64(w.effective_cpus).or(as_u64(w.cpus))),
        memory_mib: as_u64(w.real_memory).unwrap_or(0).saturating_sub(system_mib),
        gpus: gpu_counts(&w.gres),
    }
}

/// The resources that jobs have on a node, by the node's own sums.
pub(super) fn node_usage(w: &wire::WireNode<'_>) -> Resources {
    Resources {
        cpus: cpu_count(as_u64(w.alloc_cpus)),
        memory_mib: as_u64(w.alloc_memory).unwrap_or(0),
        gpus: gpu_counts(&w.gres_used),
    }
}

/// The resources that a job has on its nodes, sorted by node. Empty where it has whole nodes, or where the
/// record does not say.
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
    // One for each node, in the same order; none if the job has no generic resources.
    let details: &[WireText<'_>] = match &w.gres_detail {
        WireList::Unset => &[],
        WireList::Value(details) if details.is_empty() || details.len() == listed.len() => details,
        WireList::Value(_) | WireList::Bad => return None,
    };
    let mut allocations = Vec::with_capacity(listed.len());
    for (at, allocation) in listed.iter().enumerate() {
        let WireObject::Value(allocation) = allocation else { return None };
        allocations.push(AllocatedResources {
            node: allocation_node(allocation, shared)?,
            holds: allocation_resources(allocation, details.get(at))?,
        });
    }
    allocations.sort_by(|a, b| a.node.cmp(&b.node));
    Some(allocations)
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
    let WireObject::Value(cpus) = &w.cpus else { return None };
    let WireObject::Value(memory) = &w.memory else { return None };
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

/// Most resources that a job may take on one of its `nodes` nodes. `None` where it wants whole nodes, or
/// where the record does not say clearly.
///
/// If the record has only a total, one node may have to give all of it but one unit for each other node.
pub(super) fn job_request(w: &wire::WireJob<'_>, nodes: u32) -> Option<Resources> {
    let others = u64::from(nodes.max(1)) - 1;
    if !allows_sharing(&w.shared) || !is_empty(&w.tres_per_socket) {
        return None;
    }
    let gpus = gpus_wanted(w, others)?;
    let cpus_for_gpus = gpus_in(&w.cpus_per_tres)?.saturating_mul(gpus);
    let cpus = as_u64(w.cpus)?.saturating_sub(others).max(1).max(cpus_for_gpus);
    let memory_mib = match (gpus_in(&w.memory_per_tres)?, as_u64(w.memory_per_node), as_u64(w.memory_per_cpu))
    {
        (0, Some(0), _) | (0, None, Some(0)) => return None,
        (0, Some(mib), _) => mib,
        (0, None, Some(mib)) => mib.saturating_mul(cpus),
        (0, None, None) => 0,
        (mib_per_gpu, _, _) => mib_per_gpu.saturating_mul(gpus),
    };
    let gpus = GpuCounts::from_counts([(String::new(), u32::try_from(gpus).ok()?)]);
    Some(Resources { cpus: u32::try_from(cpus).ok()?, memory_mib, gpus })
}

fn gpus_wanted(w: &wire::WireJob<'_>, others: u64) -> Option<u64> {
    let per_task = gpus_in(&w.tres_per_task)?;
    let tasks = as_u64(w.tasks).unwrap_or(1);
    let per_node = gpus_in(&w.tres_per_node)?;
    let from_job = gpus_in(&w.tres_per_job)?.saturating_sub(others);
    let from_tasks = per_task.saturating_mul(tasks.saturating_sub(others));
    Some(if per_node > 0 { per_node } else { from_job.max(from_tasks) })
}

/// The number of GPUs in a request such as `gres/gpu:a100:2` or `cpu=4,gres/gpu=1`, or the amount for each
/// GPU in a request per GPU. `None` if the text does not say clearly.
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
