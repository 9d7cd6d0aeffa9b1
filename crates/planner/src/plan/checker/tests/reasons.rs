//! Why jobs wait and nodes are idle, in single rounds.

use super::*;
use infill_model::{JobReason, LeavingNodes, NodeReason, NodeShortage, Probe, RatedSize, WantedAt};

/// Why the last job of a world gets nothing.
#[track_caller]
fn why_last_waits(world: &World) -> JobReason {
    let plan = plan_without_solver(&world.problem(), "test");
    passes(world, &plan);
    let report = explain_plan(&world.problem(), &plan);
    let verdict = report.jobs.into_iter().next_back().expect("a job");
    assert_eq!((verdict.had, verdict.gets), (0, 0), "{}", show(&plan));
    verdict.why
}

fn lacks_nodes(min_nodes: u32, free: usize) -> JobReason {
    JobReason::WaitsForNodes(NodeShortage { min_nodes, free, window_secs: 60.0 })
}

fn waits_for_others(min_nodes: u32, taken: usize, all: usize) -> JobReason {
    JobReason::WaitsForOthers { min_nodes, taken, all, window_secs: 60.0 }
}

#[test]
fn a_shortage_counts_the_nodes_that_the_job_may_use() {
    let why = |job: &str| why_last_waits(&World::new("n1:1800 n2:1800 n3:1800 n4:59", &[job]));
    assert_eq!(why("1 4 linear"), lacks_nodes(4, 3));
    assert_eq!(why("1 4 linear not=n1"), lacks_nodes(4, 2));
    assert_eq!(why("1 4 linear not=n1,n2,n3"), lacks_nodes(4, 0));
}

#[test]
fn a_shortage_counts_whole_blocks_of_one_node() {
    // Three places each: one block of two, and one that is left over.
    let gaps = "n1#0:1800 n1#1:1800 n1#2:1800 n2#0:1800 n2#1:1800 n2#2:1800";
    let why = |jobs: &[&str]| why_last_waits(&World::new(gaps, jobs));
    assert_eq!(why(&["1 3 linear block=2"]), lacks_nodes(3, 2));
    assert_eq!(why(&["1 3 linear block=2 not=n2:0"]), lacks_nodes(3, 2));
    assert_eq!(why(&["1 3 linear block=2 not=n2:0,n2:1"]), lacks_nodes(3, 1));
    assert_eq!(why(&["1 3 linear block=3"]), lacks_nodes(3, 2));
    // Another job makes more of one block.
    assert_eq!(why(&["1 1 linear block=2 w=9", "2 2 linear block=2"]), waits_for_others(2, 1, 2));
    let excluded = ["1 1 linear block=2 w=9 not=n2:0,n2:1", "2 1 linear block=2 not=n2:0,n2:1"];
    assert_eq!(why(&excluded), waits_for_others(1, 1, 1));
}

#[test]
fn a_job_waits_for_a_rate_only_where_it_has_none_on_any_free_node() {
    let why = |gaps: &str, rated_type: &str| {
        let mut world = World::new(gaps, &["1 1 linear w=9", "2 1 linear"]);
        world.jobs[1].rates[0].node_type = Some(NodeType::new(rated_type));
        why_last_waits(&world)
    };
    assert_eq!(why("n1:1800:a", "b"), JobReason::WaitsForRate);
    assert_eq!(why("n1:1800:a n2:1800:a n3:1800:c", "b"), JobReason::WaitsForRate);
    assert_eq!(why("n1:1800:a", "a"), waits_for_others(1, 1, 1));
    // The node of the other type is far too short for a start, but the job has a rate on it.
    let mut world = World::new("n1:1800:a n2:100:b", &["1 1 linear w=9", "2 1 linear start=100"]);
    world.jobs[1].rates[0].node_type = Some(NodeType::new("b"));
    let windows = JobReason::WaitsForWindows { free: 1, all: 2, start_secs: 100.0 };
    assert_eq!(why_last_waits(&world), windows);
}

#[test]
fn a_job_with_just_enough_free_nodes_waits_for_budget_or_windows() {
    let mut world = World::new("n1:1800 n2:1800", &["1 1 linear w=9", "2 1 linear"]);
    world.config.max_changes = 1;
    assert_eq!(why_last_waits(&world), JobReason::WaitsForBudget { most: 1 });
    // A start takes as long as the window.
    let world = World::new("n1:1800 n2:100", &["1 1 linear w=9", "2 1 linear start=100"]);
    let windows = JobReason::WaitsForWindows { free: 1, all: 2, start_secs: 100.0 };
    assert_eq!(why_last_waits(&world), windows);
}

