//! Single rounds with an obvious right answer, as data.

use super::worlds::*;
use infill_model::{BoundSource, RoundNote};

/// With the solver and without, the plan gives these nodes, and the checker passes it.
#[track_caller]
fn check_both(world: &World, expect: &str) {
    let (plan, _) = solve(world);
    assert_eq!(show(&plan), expect, "with the solver");
    let plan = plan_without_solver(&world.problem(), "test");
    passes(world, &plan);
    assert_eq!(show(&plan), expect, "without the solver");
}

#[track_caller]
fn case(gaps: &str, jobs: &[&str], expect: &str) {
    check_both(&World::new(gaps, jobs), expect);
}

#[test]
fn starting() {
    case("", &["1 1-4 linear"], "1: -");
    case("n1:1800 n2:1800", &[], "");
    case("n1:1800 n2:1800", &["1 1-4 linear"], "1: n2* n1");
    case("n1:1800 n2:1800 n3:1800", &["1 1-2 linear"], "1: n3* n2");
    // Below the minimum, and a set of sizes.
    case("n1:1800 n2:1800", &["1 3-4 linear"], "1: -");
    case("n1:1800 n2:1800 n3:1800", &["1 1,2,4 linear"], "1: n3* n2");
    // The lead goes where the window is longest.
    case("n1:600 n2:1800", &["1 2 linear"], "1: n2* n1");
    // A window that a start does not earn back, or that is too short for a newcomer.
    case("n1:100", &["1 1 linear start=100"], "1: -");
    case("n1:50", &["1 1 linear"], "1: -");
    // More nodes than help.
    case("n1:1800 n2:1800 n3:1800", &["1 1-3 1:10,2:18,3:17"], "1: n3* n2");
    // Excluded nodes.
    case("n1:1800 n2:1800", &["1 1-2 linear not=n1", "2 1 linear age=1"], "1: n2* | 2: n1*");
}

#[test]
fn ties_go_to_the_job_that_waits_longer() {
    case("n1:1800", &["1 1 linear age=10", "2 1 linear age=20"], "1: - | 2: n1*");
    case("n1:1800", &["1 1 linear age=20", "2 1 linear age=10"], "1: n1* | 2: -");
    case("n1:1800", &["1 1 linear age=20", "2 1 linear age=10 w=1.1"], "1: - | 2: n1*");
}

#[test]
fn growing_pays_only_if_the_gain_exceeds_the_cost() {
    // Linear, 4 → 5 for w seconds: gain w − 18 × 5 against the old rate; hysteresis adds 2 % of 4 × 1800.
    let grow = |window: u32| format!("n1:1800 n2:1800 n3:1800 n4:1800 n5:{window}");
    let held = "1 1-8 linear held=n1,n2,n3,n4";
    // Shrinking afterwards costs 12 × 4.
    case(&grow(1800), &[held], "1: n1* n2 n3 n4 n5");
    case(&grow(300), &[held], "1: n1* n2 n3 n4 n5");
    case(&grow(270), &[held], "1: n1* n2 n3 n4");
    let mut world = World::new(&grow(270), &[held]);
    world.config.hysteresis = 0.0;
    check_both(&world, "1: n1* n2 n3 n4 n5");
    let mut world = World::new(&grow(130), &[held]);
    world.config.hysteresis = 0.0;
    check_both(&world, "1: n1* n2 n3 n4");
}

#[test]
fn nodes_that_last_are_kept() {
    let two = "n1:1800 n2:1800 n3:1800 n4:1800";
    case(two, &["1 1-2 linear held=n3,n4"], "1: n3* n4");
    case(two, &["1 1-2 linear held=n3,n4", "2 1-2 linear"], "1: n3* n4 | 2: n2* n1");
    // One held node ends now: the job stays on the other, and replaces it since that is one rescale either
    // way.
    case("n1:1800 n2:0 n3:1800", &["1 1-2 linear held=n1,n2"], "1: n1* n3");
    case("n1:1800 n2:0", &["1 1-2 linear held=n1,n2"], "1: n1*");
    // A held node is kept for less than the minimal window.
    case("n1:1800 n2:40", &["1 1-2 linear held=n1,n2"], "1: n1* n2");
    case("n1:1800 n2:40", &["1 1-2 linear held=n1"], "1: n1*");
    // The lead's node ends now: the job starts again on the others.
    case("n1:0 n2:1800 n3:1800", &["1 1-2 linear held=n1,n2"], "1: n3* n2");
    case("n1:0", &["1 1-2 linear held=n1"], "1: -");
    // A held node that is not a gap any more, the lead's or another.
    case("n2:1800", &["1 1-2 linear held=n1,n2"], "1: n2*");
    case("n1:1800", &["1 1-2 linear held=n1,n2"], "1: n1*");
    // Below the minimum: parked.
    case("n1:1800 n2:0", &["1 2-4 linear held=n1,n2"], "1: -");
}

