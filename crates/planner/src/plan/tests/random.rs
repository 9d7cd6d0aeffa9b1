//! Random worlds: the checker passes every plan, and an unchanged world is left alone.

use super::random_worlds::world;
use super::worlds::*;
use infill_testkit::effort;

#[test]
fn the_checker_passes_every_plan_made_without_a_solver() {
    for seed in effort::seeds(0..4_000) {
        let mut world = world(seed, 7, 14);
        world.config.mip_gap = 0.001;
        let plan = fallback(&world.problem(), "test");
        let report = explain(&world.problem(), &plan);
        passes(&world, &plan);
        assert_eq!(report.jobs.len(), world.jobs.len(), "seed {seed}");
        assert_eq!(report.nodes.len(), world.gaps.gaps.len(), "seed {seed}");
    }
}

#[test]
fn the_checker_passes_every_plan_of_the_solver() {
    let (mut worse, mut score) = (0, 0);
    for seed in effort::seeds(20_000..21_000) {
        let mut world = world(seed, 5, 10);
        world.config.mip_gap = 0.001;
        let (plan, _) = solve(&world);
        let without = fallback(&world.problem(), "test");
        let problem = world.problem();
        let steps = Steps::of(&problem);
        let value = |plan: &Plan| evaluate(&problem, &steps, plan).score();
        let (with, without) = (value(&plan), value(&without));
        assert!(with >= without - 1e-6 * without.abs().max(1.0), "seed {seed}: {with} < {without}");
        worse += u32::from(without < with - 1e-6 * with.abs().max(1.0));
        score += 1;
    }
    println!("the solver's plan is better than the one in hand in {worse} of {score} worlds");
}

#[test]
fn an_unchanged_world_is_left_alone() {
    let (mut moved, mut total) = (Vec::new(), 0);
    for seed in effort::seeds(30_000..30_400) {
        let mut world = world(seed, 6, 12);
        // A start that is dearer than a growth would first be made small; see `cost`.
        for job in &mut world.jobs {
            job.costs = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 };
        }
        // What a busy job without its lead's node gives up is free in the next round only.
        world.jobs.retain(|j| j.standing != Standing::Busy);
        world.set_holders();
        world.config.max_changes = 20;
        // Where jobs must avoid nodes, counts are not exact: a round may leave a node idle that the next one
        // uses.
        world.jobs.iter_mut().for_each(|j| j.excluded.clear());
        // With fewer steps than window ends, which steps there are depends on what is held.
        world.config.max_steps = 12;
        let (first, _) = solve(&world);
        let next = world.after(&first);
        let (second, _) = solve(&next);
        // Counts cannot always be laid on nodes as they are: only what is proved best must stay.
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