/// The reason for what the only job of a world gets.
#[track_caller]
fn why(gaps: &str, job: &str) -> JobReason {
    let world = World::new(gaps, &[job]);
    let plan = plan_without_solver(&world.problem(), "test");
    passes(&world, &plan);
    explain_plan(&world.problem(), &plan).jobs.remove(0).why
}

/// A probe of `gets` nodes.
fn probes(had: usize, gets: u32, secs: f64) -> JobReason {
    let leaving = LeavingNodes::default();
    let probe = Probe { nodes: gets, with: None };
    JobReason::Probes { had, gets: gets as usize, secs, leaving, probe }
}

#[test]
fn a_change_that_is_made_to_measure_a_size_is_a_probe() {
    let gaps = "n1:1800 n2:1800 n3:1800 n4:1800";
    let smaller = "1 1-4 1:100,2:90,4:80 held=n1,n2,n3,n4";
    assert_eq!(why(gaps, &format!("{smaller} probe=1")), probes(4, 1, 12.0));
    // No other job could make more of the nodes, but the job has no other rates.
    assert_eq!(
        why(gaps, smaller),
        JobReason::GivesUp {
            had: 4,
            gets: RatedSize { nodes: 1, rate: Some(100.0) },
            before: 80.0,
            taken: 0,
            secs: 12.0
        }
    );
    assert_eq!(why(gaps, &format!("{smaller} probe=2")), why(gaps, smaller), "the probe is declined");
    assert_eq!(why(gaps, "1 1-4 1:10,4:400 held=n1 probe=4"), probes(1, 4, 18.0));
    assert_eq!(why(gaps, "1 1-4 1:100,2:90,4:80 held=n1 probe=1"), probes(1, 1, 0.0));
    // It has to shrink anyway.
    let leaving = LeavingNodes(vec![NodeName::new("n2")]);
    let shrinks = JobReason::Shrinks { had: 2, gets: 1, leaving };
    assert_eq!(why("n1:1800 n2:0", "1 1-4 1:100,2:90,4:80 held=n1,n2 probe=1"), shrinks);
}

#[test]
fn a_probe_of_a_plan_needs_that_plan_on_that_type() {
    let is_probe = |plan: &str, node_type: &str| {
        let mut world = World::new("n1:1800:a n2:1800:a", &["1 1-2 1:1,2:2 held=n1 plan:tp2=1:9,2:90"]);
        world.jobs[0].probe =
            Some(Probe { nodes: 2, with: Some((ExecPlan(plan.to_owned()), NodeType::new(node_type))) });
        let plan = plan_without_solver(&world.problem(), "test");
        passes(&world, &plan);
        assert_eq!(show(&plan), "1: n1* n2");
        matches!(explain_plan(&world.problem(), &plan).jobs[0].why, JobReason::Probes { .. })
    };
    assert!(is_probe("tp2", "a"));
    assert!(!is_probe("default", "a"));
    assert!(!is_probe("tp2", "b"));
}

#[test]
fn a_window_of_just_the_minimum_length_is_long_enough() {
    // Checker and planner let a job start in it.
    let world = World::new("n1:60", &["1 1 linear start=10"]);
    let plan = plan_without_solver(&world.problem(), "test");
    passes(&world, &plan);
    assert_eq!(show(&plan), "1: n1*");
    // The report does not call the window short, and counts the node as free.
    let idle = |gaps: &str| {
        let world = World::new(gaps, &["1 2 linear"]);
        let report = explain_plan(&world.problem(), &plan_without_solver(&world.problem(), "test"));
        (report.jobs[0].why.clone(), report.nodes[0].why.clone())
    };
    let wanted = |secs: i64| WantedAt(Some(NOW + secs + 15));
    let no_gain = NodeReason::NoGain { secs: 60.0, wanted: wanted(60) };
    assert_eq!(idle("n1:60"), (lacks_nodes(2, 1), no_gain));
    let short = NodeReason::Short { secs: 59.0, worth_secs: 60.0, wanted: wanted(59) };
    assert_eq!(idle("n1:59"), (lacks_nodes(2, 0), short));
}
