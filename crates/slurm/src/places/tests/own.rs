//! Main jobs that wings extend.

use super::*;

#[test]
fn a_main_job_that_wings_extend_keeps_its_places_under_one_name() {
    let mut cluster = Cluster::of(&["n1", "n2"]);
    let mut assignments = assignments();
    cluster.runs("1 main n1=1").runs("5 main n1=2");
    cluster.job(5).batch_host = Some(NodeName::new("n1"));
    assert_eq!(assignments.job_with_last_places(cluster.job(5).clone()), None, "no snapshot has come");
    let batch = |cluster: &Cluster, assignments: &mut PlaceAssignments| {
        let shown = assignments.snapshot_with_places(cluster.snapshot.clone());
        shown.jobs.into_iter().find(|job| job.id.0 == 5).and_then(|job| job.batch_host)
    };
    assert_eq!(batch(&cluster, &mut assignments), Some(NodeName::new("n1:1+2")));
    let seated = assignments.job_with_last_places(cluster.job(5).clone()).unwrap();
    assert_eq!(seated.batch_host, Some(NodeName::new("n1:1+2")));
    assert_eq!(seated.nodes, ["n1:1", "n1:2"].map(NodeName::new));
    assignments.record_sent(JobId(5), &NodeName::new("n1:1+2"));
    // A wing that was sent to an occupied place is put elsewhere.
    cluster.ends(1).runs("9 infill n1=1 infill:order=1;wing=5;place=n1:1");
    assert_eq!(cluster.seen(&mut assignments), "5 on n1:1,n1:2; 9 on n1:0");
    // Its share of the node's CPUs is shown, also after a restart.
    let lead_places = BTreeMap::from([(JobId(5), NodeName::new("n1:1+2"))]);
    let mut restarted = PlaceAssignments::new("infill", LendingRules::default(), lead_places);
    cluster.ends(9).holds("2 main n1 5");
    let shown = restarted.snapshot_with_places(cluster.snapshot.clone());
    let held = |name: &str| {
        let node = shown.nodes.iter().find(|n| n.name.as_str() == name).unwrap();
        (node.share.unwrap().held.cpus, node.state.to_string())
    };
    assert_eq!(held("n1:1"), (4, "ALLOCATED".to_owned()));
    assert_eq!(held("n1:2"), (4, "ALLOCATED".to_owned()));
    // Places that are unusable without CPUs count for the job with most CPUs, but its batch place leaves them
    // out.
    assert_eq!(cluster.seen(&mut restarted), "2 on ; 5 on n1:0,n1:1,n1:2,n1:3");
    assert_eq!(batch(&cluster, &mut restarted), Some(NodeName::new("n1:1+2")));
    // The job waits again, and starts on another node.
    cluster.ends(5).waits("5 500 n2 1");
    assert_eq!(cluster.seen(&mut restarted), "2 on n1:2,n1:3; 5 wants n2:3");
    cluster.ends(5).runs("5 main n2=1");
    assert_eq!(cluster.seen(&mut restarted), "2 on n1:2,n1:3; 5 on n2:0");
}
