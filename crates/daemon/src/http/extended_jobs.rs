//! Jobs of the main queue that wings are to extend where GPUs are lent: which of them can be.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use infill_model::{Job, LendingUnit, NodeName, Resources, Snapshot};

use super::RequestDenial;

/// Why the own part of a job is no worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExtensionError {
    /// It will never be one.
    Never(String),
    /// Slurm, or the last snapshot, does not say enough yet.
    NotYet(String),
}

/// The GPUs of its one node that a job has, as one worker: `n1:0+1`. `snapshot`: the last one.
///
/// # Errors
/// When it has something else than GPUs of one node with what comes with them, or that is not known yet.
pub(super) fn own_places(job: &Job, snapshot: Option<&Snapshot>) -> Result<NodeName, ExtensionError> {
    let not_yet = |what: &str| ExtensionError::NotYet(format!("job {}: {what}; try again", job.id));
    let never = |found: String| {
        let expected = "where GPUs are lent, --extend expects a job with one or more GPUs of one node";
        ExtensionError::Never(format!("job {} {found}; {expected}", job.id))
    };
    let shared = job.allocations.iter().map(|part| part.node.clone());
    let hosts: BTreeSet<NodeName> = shared.chain(job.nodes.iter().map(NodeName::host)).collect();
    let mut hosts = hosts.into_iter();
    let Some(host) = hosts.next() else { return Err(not_yet("no snapshot shows its node yet")) };
    if let Some(second) = hosts.next() {
        let more = hosts.count();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Err(never(format!("has several nodes ({host}, {second}{more})")));
    }
    let holds = job.allocations.iter().find(|part| part.node == host).map(|part| &part.holds);
    if let Some(holds) = holds.filter(|holds| holds.gpus.total_count() == 0) {
        return Err(never(format!("has {holds} of {host}, and no GPU")));
    }
    if job.nodes.iter().any(|node| !node.is_place()) {
        let why = "of which no GPUs are lent: it is not in infill's partition, or has GPUs of several types";
        return Err(never(format!("is on {host}, {why}")));
    }
    let place = job.first_node().filter(|place| place.is_place() && !job.nodes.is_empty());
    let Some(place) = place else { return Err(not_yet("no snapshot shows its GPUs yet")) };
    let parts = place.single_places();
    if holds.is_some_and(|holds| holds.gpus.total_count() as usize != parts.len()) {
        return Err(not_yet(&format!("what Slurm says of the jobs on {host} contradicts itself")));
    }
    let Some(node) = parts.first().and_then(|part| snapshot?.node(part)) else {
        return Err(not_yet("no snapshot shows its node yet"));
    };
    let Resources { cpus, memory_mib, ref gpus } = node.has;
    if gpus.total_count() == 0 {
        return Err(never(format!("is on {host}, which has no GPUs")));
    }
    let unit = LendingUnit { has_gpu: true, cpus, memory_mib };
    match holds.map(|holds| (holds, unit.units_nearest(holds))) {
        Some((holds, takes)) if takes as usize > parts.len() => {
            let comes = format!("as much as comes with {takes} GPUs (each comes with {})", node.has);
            Err(never(format!("has {holds} of {host}, {comes}")))
        }
        _ => Ok(place.clone()),
    }
}

impl From<ExtensionError> for RequestDenial {
    fn from(unfit: ExtensionError) -> RequestDenial {
        match unfit {
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
        let place = |name: &str, gpus: u32| Node {
            has: resources(4, gpus),
            ..Node::new(NodeName::new(name), NodeType::new("any"))
        };
        let nodes = vec![place("n1:0", 1), place("n1:1", 1), place("n3:0", 0)];
        Snapshot { nodes, ..Snapshot::default() }
    }

    /// Job 7 on these places, whose script is on `batch`, with so many CPUs and GPUs of each node.
    fn said(nodes: &str, batch: &str, holds: &[(&str, u32, u32)]) -> String {
        let mut job = Job::new(JobId(7), "main", BaseState::Running);
        job.nodes = nodes.split_whitespace().map(NodeName::from).collect();
        job.batch_host = Some(NodeName::new(batch));
        job.allocations = holds
            .iter()
            .map(|(node, cpus, gpus): &(&str, u32, u32)| AllocatedResources {
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
    fn gpus_of_one_node_are_a_worker_and_what_else_a_job_has_is_told() {
        assert_eq!(said("n1:1", "n1:1", &[("n1", 4, 1)]), "n1:1");
        assert_eq!(said("n1:0 n1:1", "n1:0+1", &[("n1", 8, 2)]), "n1:0+1");
        assert_eq!(said("n1:0 n1:1", "n1:0+1", &[]), "n1:0+1", "the whole node");
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
                "is on n9, of which no GPUs are lent: it is not in infill's partition, or has GPUs of several types",
            ),
            (
                ("n1:0 n1:1", "n1:0"),
                &[("n1", 8, 1)],
                "has 1 a100 GPU, 8 CPUs, 8.0 GiB of n1, as much as comes with 2 GPUs (each comes with 1 a100 GPU, \
                 4 CPUs, 4.0 GiB)",
            ),
        ] {
            assert_eq!(said(nodes, batch, holds), format!("never: job 7 {why}{never}"));
        }
        for ((nodes, batch), holds, why) in [
            (("", "n1"), &[][..], "no snapshot shows its node yet"),
            (("", "n1"), &[("n1", 4, 1)], "no snapshot shows its GPUs yet"),
            (("n1:0", "n1:0"), &[("n1", 8, 2)], "what Slurm says of the jobs on n1 contradicts itself"),
            (("n2:0", "n2:0"), &[("n2", 4, 1)], "no snapshot shows its node yet"),
        ] {
            assert_eq!(said(nodes, batch, holds), format!("not yet: job 7: {why}; try again"));
        }
    }
}
