//! Checks which main jobs can be extended by wings on a site that lends GPUs.

use std::collections::BTreeSet;
use std::fmt;

use axum::http::StatusCode;
use infill_model::{Job, LendingUnit, NodeName, Resources, Snapshot};

use super::RequestDenial;

/// Why a job cannot be extended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExtensionError {
    /// It will never be possible.
    Never(String),
    /// Slurm, or the last snapshot, does not show enough yet.
    NotYet(String),
}

impl ExtensionError {
    fn never(job: &Job, problem: impl fmt::Display) -> ExtensionError {
        let expected = "where GPUs are lent, --extend expects a job with one or more GPUs of one node";
        ExtensionError::Never(format!("job {} {problem}; {expected}", job.id))
    }

    fn not_yet(job: &Job, problem: impl fmt::Display) -> ExtensionError {
        ExtensionError::NotYet(format!("job {}: {problem}; try again", job.id))
    }
}

/// The GPUs that a job has of its only node, as one worker: `n1:0+1`. `snapshot`: the last one.
///
/// # Errors
/// When the job has anything but GPUs of one node with their shares of CPUs and memory, or when the snapshot
/// does not show its GPUs yet.
pub(super) fn own_places(job: &Job, snapshot: Option<&Snapshot>) -> Result<NodeName, ExtensionError> {
    let host = only_host(job)?;
    let holds = job.allocations.iter().find(|part| part.node == host).map(|part| &part.holds);
    if let Some(holds) = holds.filter(|holds| holds.gpus.total_count() == 0) {
        return Err(ExtensionError::never(job, format!("has {holds} of {host}, and no GPU")));
    }
    if job.nodes.iter().any(|node| !node.is_place()) {
        let why = "whose GPUs are not lent: it is not in infill's partition, or has GPUs of several types";
        return Err(ExtensionError::never(job, format!("is on {host}, {why}")));
    }
    let place = job.first_node().filter(|place| place.is_place() && !job.nodes.is_empty());
    let Some(place) = place else {
        return Err(ExtensionError::not_yet(job, "no snapshot shows its GPUs yet"));
    };
    let parts = place.single_places();
    if holds.is_some_and(|holds| holds.gpus.total_count() as usize != parts.len()) {
        let problem = format!("Slurm's records of the jobs on {host} contradict each other");
        return Err(ExtensionError::not_yet(job, problem));
    }
    let Some(node) = parts.first().and_then(|part| snapshot?.node(part)) else {
        return Err(ExtensionError::not_yet(job, "no snapshot shows its node yet"));
    };
    let Resources { cpus, memory_mib, ref gpus } = node.has;
    if gpus.total_count() == 0 {
        return Err(ExtensionError::never(job, format!("is on {host}, which has no GPUs")));
    }
    let unit = LendingUnit { has_gpu: true, cpus, memory_mib };
    if let Some(holds) = holds {
        let units = unit.units_nearest(holds);
        if units as usize > parts.len() {
            let share = format!("the share of {units} GPUs (each GPU comes with {})", node.has);
            return Err(ExtensionError::never(job, format!("has {holds} of {host}, {share}")));
        }
    }
    Ok(place.clone())
}

/// The host of a job that has exactly one.
fn only_host(job: &Job) -> Result<NodeName, ExtensionError> {
    let shared = job.allocations.iter().map(|part| part.node.clone());
    let hosts: BTreeSet<NodeName> = shared.chain(job.nodes.iter().map(NodeName::host)).collect();
    let mut hosts = hosts.into_iter();
    let Some(first) = hosts.next() else {
        return Err(ExtensionError::not_yet(job, "no snapshot shows its node yet"));
    };
    let Some(second) = hosts.next() else { return Ok(first) };
    let others = match hosts.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Err(ExtensionError::never(job, format!("has several nodes ({first}, {second}{others})")))
}

