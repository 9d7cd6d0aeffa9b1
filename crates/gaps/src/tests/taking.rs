//! Nodes that Slurm takes back by itself, and which other nodes malleable jobs then need not leave.

use super::*;

/// Malleable job 2 holds n1 to n5. Returns the nodes that it must leave for the main queue's `jobs`. n6 is
/// idle, and n7 was job 8's.
fn left(jobs: &[Job]) -> String {
    let held = ["n1", "n2", "n3", "n4", "n5"];
    let nodes: Vec<_> = held.iter().map(|n| (*n, "ALLOCATED")).collect();
    let over = jobs.iter().any(|j| j.id == JobId(8) && j.state.is_ended());
    let just_now = jobs.iter().any(|j| j.id == JobId(8) && j.end_time == Some(NOW + -1));
    let last = if just_now { "IDLE+COMPLETING" } else { "IDLE" };
    let rest = [("n6", "IDLE"), ("n7", if over { last } else { "ALLOCATED" })];
    let ours = [job("2 infill running n1,n2,n3,n4,n5", -100)];
    let snapshot = snapshot(&[&nodes[..], &rest].concat(), [&ours[..], jobs].concat());
    let gaps = found(&snapshot, &held.map(|n| (n, 2)), &far_ahead());
    let left = gaps.gaps.iter().filter(|g| g.holder.is_some() && g.end != WindowEnd::Unknown);
    left.map(|g| g.node.to_string()).collect::<Vec<_>>().join(",")
}

/// [`left`], where Slurm preempted job 8 on n7 `secs_ago` seconds ago. If that job has ended, it left at
/// once.
fn left_beside(state: &str, secs_ago: i64, jobs: &[Job]) -> String {
    let at = Some(NOW + -secs_ago);
    let taken = Job { preempt_time: at, end_time: at, ..job(&format!("8 infill {state} n7"), -100) };
    left(&[&[taken], jobs].concat())
}

#[test]
fn a_job_that_gets_nodes_from_slurm_is_left_no_others() {
    let two = [job("10 main pending n1,n2", -1)];
    assert_eq!(left(&two), "n1,n2", "no other node comes");
    assert_eq!(left(&[&[job("8 infill running n7", -100)], &two[..]].concat()), "n1,n2", "job 8 may stay");
    for state in ["running", "completing", "ended"] {
        assert_eq!(left_beside(state, 4, &two), "", "n6, and n7, which job 8 is leaving: {state}");
    }
    assert_eq!(left_beside("ended", 1, &two), "", "it was still there when the nodes were read");
    assert_eq!(left_beside("ended", 30, &two), "n1,n2", "Slurm does not want those");
    assert_eq!(left_beside("running", 200, &two), "n1,n2", "that was an earlier run");
    assert_eq!(left_beside("running", 4, &[job("10 main pending n1,n2,n3", -1)]), "n1,n2,n3", "not enough");
    assert_eq!(left_beside("running", 4, &[job("10 main pending n1,n2", 0)]), "", "this very second");
    assert_eq!(left_beside("running", 4, &[job("10 main pending n1,n2", 300)]), "n1,n2", "not now");
    // Slurm already takes one of the planned nodes, and an idle node serves as the other.
    assert_eq!(left_beside("running", 4, &[job("10 main pending n1,n7", -1)]), "");
    // A node that is on its way to one job does not count for another.
    let others = |plan: &str| [job(plan, 300), job("10 main pending n1,n2", -1)];
    assert_eq!(left_beside("running", 4, &others("9 main pending n7")), "n1,n2");
    let three = ["10 main pending n1", "11 main pending n2", "12 main pending n3,n4"].map(|j| job(j, -1));
    assert_eq!(left_beside("running", 4, &three[..2]), "n2", "an idle node alone starts no job");
    assert_eq!(left_beside("running", 4, &three), "n2,n3,n4");
}

#[test]
fn nodes_are_on_their_way_for_as_long_as_a_handover_takes() {
    let two = [job("10 main pending n1,n2", -1)];
    assert_eq!(left_beside("ended", 10, &two), "", "Slurm may still start the job there");
    assert_eq!(left_beside("ended", 11, &two), "n1,n2", "Slurm wants others");
}

/// The nodes among `held` that job 2, which holds them, must leave.
fn must_be_left(nodes: &[(&str, &str)], held: &[&str], jobs: Vec<Job>) -> Vec<String> {
    let holders: Vec<(&str, u32)> = held.iter().map(|node| (*node, 2)).collect();
    let gaps = found(&snapshot(nodes, jobs), &holders, &far_ahead());
    let left = gaps.gaps.iter().filter(|g| g.holder.is_some() && g.end != WindowEnd::Unknown);
    left.map(|g| g.node.to_string()).collect()
}

/// A malleable job that Slurm preempted on this node 4 s ago.
fn preempted(id: u32, state: &str, node: &str) -> Job {
    let at = Some(NOW + -4);
    Job { preempt_time: at, end_time: at, ..job(&format!("{id} infill {state} {node}"), -100) }
}

#[test]
fn one_place_does_not_replace_another() {
    let nodes = [("n1:0", "ALLOCATED"), ("n1:1", "ALLOCATED"), ("n2:0", "ALLOCATED"), ("n2:1", "IDLE")];
    let jobs = vec![
        job("2 infill running n1:0,n1:1", -100),
        preempted(8, "running", "n2:0"),
        job("10 main pending n1:0,n1:1", -1),
    ];
    let left = must_be_left(&nodes, &["n1:0", "n1:1"], jobs);
    assert_eq!(left, ["n1:0", "n1:1"], "though n2:0 and n2:1 are as many");
}

#[test]
fn an_idle_node_replaces_one_node_only() {
    let held = ["n1", "n2", "n5", "n6"].map(|node| (node, "ALLOCATED"));
    let with_idle = |names: &[&'static str]| {
        [&held[..], &names.iter().map(|n| (*n, "IDLE")).collect::<Vec<_>>()].concat()
    };
    let jobs = || {
        vec![
            job("2 infill running n1,n2", -100),
            preempted(8, "running", "n5"),
            preempted(9, "running", "n6"),
            job("10 main pending n1,n5", -1),
            job("11 main pending n2,n6", -1),
        ]
    };
    assert_eq!(must_be_left(&with_idle(&["n7"]), &["n1", "n2"], jobs()), ["n2"], "job 10 gets n7");
    assert!(must_be_left(&with_idle(&["n7", "n8"]), &["n1", "n2"], jobs()).is_empty());
}

#[test]
fn a_drained_node_or_one_that_is_down_is_not_on_its_way() {
    let left = |last: &str| {
        let nodes = [("n1", "ALLOCATED"), ("n2", "IDLE"), ("n3", last)];
        let jobs = vec![
            job("2 infill running n1", -100),
            preempted(8, "ended", "n3"),
            job("10 main pending n1", -1),
        ];
        must_be_left(&nodes, &["n1"], jobs)
    };
    assert!(left("IDLE+COMPLETING").is_empty(), "n3 is about to be free");
    assert_eq!(left("IDLE+DRAIN"), ["n1"]);
    assert_eq!(left("DOWN"), ["n1"]);
}
