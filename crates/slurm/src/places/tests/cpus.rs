//! Nodes that are lent by some CPUs, and limits on CPUs.

use super::*;

/// A cluster of nodes with 16 CPUs and 16,000 MiB without GPUs, lent by four CPUs.
fn cpus(names: &[&str]) -> (Cluster, PlaceAssignments) {
    let mut cluster = Cluster::of(names);
    cluster.snapshot.nodes.iter_mut().for_each(|node| node.has = resources(16, 16_000, 0));
    let parts = LendingRules { cpus: 4, ..LendingRules::default() };
    (cluster, PlaceAssignments::new("infill", parts, BTreeMap::new()))
}

#[test]
fn nodes_without_gpus_are_lent_by_some_cpus() {
    let (mut cluster, mut assignments) = cpus(&["n1"]);
    let shown = assignments.snapshot_with_places(cluster.holds("1 main n1 5").snapshot.clone());
    let free = &shown.nodes[0];
    assert_eq!((free.name.as_str(), free.node_type.as_str()), ("n1:0", "cpu4"));
    assert_eq!((&free.has, free.used.is_none()), (&resources(4, 4000, 0), true));
    // Five CPUs take two parts, and the main job is on both.
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:0,n1:1");
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:2,n1:3");
    // Another job takes the rest of the first job's second part.
    cluster.holds("2 main n1 3");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:0,n1:1");
    cluster.holds("3 main n1 1");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:0");
}

#[test]
fn malleable_jobs_keep_their_cpus_beside_main_jobs() {
    let (mut cluster, mut assignments) = cpus(&["n1", "n2"]);
    cluster.holds("5 infill n1 4 infill:order=1;wing=5;place=n1:3");
    // Slurm allocates whole cores: the job may have one CPU more than it asked for.
    cluster.holds("6 infill n2 5 infill:order=2;wing=5;place=n2:1");
    cluster.holds("1 main n1 1");
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:2; 5 on n1:3; 6 on n2:1");
    assert_eq!(
        cluster.places(&mut assignments, "IDLE"),
        "n1:0,n1:1,n2:0,n2:2",
        "and its core leaves one too small"
    );
    // A worker with two parts.
    cluster.holds("7 infill n1 8 infill:order=3;wing=5;place=n1:0+1");
    assert_eq!(cluster.seen(&mut assignments), "1 on n1:2; 5 on n1:3; 6 on n2:1; 7 on n1:0,n1:1");
    // While it is cleaning up, it keeps its places.
    cluster.job(7).state.flags.insert("COMPLETING".to_owned());
    assert_eq!(cluster.places(&mut assignments, "ALLOCATED+COMPLETING"), "n1:0,n1:1");
}

#[test]
fn a_planned_start_claims_parts_of_nodes_without_gpus() {
    let (mut cluster, mut assignments) = cpus(&["n1"]);
    cluster.holds("1 main n1 5").holds("5 infill n1 4 infill:order=1;wing=5;place=n1:0").waits("8 500 n1 0");
    cluster.job(1).end_time = Some(UnixTime(900));
    let running = "1 on n1:2,n1:3; 5 on n1:0";
    for (wants, claims) in [(3, ""), (4, "n1:1"), (8, "n1:0,n1:1"), (11, "n1:0,n1:1")] {
        cluster.job(8).wants = Some(resources(wants, 100, 0));
        assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants {claims}"), "{wants} CPUs");
    }
    // The main job there will have ended by then.
    cluster.job(1).end_time = Some(UnixTime(500));
    cluster.job(8).wants = Some(resources(10, 100, 0));
    assert_eq!(cluster.seen(&mut assignments), format!("{running}; 8 wants n1:1"));
}

#[test]
fn the_partition_limits_the_cpus_of_a_node() {
    let mut cluster = Cluster::of(&["n1"]);
    let mut assignments = assignments();
    let limit = |name: &str, most| PartitionSharing {
        name: name.to_owned(),
        max_cpus_per_node: most,
        ..PartitionSharing::default()
    };
    assignments.apply_cpu_limit(&[limit("main", Some(1)), limit("infill", Some(9))]);
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:0,n1:1", "CPUs for two");
    let capped = "IDLE+MAX_CPUS_PER_NODE";
    assert_eq!(cluster.places(&mut assignments, capped), "n1:2,n1:3", "the limit keeps the others empty");
    cluster.runs("1 main n1=1");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:1,n1:2", "main jobs have a limit of their own");
    assert_eq!(cluster.places(&mut assignments, "ALLOCATED"), "n1:0", "the main job has one place");
    assert_eq!(cluster.places(&mut assignments, capped), "n1:3");
    cluster.runs("2 infill n1=1");
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:2");
    assignments.apply_cpu_limit(&[limit("infill", None)]);
    assert_eq!(cluster.places(&mut assignments, "IDLE"), "n1:2,n1:3");
}
