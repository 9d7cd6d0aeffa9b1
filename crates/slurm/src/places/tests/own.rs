//! Main jobs that wings extend.

use super::*;

#[test]
fn a_main_job_that_wings_extend_keeps_its_places_under_one_name() {
    let mut cluster = Cluster::of(&["n1", "n2"]);
    let mut seats = seats();
    cluster.runs("1 main n1=1").runs("5 main n1=2");
    cluster.job(5).batch_host = Some(NodeName::new("n1"));
    assert_eq!(seats.job_as_seated(cluster.job(5).clone()), None, "no snapshot has come");
    let batch = |cluster: &Cluster, seats: &mut PlaceAssignments| {
        let shown = seats.snapshot_with_places(cluster.snapshot.clone());
        shown.jobs.into_iter().find(|job| job.id.0 == 5).and_then(|job| job.batch_host)
    };
    assert_eq!(batch(&cluster, &mut seats), Some(NodeName::new("n1:1+2")));
    let seated = seats.job_as_seated(cluster.job(5).clone()).unwrap();
    assert_eq!(seated.batch_host, Some(NodeName::new("n1:1+2")));
    assert_eq!(seated.nodes, ["n1:1", "n1:2"].map(NodeName::new));
    seats.record_sent(JobId(5), &NodeName::new("n1:1+2"));
    // A wing that was sent there comes too late, and is elsewhere.
    cluster.ends(1).runs("9 infill n1=1 infill:order=1;wing=5;place=n1:1");
    assert_eq!(cluster.seen(&mut seats), "5 on n1:1,n1:2; 9 on n1:0");
    // What it has of the node's CPUs is known, and so it is after a restart.
    let known = BTreeMap::from([(JobId(5), NodeName::new("n1:1+2"))]);
    let mut restarted = PlaceAssignments::new("infill", LendingRules::default(), known);
    cluster.ends(9).holds("2 main n1 5");
    let shown = restarted.snapshot_with_places(cluster.snapshot.clone());
    let held = |name: &str| {
        let node = shown.nodes.iter().find(|n| n.name.as_str() == name).unwrap();
        (node.share.unwrap().held.cpus, node.state.to_string())
    };
    assert_eq!(held("n1:1"), (4, "ALLOCATED".to_owned()));
    assert_eq!(held("n1:2"), (4, "ALLOCATED".to_owned()));
    // Places that are of no use without their CPUs count as those of whoever has most, and are not its own.
    assert_eq!(cluster.seen(&mut restarted), "2 on ; 5 on n1:0,n1:1,n1:2,n1:3");
    assert_eq!(batch(&cluster, &mut restarted), Some(NodeName::new("n1:1+2")));
    // It waits again, and starts on another node.
    cluster.ends(5).waits("5 500 n2 1");
    assert_eq!(cluster.seen(&mut restarted), "2 on n1:2,n1:3; 5 wants n2:3");
    cluster.ends(5).runs("5 main n2=1");
    assert_eq!(cluster.seen(&mut restarted), "2 on n1:2,n1:3; 5 on n2:0");
}