#[test]
fn a_growth_is_used_to_move_a_lead_that_ends_soon() {
    // Growing by two costs 18 s whether or not the lead moves; the lead's node ends in 300 s.
    case("n1:300 n2:1800 n3:1800 n4:1800 n5:1800", &["1 1-4 linear held=n1,n2"], "1: n5* n2 n3 n4");
}

#[test]
fn standings() {
    let nodes = "n1:1800 n2:1800 n3:1800 n4:0";
    // Busy: as it is, whatever the sizes; without an ended node; nothing without the lead's node.
    case(nodes, &["1 4 linear held=n1,n2 busy", "2 1-4 linear"], "1: n1* n2 | 2: n3*");
    case(nodes, &["1 1-4 linear held=n1,n4 busy"], "1: n1*");
    case(nodes, &["1 1-4 linear held=n4,n1 busy"], "1: -");
    // The lead is away, and the node that it comes back to may not be clear yet.
    case(nodes, &["1 1-4 linear held=n4,n1,n2 away"], "1: n1* n2");
    case(nodes, &["1 1-4 linear held=n2,n1 away"], "1: n2* n1");
    case(nodes, &["1 1-4 linear backoff=10", "2 1-2 linear"], "1: - | 2: n3* n2");
    case(nodes, &["1 1-3 linear backoff=-1"], "1: n3* n1 n2");
    // Minimum stay.
    case(nodes, &["1 1-3 linear held=n2 changed=5"], "1: n2*");
    case(nodes, &["1 1-3 linear held=n2 changed=30"], "1: n2* n1 n3");
    case(nodes, &["1 1-3 linear held=n2,n4 changed=5"], "1: n2* n1 n3");
}

#[test]
fn pause_and_drain() {
    let jobs = ["1 1-4 linear held=n1,n2", "2 1-4 linear"];
    let mut world = World::new("n1:1800 n2:1800 n3:1800", &jobs);
    world.may_grow = false;
    check_both(&world, "1: n1* n2 | 2: -");
    world.drain = true;
    check_both(&world, "1: - | 2: -");
    let mut world = World::new("n1:1800 n2:0 n3:1800", &jobs);
    world.may_grow = false;
    check_both(&world, "1: n1* | 2: -");
    let mut world = World::new("n1:0 n2:1800 n3:1800", &jobs);
    world.may_grow = false;
    check_both(&world, "1: - | 2: -");
}

#[test]
fn the_budget_limits_voluntary_changes_only() {
    let mut world =
        World::new("n1:1800 n2:1800 n3:1800", &["1 1 linear age=9", "2 1 linear age=8", "3 1 linear age=7"]);
    world.config.max_changes = 2;
    check_both(&world, "1: n3* | 2: n2* | 3: -");
    world.config.max_changes = 0;
    check_both(&world, "1: - | 2: - | 3: -");
    let mut world = World::new("n1:1800 n2:0", &["1 1-2 linear held=n1,n2"]);
    world.config.max_changes = 0;
    check_both(&world, "1: n1*");
    world.drain = true;
    check_both(&world, "1: -");
}

#[test]
fn types() {
    let nodes = "a1:1800:a a2:1800:a b1:1800:b b2:1800:b";
    // One type a job; each where it is faster.
    case(nodes, &["1 1-4 1:10,2:19 on:b=1:5,2:9", "2 1-4 1:10,2:19 on:a=1:5,2:9"], "1: a2* a1 | 2: b2* b1");
    // A rate on one type only.
    let mut world = World::new(nodes, &["1 1-2 linear"]);
    world.jobs[0].rates[0].node_type = Some(NodeType::new("b"));
    check_both(&world, "1: b2* b1");
    world.jobs[0].rates[0].node_type = Some(NodeType::new("c"));
    check_both(&world, "1: -");
}

