//! Promises: by hand, and in random worlds where only the rule makes the planner keep them.

use super::random_worlds::{Random, world};
use super::worlds::*;
use super::{blocks, shares};
use crate::plan::Violation;
use crate::plan::space::cost;
use infill_model::malleable::RateCurve;
use infill_testkit::effort;

/// What a plan without a solver gives to each job of a world; the solver's plan must give the same.
fn planned(world: &World) -> String {
    let plan = plan_without_solver(&world.problem(), "test");
    passes(world, &plan);
    let (solved, _) = solve(world);
    assert_eq!(show(&solved), show(&plan), "the solver's plan");
    show(&plan)
}

const EIGHT: &str = "n1:1800 n2:1800 n3:1800 n4:1800 n5:1800 n6:1800 n7:1800 n8:1800";

#[test]
fn a_promised_rate_outweighs_what_others_make() {
    let rich = "2 1-8 linear w=50 held=n1,n2,n3,n4,n5,n6,n7,n8";
    let plain = World::new(EIGHT, &["1 1-8 linear", rich]);
    assert_eq!(planned(&plain), "1: - | 2: n1* n2 n3 n4 n5 n6 n7 n8");
    let promised = World::new(EIGHT, &["1 1-8 linear promise=3", rich]);
    assert_eq!(planned(&promised), "1: n4* n2 n3 | 2: n1* n5 n6 n7 n8");
    let holds =
        World::new(EIGHT, &["1 1-8 linear held=n1,n2,n3,n4 promise=3", "2 1-8 linear w=50 held=n5,n6,n7,n8"]);
    assert_eq!(planned(&holds), "1: n1* n3 n4 | 2: n5* n2 n6 n7 n8", "no more than it needs");
}

#[test]
fn a_promise_is_kept_by_a_better_plan_on_fewer_nodes() {
    let jobs = ["1 1-8 linear plan:tp=1:3,8:9 held=n1,n2,n3,n4 promise=3", "2 1-8 linear w=50"];
    let world = World::new(EIGHT, &jobs);
    let plan = plan_without_solver(&world.problem(), "test");
    passes(&world, &plan);
    assert_eq!(show(&plan), "1: n1* | 2: n8* n2 n3 n4 n5 n6 n7");
    assert_eq!(plan.jobs[0].exec_plan, ExecPlan("tp".to_owned()));
}

#[test]
fn while_a_promise_waits_for_a_locked_job_no_other_job_grows() {
    let four = "n1:1800 n2:1800 n3:1800 n4:1800";
    let second = |secs: u32| format!("2 1-4 linear w=9 held=n1,n2 changed={secs}");
    let after = |secs: u32, first: &str| {
        planned(&World::new(four, &[first, &second(secs), "3 1-4 linear w=7 held=n4"]))
    };
    assert_eq!(after(1, "1 2 linear"), "1: - | 2: n1* n2 | 3: n4* n3");
    assert_eq!(after(1, "1 2 linear promise=2"), "1: - | 2: n1* n2 | 3: n4*");
    assert_eq!(after(100, "1 2 linear promise=2"), "1: n3* n2 | 2: n1* | 3: n4*");
}

#[test]
fn a_plan_that_breaks_a_promise_is_refused() {
    let jobs = ["1 1-4 linear held=n1,n2,n3 promise=3", "2 1-4 linear w=9 held=n4"];
    let world = World::new("n1:1800 n2:1800 n3:1800 n4:1800", &jobs);
    let mut free = world.clone();
    free.jobs[0].guarantee = None;
    let less = plan_without_solver(&free.problem(), "test");
    assert_eq!(show(&less), "1: - | 2: n4* n1 n2 n3");
    let violations = check_plan(&world.problem(), &less).unwrap_err();
    assert_eq!(violations, [Violation::BelowPromise { job: JobId(1), promised: 3.0 }]);

    let jobs = ["1 1-4 linear promise=3", "2 1-4 linear w=9 held=n1,n2,n3,n4"];
    let world = World::new("n1:1800 n2:1800 n3:1800 n4:1800", &jobs);
    let mut idle = last_resort(&world.problem(), "test");
    passes(&world, &idle);
    idle.status = SolveStatus::Trivial;
    let violations = check_plan(&world.problem(), &idle).unwrap_err();
    assert_eq!(
        violations,
        [Violation::BelowPromise { job: JobId(1), promised: 3.0 }],
        "a planner must bring it there"
    );
}

/// Promises some jobs the rate of one of their plans at some size, often the present one.
fn have_promises(world: &mut World, seed: u64) {
    let mut random = Random(seed ^ 0x5EED);
    for job in &mut world.jobs {
        let is_present = !job.held.is_empty() && random.chance(70);
        let plan = if is_present { 0 } else { random.below(job.rates.len() as u64) as usize };
        let rate: &RateCurve = &job.rates[plan];
        let sizes: Vec<u32> = job.sizes.up_to(12);
        let any = sizes.get(random.below(sizes.len() as u64) as usize).copied();
        let nodes = if is_present { Some(job.held.len() as u32) } else { any };
        let least = nodes.map_or(0.0, |nodes| rate.rate(nodes));
        if least > 0.0 && random.chance(50) {
            promise(job, least);
        }
    }
}

