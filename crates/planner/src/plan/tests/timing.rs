//! How long rounds take, and how good the incumbent is. Run with
//! `cargo test --release -p infill-planner plan::tests::timing -- --ignored --nocapture`.

#![expect(clippy::disallowed_types, reason = "it measures how long solving takes")]

use std::time::Instant;

use super::random_worlds::Random;
use super::worlds::*;
use crate::plan::{
    placement::extract,
    program::write::write_program,
    search::{incumbent, multipliers},
    space::decision::DecisionSpace,
};

/// Jobs that scale to 64 nodes, most of them running, on nodes with windows of 1 to 60 minutes.
fn world(jobs: u64, nodes: u64) -> World {
    let mut r = Random(jobs * 1000 + nodes);
    let mut world = World::new("", &[]);
    for n in 0..nodes {
        let secs = 60 + r.below(60) * r.below(60);
        world.gaps.gaps.push(gap(&format!("n{n:04}:{secs}:a?")));
    }
    let mut free = world.gaps.gaps.iter().map(|g| g.node.clone()).collect::<Vec<_>>().into_iter();
    for id in 1..=jobs as u32 {
        let mut job = job(&format!("{id} 1-64 1:100,2:190,4:350,8:640,16:1100,32:1700,64:2300"));
        job.weight = 0.5 + r.below(100) as f64 / 100.0;
        if r.chance(70) {
            let held = free.by_ref().take(1 + r.below(nodes / jobs * 2 - 1) as usize);
            job.held = held.map(|node| HeldNode { node, slurm_job: JobId(id) }).collect();
            job.lead_node = job.held.first().map(|h| h.node.clone());
            job.scheduling_state = SchedulingState::Running;
        }
        world.jobs.push(job);
    }
    world.set_holders();
    world.config = PlannerConfig::default();
    world
}

#[test]
#[ignore = "measures"]
fn rounds_of_several_sizes() {
    for (jobs, nodes) in [(5, 40), (10, 100), (20, 100), (20, 200), (50, 350)] {
        let world = world(jobs, nodes);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        let started = Instant::now();
        let incumbent = incumbent::find_incumbent(&space);
        let incumbent_secs = started.elapsed().as_secs_f64();
        let (milp, _) =
            write_program(&space, &multipliers::useful_options(&space, &incumbent.priced, incumbent.score));
        let started = Instant::now();
        let plan = plan_round(&problem, solver().as_ref());
        let secs = started.elapsed().as_secs_f64();
        let score = |plan: &Plan| evaluate_plan(&problem, &space.steps, plan).score();
        let placed = score(&extract::placed_plan(&space, &incumbent.schedule, SolveStatus::Trivial));
        println!(
            "{jobs} jobs, {nodes} nodes: incumbent {incumbent_secs:.2} s, {:.2} % below the bound, {:.2} % lost when \
             placed on nodes; {} variables, {} rows; plan {secs:.2} s, {:.2} % better, {:?}",
            100.0 * (1.0 - incumbent.score / incumbent.priced.bound),
            100.0 * (1.0 - placed / incumbent.score),
            milp.variables.len(),
            milp.rows.len(),
            100.0 * (score(&plan) / placed - 1.0),
            plan.status
        );
    }
}

#[test]
#[ignore = "measures"]
fn checking() {
    for (jobs, nodes) in [(20, 200), (100, 4608)] {
        let world = world(jobs, nodes);
        let problem = world.problem();
        let started = Instant::now();
        let plan = plan_without_solver(&problem, "measured");
        let planned = started.elapsed().as_secs_f64();
        let started = Instant::now();
        for _ in 0..10 {
            passes(&world, &plan);
        }
        let checked = started.elapsed().as_secs_f64() / 10.0;
        println!("{jobs} jobs, {nodes} nodes: planned in {planned:.3} s, checked in {checked:.4} s");
    }
}