#[test]
fn the_better_execution_plan_is_chosen_when_the_gain_pays() {
    case("n1:1800", &["1 1 1:10 plan:fast=1:11 held=n1"], "1: n1*");
    let plan_of = |text: &str| {
        let (plan, _) = solve(&World::new("n1:1800", &[text]));
        plan.jobs[0].exec_plan.0.clone()
    };
    assert_eq!(plan_of("1 1 1:10 plan:fast=1:11"), "fast");
    assert_eq!(plan_of("1 1 1:10 plan:fast=1:11 held=n1"), "fast");
    assert_eq!(plan_of("1 1 1:10 plan:fast=1:10.1 held=n1"), "default");
}

#[test]
fn a_job_that_stays_alive_grows_with_its_plan_and_restarts_for_another_where_that_pays() {
    let chosen = |secs: u32, costs: &str| {
        let nodes: Vec<String> = (1..=4).map(|n| format!("n{n}:{secs}")).collect();
        let job = format!("1 1-4 1:10,2:20,4:40 plan:fast=1:11,2:22,4:44 held=n1,n2 {costs}");
        let mut world = World::new(&nodes.join(" "), &[&job]);
        world.config.hysteresis = 0.0;
        let (plan, report) = solve(&world);
        let planned = &plan.jobs[0];
        (planned.nodes.len(), planned.exec_plan.0.clone(), report)
    };
    let of = |secs: u32, costs: &str| {
        let (nodes, plan, _) = chosen(secs, costs);
        (nodes, plan)
    };
    let with = |nodes: usize, plan: &str| (nodes, plan.to_owned());
    const ALIVE: &str = "up=3 down=2 swap=18";
    assert_eq!(of(100, ALIVE), with(4, "default"), "97 s of 40 samples instead of 82 s of 44");
    assert_eq!(of(400, ALIVE), with(4, "fast"), "382 s of 44 samples instead of 397 s of 40");
    assert_eq!(of(100, "up=60 down=60"), with(2, "default"), "a restart would take 60 of 100 s");
    assert_eq!(of(100, "up=3 down=2 swap=60"), with(4, "default"));
    assert_eq!(of(100, ""), with(4, "fast"), "any change is a restart");
    // A change of plan at the same size is a restart, too.
    assert_eq!(of(400, &format!("{ALIVE} not=n3,n4")), with(2, "fast"));
    assert_eq!(of(100, &format!("{ALIVE} not=n3,n4")), with(2, "default"));
    let said = |secs| chosen(secs, ALIVE).2.jobs[0].why.to_string();
    assert!(said(400).contains("18 s"), "{}", said(400));
    assert!(said(100).contains("3 s"), "{}", said(100));
}

#[test]
fn nodes_that_end_together_go_to_one_job() {
    // Two jobs of two nodes, two nodes that end early: only one job must be rescaled then.
    case("n1:600 n2:1800 n3:600 n4:1800", &["1 2 linear", "2 2 linear w=2"], "1: n3* n1 | 2: n4* n2");
}

#[test]
fn leases_end_with_the_window_or_are_renewed() {
    let (plan, _) = solve(&World::new("n1:900 n2:700?", &["1 2 linear"]));
    let leases: Vec<i64> = plan.jobs[0].nodes.iter().map(|p| p.lease_until.0 - NOW.0).collect();
    assert_eq!(leases, [900, 3600]);
}