/// The rate that a plan gives a job, by the job's own curves.
fn rate(world: &World, plan: &Plan, job: &MalleableJob) -> f64 {
    let problem = world.problem();
    let planned = plan.job_plan(job.id).expect("a plan");
    let gap = planned.nodes.first().and_then(|placement| problem.gap_at(&placement.node));
    let nodes = planned.nodes.len() as u32;
    gap.and_then(|gap| cost::rate_of(job, &gap.node_type, &planned.exec_plan, nodes)).unwrap_or(0.0)
}

/// Checks a plan of a world without the checker: a job that reaches its promised rate as it is keeps it.
/// Returns how many jobs do, and how many are brought to their rate.
fn are_kept(world: &World, plan: &Plan, seed: u64) -> (u64, u64) {
    let problem = world.problem();
    let steps = TimeSteps::from_problem(&problem);
    let mut kept = 0;
    let mut brought = 0;
    for job in world.jobs.iter().filter(|_| !world.drain) {
        let Some(least) = job.active_guarantee().map(|promise| promise.rate * (1.0 - 1e-9)) else { continue };
        let gap = job.lead_node.as_ref().and_then(|node| problem.gap_at(node));
        let nodes = job.held.len() as u32;
        let has = gap.and_then(|gap| cost::rate_of(job, &gap.node_type, &job.exec_plan, nodes));
        let holds = cost::can_stay(&problem, &steps, job) && has.is_some_and(|has| has >= least);
        let gets = rate(world, plan, job);
        assert!(!holds || gets >= least, "seed {seed}: {} makes {gets} of {least}: {}", job.id, show(plan));
        kept += u64::from(holds);
        brought += u64::from(!holds && gets >= least);
    }
    (kept, brought)
}

#[test]
fn no_plan_of_a_random_world_breaks_a_promise() {
    let mut kept = 0;
    let mut brought = 0;
    for seed in effort::seed_range(0..4_000) {
        let mut world = world(seed, 7, 14);
        world.config.mip_gap = 0.001;
        have_promises(&mut world, seed);
        let plan = plan_without_solver(&world.problem(), "test");
        passes(&world, &plan);
        let (keep, bring) = are_kept(&world, &plan, seed);
        kept += keep;
        brought += bring;
        let last = last_resort(&world.problem(), "test");
        passes(&world, &last);
        are_kept(&world, &last, seed);
    }
    println!("{kept} promises are kept, {brought} are reached");
    assert!(kept >= effort::at_least(401) && brought >= effort::at_least(401), "{kept} kept, {brought} more");
}

#[test]
fn no_plan_of_the_solver_breaks_a_promise() {
    for seed in effort::seed_range(50_000..50_800) {
        let mut world = world(seed, 5, 10);
        world.config.mip_gap = 0.001;
        have_promises(&mut world, seed);
        let (plan, _) = solve(&world);
        are_kept(&world, &plan, seed);
    }
}

#[test]
fn no_plan_of_blocks_or_of_counted_hosts_breaks_a_promise() {
    for seed in effort::seed_range(60_000..61_000) {
        for mut world in [blocks::world(seed), shares::moving(seed)] {
            have_promises(&mut world, seed);
            let plan = plan_without_solver(&world.problem(), "test");
            passes(&world, &plan);
            passes(&world, &last_resort(&world.problem(), "test"));
        }
    }
}

#[test]
fn in_an_unchanging_world_all_promises_that_fit_are_reached() {
    let mut come = 0;
    for seed in effort::seed_range(70_000..70_600) {
        let mut random = Random(seed);
        let nodes = 4 + random.below(9);
        let gaps: Vec<String> = (0..nodes).map(|n| format!("n{n:02}:1800")).collect();
        let mut world = World::new(&gaps.join(" "), &[]);
        let mut left = nodes;
        for id in 1..=2 + random.below(4) as u32 {
            let weight = [1, 5, 50][random.below(3) as usize];
            world.jobs.push(job(&format!("{id} 1-{nodes} 1:10,{nodes}:{} w={weight}", 4 * nodes + 6)));
            let needs = random.below(4);
            if needs > 0 && needs <= left {
                left -= needs;
                let least = world.jobs[id as usize - 1].rates[0].rate(needs as u32);
                promise(&mut world.jobs[id as usize - 1], least);
            }
        }
        // Each other running job keeps its minimum.
        let others = world.jobs.iter().filter(|job| job.guarantee.is_none()).count() as u64;
        if others > left {
            continue;
        }
        for _ in 0..2 * world.jobs.len() {
            let plan = plan_without_solver(&world.problem(), "test");
            passes(&world, &plan);
            world = world.after(&plan);
        }
        let plan = plan_without_solver(&world.problem(), "test");
        for job in &world.jobs {
            let Some(least) = job.active_guarantee().map(|promise| promise.rate * (1.0 - 1e-9)) else {
                continue;
            };
            assert!(rate(&world, &plan, job) >= least, "seed {seed}: {}: {}", job.id, show(&plan));
            come += 1;
        }
    }
    assert!(come >= effort::at_least(301), "{come} promises");
}
