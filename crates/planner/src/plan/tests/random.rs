//! Random worlds: the checker passes every plan, and an unchanged world is left alone.

use super::random_worlds::world;
use super::worlds::*;
use crate::plan::space::cost;
use infill_model::{ExcludedNodes, RoundNote};
use infill_testkit::effort;

#[test]
fn the_checker_passes_every_plan_made_without_a_solver() {
    for seed in effort::seed_range(0..4_000) {
        let mut world = world(seed, 7, 14);
        world.config.mip_gap = 0.001;
        let plan = plan_without_solver(&world.problem(), "test");
        let report = explain_plan(&world.problem(), &plan);
        passes(&world, &plan);
        assert_eq!(report.jobs.len(), world.jobs.len(), "seed {seed}");
        assert_eq!(report.nodes.len(), world.gaps.gaps.len(), "seed {seed}");
    }
}

/// Checks what makes a last resort: the checker passes it, no job gets what it does not have, and jobs that
/// may stay as they are do. Returns how many jobs keep something, and how many lose something.
pub fn is_last_resort(world: &World, seed: u64) -> (u64, u64) {
    let plan = last_resort(&world.problem(), "test");
    passes(world, &plan);
    assert_eq!(plan.status, SolveStatus::LastResort("test".to_owned()));
    let problem = world.problem();
    let steps = TimeSteps::from_problem(&problem);
    let mut kept = 0;
    let mut lost = 0;
    for job in &world.jobs {
        let nodes = &plan.job_plan(job.id).unwrap().nodes;
        let has = |node: &NodeName| job.held.iter().any(|h| h.node == *node);
        assert!(nodes.iter().all(|p| has(&p.node)), "seed {seed}: {} gets something", job.id);
        let may_stay = !world.drain
            && matches!(job.scheduling_state, SchedulingState::Running | SchedulingState::Waiting);
        if may_stay && cost::can_stay(&problem, &steps, job) {
            assert_eq!(nodes.len(), job.held.len(), "seed {seed}: {} loses something", job.id);
        }
        kept += u64::from(!nodes.is_empty());
        lost += u64::from(nodes.len() < job.held.len());
    }
    let report = explain_plan(&problem, &plan);
    assert_eq!(report.jobs.len(), world.jobs.len(), "seed {seed}");
    assert!(
        report.notes.contains(&RoundNote::NotPlanned("test".to_owned())),
        "seed {seed}: {:?}",
        report.notes
    );
    (kept, lost)
}

#[test]
fn the_checker_passes_every_last_resort() {
    let mut kept = 0;
    let mut lost = 0;
    for seed in effort::seed_range(40_000..44_000) {
        let (keep, lose) = is_last_resort(&world(seed, 7, 14), seed);
        kept += keep;
        lost += lose;
    }
    assert!(kept >= effort::at_least(1001) && lost >= effort::at_least(1001), "{kept} keep, {lost} lose");
}

#[test]
fn the_last_resort_keeps_what_lasts() {
    // The first may have two of its three nodes that are left; the second keeps all; the third has lost its
    // lead's node; the fourth waits.
    let gaps = "a:900 b:3 c:600 d:600 e:900 f:2 g:900 h:900 i:900";
    let jobs = ["1 1,2 1:1,2:2 held=a,b,c", "2 1-4 linear held=d,e", "3 1-4 linear held=f,g", "4 1-8 linear"];
    let world = World::new(gaps, &jobs);
    let plan = last_resort(&world.problem(), "test");
    passes(&world, &plan);
    assert_eq!(show(&plan), "1: a* c | 2: d* e | 3: - | 4: -");
    let later = |job: usize| {
        plan.jobs[job].forecast.iter().map(|(end, n)| (end.secs_since(NOW), *n)).collect::<Vec<_>>()
    };
    assert_eq!(later(0), [(900.0, 1)]);
    assert_eq!(later(1), [(900.0, 0)], "its lead's node has ended by then");
    let report = explain_plan(&world.problem(), &plan);
    let why: Vec<String> = report.jobs.iter().map(|j| j.why.to_string()).collect();
    assert_eq!(
        why,
        [
            "shrinks from 3 to 2 nodes; it must leave b",
            "keeps its 2 nodes at 2.00 samples/s: nothing was planned in this round",
            "is parked; it must leave f; needs at least 1 node; 7 are free for longer than 60 s",
            "waits: nothing was planned in this round",
        ]
    );
}

#[test]
fn the_checker_passes_every_plan_of_the_solver() {
    let mut worse = 0;
    let mut score = 0;
    for seed in effort::seed_range(20_000..21_000) {
        let mut world = world(seed, 5, 10);
        world.config.mip_gap = 0.001;
        let (plan, _) = solve(&world);
        let without = plan_without_solver(&world.problem(), "test");
        let problem = world.problem();
        let steps = TimeSteps::from_problem(&problem);
        let value = |plan: &Plan| evaluate_plan(&problem, &steps, plan).score();
        let with = value(&plan);
        let without = value(&without);
        assert!(with >= without - 1e-6 * without.abs().max(1.0), "seed {seed}: {with} < {without}");
        worse += u32::from(without < with - 1e-6 * with.abs().max(1.0));
        score += 1;
    }
    println!("the solver's plan is better than the incumbent in {worse} of {score} worlds");
}

#[test]
fn an_unchanged_world_is_left_alone() {
    let mut moved = Vec::new();
    let mut total = 0;
    for seed in effort::seed_range(30_000..30_400) {
        let mut world = world(seed, 6, 12);
        // A start that costs more than a growth would first be made small; see `cost`.
        for job in &mut world.jobs {
            job.costs = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 };
        }
        // What a busy job without its lead's node gives up is free only in the next round.
        world.jobs.retain(|j| j.scheduling_state != SchedulingState::Busy);
        world.set_holders();
        world.config.max_changes = 20;
        // Where jobs must avoid nodes, counts are not exact: one round may leave a node idle that the next
        // one uses.
        world.jobs.iter_mut().for_each(|j| j.excluded = ExcludedNodes::default());
        // With fewer steps than window ends, the steps depend on the held nodes.
        world.config.max_steps = 12;
        let (first, _) = solve(&world);
        let next = world.after(&first);
        let (second, _) = solve(&next);
        // Counts cannot always be placed on nodes as they are: only what is proved best must stay.
        if first.proof.is_none_or(|proof| proof.gap > world.config.mip_gap + 1e-9) {
            continue;
        }
        total += 1;
        if show(&first) != show(&second) {
            moved.push(format!("seed {seed}:\n  {}\n  {}", show(&first), show(&second)));
        }
    }
    assert!(total >= effort::at_least(251), "{total} worlds");
    assert!(moved.is_empty(), "{} of {total}:\n{}", moved.len(), moved.join("\n"));
}
