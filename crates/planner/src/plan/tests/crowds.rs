//! Very many jobs: the cost of a search is bounded, whatever they ask for.

use super::worlds::*;
use crate::plan::{
    program::improve,
    search::{
        bound::SolveBound,
        branch,
        incumbent::Incumbent,
        multipliers::{self, LagrangianBound},
        path,
    },
    space::{
        decision::{DecisionSpace, Schedule},
        resource::LimitedResource,
    },
};
use infill_model::BoundSource;

/// `jobs` equal jobs, and eight nodes that end at different times.
fn crowd(jobs: u32) -> World {
    let gaps: Vec<String> = (1..=8).map(|n| format!("n{n}:{}", 200 * n)).collect();
    let jobs: Vec<String> = (1..=jobs).map(|id| format!("{id} 1-8 1:10,2:19,4:35,8:60")).collect();
    World::new(&gaps.join(" "), &jobs.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_solver_is_not_asked_about_very_many_equal_jobs() {
    assert!(ask(crowd(20)).is_err(), "it is asked");
    assert!(matches!(ask(crowd(1_500)), Ok(None)));
}

#[test]
fn with_several_node_types_the_solver_is_asked_about_whole_programs_only() {
    let of_two_types = |jobs: u32| {
        let mut world = crowd(jobs);
        world.gaps.gaps.iter_mut().skip(4).for_each(|gap| gap.node_type = NodeType::from("b"));
        world
    };
    assert!(ask(of_two_types(10)).is_err(), "it is asked");
    assert!(ask(crowd(200)).is_err(), "of one type it is asked about a part");
    assert!(matches!(ask(of_two_types(200)), Ok(None)));
}

/// The result of asking a solver that fails, where nodes cost nothing.
fn ask(world: World) -> Result<Option<(Schedule, SolveBound)>, String> {
    let problem = world.problem();
    let space = DecisionSpace::from_problem(&problem);
    let schedule = space.base_schedule();
    let score = space.score(&schedule);
    // Nodes cost nothing, so each job would like all of them.
    let bound: f64 = (0..space.jobs.len())
        .filter_map(|job| Some(path::best_path(&space, job, &space.jobs[job].gains)?.1))
        .sum();
    let priced = LagrangianBound { prices: vec![0.0; space.limits.len()], bound };
    let in_hand =
        Incumbent { schedule, score, others: Vec::new(), priced, bound, by: BoundSource::Multipliers };
    let gives_up = Broken(|_, _| Err(SolverError::Failed("asked".to_owned())));
    improve::improve_incumbent(&space, &gives_up, &in_hand)
}

#[test]
fn the_more_jobs_the_fewer_iterations() {
    for operations in [0, 1, 1_000, 1_000_000, 10_000_000, 1_000_000_000] {
        let iterations = multipliers::limit_iterations(100, operations);
        assert!((10..=100).contains(&iterations), "{iterations} of {operations}");
        assert!(iterations == 10 || iterations * operations <= 100_000_000, "{iterations} of {operations}");
    }
    assert_eq!(
        (multipliers::limit_iterations(100, 1_000_000), multipliers::limit_iterations(100, 4_000_000)),
        (100, 25)
    );
    let branches = [(20, 10_000), (256, 10_000), (512, 10_000), (512, 20_000), (10_000, 4_000_000)];
    let iterations = branches.map(|(jobs, operations)| branch::iteration_budget(jobs, operations));
    assert_eq!(iterations, [6_000, 6_000, 2_999, 1_499, 0]);
}

#[test]
fn of_many_different_exclusion_sets_few_become_limits() {
    let mut world = crowd(60);
    world.config.max_steps = 2;
    for (number, job) in world.jobs.iter_mut().enumerate() {
        // Two nodes of eight, or three: 84 different pairs and triples.
        let nodes = [number % 8, (number / 8 + 1 + number) % 8, (number / 16 + 3 + number) % 8];
        job.excluded = nodes.iter().map(|n| NodeName::new(format!("n{}", n + 1))).collect();
    }
    let lists: std::collections::BTreeSet<_> = world.jobs.iter().map(|job| job.excluded.clone()).collect();
    assert!(lists.len() > 30, "{} lists", lists.len());
    let problem = world.problem();
    let space = DecisionSpace::from_problem(&problem);
    let rows =
        space.limits.iter().filter(|limit| matches!(limit.resource, LimitedResource::Allowed(..))).count();
    assert!((1..=16 * space.steps.len()).contains(&rows), "{rows} limits in {} steps", space.steps.len());
    let plan = plan_without_solver(&problem, "test");
    passes(&world, &plan);
}