#[test]
fn a_failing_solver_still_gives_a_checked_plan() {
    let mut world = World::new("n1:1800 n2:900 n3:1800", &["1 1-3 linear held=n1", "2 1 linear w=3"]);
    let answers: [Answer; 6] = [
        |_, _| Err(SolverError::TimeLimit),
        |_, _| Err(SolverError::Infeasible),
        |_, _| Err(SolverError::Failed("out of memory".to_owned())),
        |_, _| Ok(Solution { values: Vec::new(), optimal: true, gap: None }),
        |milp, _| Ok(Solution { values: vec![1.0; milp.variables.len()], optimal: true, gap: Some(0.0) }),
        |milp, _| Ok(Solution { values: vec![f64::NAN; milp.variables.len()], optimal: true, gap: None }),
    ];
    let (best, _) = solve(&world);
    // No plan is good enough, so the solver is asked.
    world.config.mip_gap = -1.0;
    for answer in answers {
        let plan = plan_round(&world.problem(), &Broken(answer));
        let report = explain_plan(&world.problem(), &plan);
        passes(&world, &plan);
        assert!(matches!(plan.status, SolveStatus::Fallback(_)), "{:?}", plan.status);
        assert!(report.notes.iter().any(|n| matches!(n, RoundNote::NoSolver(_))), "{:?}", report.notes);
        assert_eq!(show(&plan), show(&best));
    }
    let late =
        Broken(|_, start| Ok(Solution { values: start.unwrap().clone(), optimal: false, gap: Some(0.25) }));
    let plan = plan_round(&world.problem(), &late);
    let report = explain_plan(&world.problem(), &plan);
    passes(&world, &plan);
    assert_eq!(plan.status, SolveStatus::TimeLimit { gap: Some(0.25) });
    assert!(report.notes[0].to_string().contains("25.00 %"), "{:?}", report.notes);
}

#[test]
fn the_report_says_why() {
    let mut world = World::new(
        "n1:1800 n2:1800 n3:1800 n4:30 n5:1800:b",
        &["1 1-4 linear held=n1,n2", "2 6-8 linear", "3 1 linear backoff=40", "4 1 linear on:b=1:3"],
    );
    world
        .gaps
        .refused
        .push((NodeName::from("n9"), "busy: job 7 of partition main is on it".to_owned().into()));
    let (_, report) = solve(&world);
    let mut text = String::new();
    for job in &report.jobs {
        text += &format!("job {} ({} -> {}) {}\n", job.job, job.had, job.gets, job.why);
    }
    for node in &report.nodes {
        text += &format!("{}: {}\n", node.node, node.why);
    }
    insta::assert_snapshot!(text, @r"
    job 1 (2 -> 3) grows from 2 to 3 nodes because 3.00 samples/s instead of 2.00 are worth 18 s without samples
    job 2 (0 -> 0) waits: needs at least 6 nodes; 4 are free for longer than 60 s
    job 3 (0 -> 0) backs off for 40 s more after a preemption or failure
    job 4 (0 -> 1) starts on 1 node at 3.00 samples/s after 18 s
    n1: job 1 keeps it until 1970-01-12T14:16:40Z
    n2: job 1 keeps it until 1970-01-12T14:16:40Z
    n3: job 1 gets it until 1970-01-12T14:16:40Z
    n4: idle: its window of 30 s is shorter than the 60 s worth starting in; the main queue wants it at 1970-01-12T13:47:25Z
    n5: job 4 gets it until 1970-01-12T14:16:40Z
    n9: busy: job 7 of partition main is on it
    ");
}

#[test]
fn a_proof_states_the_bound_and_its_source() {
    let jobs = ["1 1-8 1:10,2:19,4:35,8:60", "2 1-8 1:10,2:18,4:30,8:44", "3 2-6 2:30,6:60"];
    let mut world = World::new("a1:1800 a2:900 a3:900 a4:1200 a5:400", &jobs);
    let (solved, _) = solve(&world);
    let proof = solved.proof.unwrap();
    assert!(proof.gap <= 1e-6, "{proof:?}");
    let without = plan_without_solver(&world.problem(), "test");
    let other = without.proof.unwrap();
    assert!(
        other.bound >= proof.bound - 1e-6 * proof.bound && other.by == BoundSource::Branches,
        "{other:?}"
    );
    assert!(other.gap <= 1e-6, "{other:?}");
    // Without solve time the solver is not asked.
    world.config.solve_secs = 0.0;
    let plan = crate::plan::plan_round(&world.problem(), &Broken(|_, _| panic!("asked")));
    passes(&world, &plan);
    assert_eq!(plan.proof, without.proof);
    // With one step the knapsack is exact.
    world.config.max_steps = 1;
    let plan = crate::plan::plan_round(&world.problem(), &Broken(|_, _| panic!("asked")));
    assert_eq!(plan.status, SolveStatus::Optimal);
    assert!(plan.proof.is_some_and(|p| p.gap <= 1e-6), "{:?}", plan.proof);
}