impl From<ExtensionError> for RequestDenial {
    fn from(error: ExtensionError) -> RequestDenial {
        match error {
            ExtensionError::Never(what) => RequestDenial::new(StatusCode::UNPROCESSABLE_ENTITY, what),
            ExtensionError::NotYet(what) => RequestDenial::new(StatusCode::SERVICE_UNAVAILABLE, what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{AllocatedResources, BaseState, GpuCounts, JobId, Node, NodeType};

    fn resources(cpus: u32, gpus: u32) -> Resources {
        Resources {
            cpus,
            memory_mib: 1024 * u64::from(cpus),
            gpus: GpuCounts::from_counts([("a100".to_owned(), gpus)]),
        }
    }

    /// Two places of n1 with a GPU and 4 CPUs, and one of n3 with 4 CPUs.
    fn snapshot() -> Snapshot {
        let places = [("n1:0", 1), ("n1:1", 1), ("n3:0", 0)];
        let nodes = places.map(|(name, gpus)| Node {
            has: resources(4, gpus),
            ..Node::new(NodeName::new(name), NodeType::new("any"))
        });
        Snapshot { nodes: nodes.into(), ..Snapshot::default() }
    }

    /// Checks job 7, which runs on these places and has its script on `batch`. `holds`: its nodes with the
    /// CPUs and GPUs that it has of each.
    fn checked(nodes: &str, batch: &str, holds: &[(&str, u32, u32)]) -> String {
        let mut job = Job::new(JobId(7), "main", BaseState::Running);
        job.nodes = nodes.split_whitespace().map(NodeName::from).collect();
        job.batch_host = Some(NodeName::new(batch));
        job.allocations = holds
            .iter()
            .map(|(node, cpus, gpus)| AllocatedResources {
                node: NodeName::new(*node),
                holds: resources(*cpus, *gpus),
            })
            .collect();
        match own_places(&job, Some(&snapshot())) {
            Ok(place) => place.to_string(),
            Err(ExtensionError::Never(why)) => format!("never: {why}"),
            Err(ExtensionError::NotYet(why)) => format!("not yet: {why}"),
        }
    }

    #[test]
    fn gpus_of_one_node_are_a_worker_and_other_jobs_are_refused_with_a_reason() {
        assert_eq!(checked("n1:1", "n1:1", &[("n1", 4, 1)]), "n1:1");
        assert_eq!(checked("n1:0 n1:1", "n1:0+1", &[("n1", 8, 2)]), "n1:0+1");
        assert_eq!(checked("n1:0 n1:1", "n1:0+1", &[]), "n1:0+1", "the whole node");
        let never = "; where GPUs are lent, --extend expects a job with one or more GPUs of one node";
        for ((nodes, batch), holds, why) in [
            (("n1:0 n2:0", "n1:0"), &[("n1", 4, 1), ("n2", 4, 1)][..], "has several nodes (n1, n2)"),
            (("n1:0", "n1:0"), &[("n1", 4, 1), ("n2", 4, 0)], "has several nodes (n1, n2)"),
            (("n1:0 n2:0 n4:1", "n1:0"), &[], "has several nodes (n1, n2 and 1 more)"),
            (("n1:1", "n1:1"), &[("n1", 4, 0)], "has 4 CPUs, 4.0 GiB of n1, and no GPU"),
            (("n3:0", "n3:0"), &[], "is on n3, which has no GPUs"),
            (
                ("n9", "n9"),
                &[("n9", 4, 1)],
                "is on n9, whose GPUs are not lent: it is not in infill's partition, or has GPUs of several types",
            ),
            (
                ("n1:0 n1:1", "n1:0"),
                &[("n1", 8, 1)],
                "has 1 a100 GPU, 8 CPUs, 8.0 GiB of n1, the share of 2 GPUs (each GPU comes with 1 a100 GPU, \
                 4 CPUs, 4.0 GiB)",
            ),
        ] {
            assert_eq!(checked(nodes, batch, holds), format!("never: job 7 {why}{never}"));
        }
        for ((nodes, batch), holds, why) in [
            (("", "n1"), &[][..], "no snapshot shows its node yet"),
            (("", "n1"), &[("n1", 4, 1)], "no snapshot shows its GPUs yet"),
            (("n1:0", "n1:0"), &[("n1", 8, 2)], "Slurm's records of the jobs on n1 contradict each other"),
            (("n2:0", "n2:0"), &[("n2", 4, 1)], "no snapshot shows its node yet"),
        ] {
            assert_eq!(checked(nodes, batch, holds), format!("not yet: job 7: {why}; try again"));
        }
    }
}
