//! The optimum against brute force, and the heuristics against the optimum.

use crate::plan::planner::is_trivial;
use crate::plan::program::variables;
use crate::plan::program::write::write_program;
use crate::plan::search::incumbent;
use crate::plan::search::multipliers;
use crate::plan::space::decision::DecisionSpace;
use crate::plan::space::decision::Schedule;
use crate::plan::space::tests::all_paths;
use crate::plan::tests::random_worlds;
use crate::plan::tests::worlds::*;
use infill_testkit::effort;

/// The best schedule of all, by trying each.
fn brute_force(space: &DecisionSpace<'_>) -> f64 {
    let paths: Vec<Vec<Vec<usize>>> = (0..space.jobs.len()).map(|job| all_paths(space, job)).collect();
    let mut best = f64::NEG_INFINITY;
    let mut schedule: Schedule = vec![Vec::new(); paths.len()];
    try_all(space, &paths, &mut schedule, 0, &mut best);
    best
}

fn try_all(
    space: &DecisionSpace<'_>,
    paths: &[Vec<Vec<usize>>],
    schedule: &mut Schedule,
    job: usize,
    best: &mut f64,
) {
    if job == paths.len() {
        if space.is_feasible(schedule) {
            *best = best.max(space.score(schedule));
        }
        return;
    }
    for path in &paths[job] {
        schedule[job].clone_from(path);
        try_all(space, paths, schedule, job + 1, best);
    }
}

/// All options that are allowed.
fn everything(space: &DecisionSpace<'_>) -> multipliers::UsefulOptions {
    let step = |job: usize, step: usize| {
        (0..space.jobs[job].options.len()).map(|o| space.is_allowed(job, o, step)).collect()
    };
    let of_job = |job: usize| (0..space.steps.len()).map(|s| step(job, s)).collect();
    (0..space.jobs.len()).map(of_job).collect()
}

/// The solver's schedule, unpolished.
fn solved(space: &DecisionSpace<'_>) -> (f64, f64) {
    solved_over(space, &everything(space))
}

fn solved_over(space: &DecisionSpace<'_>, useful: &multipliers::UsefulOptions) -> (f64, f64) {
    let (milp, index) = write_program(space, useful);
    let limits = Limits { secs: 20.0, mip_gap: 0.0 };
    let solution = solver().solve(&milp, limits, None).unwrap();
    let schedule = variables::decode_assignment(&index, &solution.values).unwrap();
    assert!(space.is_feasible(&schedule));
    (space.score(&schedule), milp.total_gain(&solution.values))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * b.abs().max(1.0)
}

#[test]
fn the_solver_finds_what_brute_force_finds() {
    let mut compared = 0;
    for seed in effort::seed_range(0..400) {
        let mut world = random_worlds::world(seed, 3, 4);
        world.config.max_steps = 1 + (seed % 3) as u32;
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        let paths: f64 = (0..space.jobs.len())
            .map(|j| (space.jobs[j].options.len() as f64).powi(space.steps.len() as i32))
            .product();
        if is_trivial(&space) || paths > 30_000.0 {
            continue;
        }
        let best = brute_force(&space);
        let (score, gain) = solved(&space);
        assert!(close(score, best), "seed {seed}: {score} is not {best}");
        let in_hand = incumbent::find_incumbent(&space);
        assert!(in_hand.priced.bound >= best - 1e-6 * best.abs(), "seed {seed}: the bound is too low");
        let useful = multipliers::useful_options(&space, &in_hand.priced, in_hand.score);
        let (reduced, _) = solved_over(&space, &useful);
        assert!(close(reduced, best), "seed {seed}: without useless options {reduced} is not {best}");
        assert!(close(gain, best), "seed {seed}: the model says {gain}, its schedule is worth {best}");
        compared += 1;
    }
    assert!(compared >= effort::at_least(101), "only {compared} cases were small enough");
}

#[test]
fn with_one_step_and_one_type_the_dynamic_program_is_exact() {
    for seed in effort::seed_range(1000..1100) {
        let mut world = random_worlds::world(seed, 8, 12);
        world.config.max_steps = 1;
        world.min_window_secs = 0.0;
        for gap in &mut world.gaps.gaps {
            gap.node_type = NodeType::from("a");
        }
        for job in &mut world.jobs {
            job.excluded = ExcludedNodes::default();
            job.rates.iter_mut().for_each(|r| r.node_type = None);
        }
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        if is_trivial(&space) {
            continue;
        }
        let (score, _) = solved(&space);
        let ours = incumbent::find_incumbent(&space).score;
        assert!(close(ours, score), "seed {seed}: {ours} is not {score}");
    }
}

#[test]
fn an_encoded_schedule_is_feasible_and_worth_its_score() {
    for seed in effort::seed_range(2000..2100) {
        let world = random_worlds::world(seed, 6, 10);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        if is_trivial(&space) {
            continue;
        }
        let schedule = incumbent::find_incumbent(&space).schedule;
        let (milp, index) = write_program(&space, &everything(&space));
        let values = variables::encode_schedule(&space, &index, &milp, &schedule);
        assert!(milp.is_feasible(&values, 1e-9), "seed {seed}");
        assert!(close(milp.total_gain(&values), space.score(&schedule)), "seed {seed}");
        assert_eq!(variables::decode_assignment(&index, &values), Some(schedule));
    }
}
