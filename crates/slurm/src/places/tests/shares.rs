//! Tests of the CPUs and memory that places show for their host.

use super::*;

#[test]
fn each_place_shows_its_share_of_the_host() {
    let shares = |cluster: &Cluster, assignments: &mut PlaceAssignments| {
        let shown = assignments.snapshot_with_places(cluster.snapshot.clone());
        let cpus = |node: &Node| node.share.map(|s| [s.own, s.held, s.free].map(|p| (p.cpus, p.memory_mib)));
        shown.nodes.iter().map(|node| cpus(node).expect("a share")).collect::<Vec<_>>()
    };
    let own = (4, 4000);
    let mut cluster = Cluster::of(&["n1"]);
    cluster.runs("1 main n1=1");
    assert_eq!(shares(&cluster, &mut assignments()), [[own, (0, 0), (12, 12_000)]; 4]);
    // A worker with one place and the CPUs of three shows them all at its place.
    cluster.runs("2 infill n1=1 infill:order=7;wing=5;place=n1:1");
    cluster.job(2).allocations[0].holds.cpus = 10;
    cluster.snapshot.nodes[0].used.cpus = 14;
    let free = (2, 8000);
    let there = shares(&cluster, &mut assignments());
    assert_eq!(
        there,
        [[own, (0, 0), free], [own, (10, 4000), free], [own, (0, 0), free], [own, (0, 0), free]]
    );
    // A worker on three places shows a part at each.
    let mut cluster = Cluster::of(&["n1"]);
    cluster.runs("2 infill n1=3 infill:order=7;wing=5;place=n1:1+2+3");
    cluster.job(2).allocations[0].holds.cpus = 14;
    cluster.snapshot.nodes[0].used.cpus = 14;
    let held: Vec<u32> = shares(&cluster, &mut assignments()).iter().map(|[_, (cpus, _), _]| *cpus).collect();
    assert_eq!(held, [0, 6, 4, 4]);
    // Nothing counts as free where records contradict each other.
    cluster.snapshot.nodes[0].used.cpus = 3;
    assert_eq!(shares(&cluster, &mut assignments())[0], [own, (0, 0), (0, 0)]);
}

#[test]
fn the_partition_may_have_no_more_of_a_host_than_its_limit() {
    let mut assignments = assignments();
    let infill = PartitionSharing {
        name: "infill".to_owned(),
        max_cpus_per_node: Some(9),
        ..PartitionSharing::default()
    };
    assignments.apply_cpu_limit(&[infill]);
    let mut cluster = Cluster::of(&["n1"]);
    cluster.runs("2 infill n1=1 infill:order=7;wing=5;place=n1:1");
    let shown = assignments.snapshot_with_places(cluster.snapshot.clone());
    assert_eq!(shown.nodes[0].share.map(|share| share.free.cpus), Some(5));
}
