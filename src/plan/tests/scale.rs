//! What makes large rounds fast must change nothing: changes by kind, paths by running maxima, bounds,
//! exchanges.

use super::optimal::all_paths;
use super::*;
use crate::model::Prover;
use crate::plan::planner::is_trivial;
use crate::plan::search::exchange::{self, Terms};
use crate::plan::search::in_hand;
use crate::plan::search::path;
use crate::plan::search::pool::Pool;
use crate::plan::search::prices::Priced;
use crate::plan::space::cost::Change;
use crate::plan::space::decision::{Schedule, Space};

#[test]
fn a_change_costs_what_its_kind_costs() {
    let mut seen = 0;
    for seed in 40_000..40_200 {
        let world = random::world(seed, 4, 10);
        let problem = world.problem();
        for job in &Space::of(&problem).jobs {
            for (from, a) in job.options.iter().enumerate() {
                for (to, b) in job.options.iter().enumerate() {
                    let change = a.change_to(b, from == to);
                    let reluctance = if change.takes_nodes() { job.reluctance } else { 0.0 };
                    let expect = change.loss(&job.job.costs, b.rate) * job.job.weight + reluctance;
                    assert_eq!(job.change_cost(from, to), expect, "seed {seed}: {a:?} to {b:?}");
                    seen += usize::from(change == Change::Shrink);
                }
            }
        }
    }
    assert!(seen > 500, "only {seen} changes were looked at");
}

/// The best score of a path through each option of each step, by trying all changes.
fn through_by_hand(space: &Space<'_>, job: usize, earnings: &path::Table) -> Vec<Vec<f64>> {
    let (steps, options) = (space.steps.len(), space.jobs[job].options.len());
    let cost = |from, to| space.jobs[job].change_cost(from, to);
    let best = |scores: &mut dyn Iterator<Item = f64>| scores.fold(f64::NEG_INFINITY, f64::max);
    let mut ahead = vec![vec![0.0; options]; steps];
    let mut behind = vec![vec![0.0; options]; steps];
    for step in (0..steps - 1).rev() {
        for from in 0..options {
            let to = |to: usize| earnings.row(step + 1)[to] + ahead[step + 1][to] - cost(from, to);
            ahead[step][from] = best(&mut (0..options).map(to));
        }
    }
    for step in 1..steps {
        for to in 0..options {
            let from = |from: usize| behind[step - 1][from] + earnings.row(step - 1)[from] - cost(from, to);
            behind[step][to] = best(&mut (0..options).map(from));
        }
    }
    let sum = |s: usize, o: usize| ahead[s][o] + behind[s][o] + earnings.row(s)[o];
    (0..steps).map(|s| (0..options).map(|o| sum(s, o)).collect()).collect()
}

#[test]
fn running_maxima_find_the_best_paths() {
    let (mut compared, mut classes) = (0, 0);
    for seed in 41_000..41_400 {
        let world = random::world(seed, 4, 12);
        let problem = world.problem();
        let space = Space::of(&problem);
        let prices: Vec<f64> = (0..space.limits.len()).map(|l| (l * 37 % 11) as f64 * 5.0).collect();
        for job in (0..space.jobs.len()).filter(|_| !space.steps.is_empty()) {
            let earnings = path::earnings(&space, job, Some(&prices));
            let by_hand = through_by_hand(&space, job, &earnings);
            let through = path::through(&space, job, &earnings);
            for (row, expect) in through.rows().zip(&by_hand) {
                for (score, expect) in row.iter().zip(expect) {
                    let close = (score - expect).abs() <= 1e-9 * expect.abs().max(1.0);
                    assert!(close || score == expect, "seed {seed}, job {job}: {score} is not {expect}");
                }
            }
            let (path, score) = path::best(&space, job, &earnings).unwrap();
            let best = by_hand[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!((score - best).abs() <= 1e-9 * best.abs().max(1.0), "seed {seed}, job {job}");
            let mut uses = vec![0; space.limits.len()];
            space.take(&mut uses, job, &path, -1);
            let paid: f64 = uses.iter().zip(&prices).map(|(n, price)| *n as f64 * price).sum();
            let worth = space.path_score(job, &path) - paid;
            assert!((worth - score).abs() <= 1e-9 * score.abs().max(1.0), "seed {seed}, job {job}: {path:?}");
            compared += 1;
            classes += usize::from(space.jobs[job].changes.classes.len() > 1);
        }
    }
    assert!(compared > 500 && classes > 50, "{compared} jobs, {classes} with several classes");
}

/// Most paths of a job that are tried one by one.
const MOST_PATHS: usize = 5_000;

/// How many paths a pool must have, by trying all: each of them is asserted to be in it. `None` where there
/// are too many.
fn missed_by_none(
    space: &Space<'_>,
    job: usize,
    pool: &Pool,
    priced: &Priced,
    (slack, most): (f64, usize),
) -> Option<usize> {
    let paths = space.jobs[job].options.len().checked_pow(space.steps.len() as u32)?;
    if paths > MOST_PATHS {
        return None;
    }
    let regret = |path: &Vec<usize>| {
        let mut uses = vec![0; space.limits.len()];
        space.take(&mut uses, job, path, -1);
        pool.regret(space.path_score(job, path), &uses, &priced.prices)
    };
    let error = 1e-9 * priced.bound.abs().max(1.0);
    let near: Vec<(f64, Vec<usize>)> = all_paths(space, job).into_iter().map(|p| (regret(&p), p)).collect();
    if near.iter().filter(|(regret, _)| *regret <= slack + error).count() > most {
        return None;
    }
    let little: Vec<&Vec<usize>> = near.iter().filter(|(r, _)| *r <= slack - error).map(|(_, p)| p).collect();
    for path in &little {
        assert!((0..pool.regrets().len()).any(|n| pool.path(n) == path.as_slice()), "job {job}: {path:?}");
    }
    Some(little.len())
}

#[test]
fn a_pool_has_all_paths_of_little_regret_and_exchanges_only_gain() {
    let (mut gained, mut tried) = (0, 0);
    for seed in 42_000..42_300 {
        let world = random::world(seed, 6, 12);
        let problem = world.problem();
        let space = Space::of(&problem);
        if is_trivial(&space) {
            continue;
        }
        let in_hand = in_hand::solve(&space);
        let priced = &in_hand.priced;
        let slack = priced.bound * 0.3;
        let pools: Vec<Pool> =
            (0..space.jobs.len()).map(|j| Pool::of(&space, j, priced, slack, 200)).collect();
        for (job, pool) in pools.iter().enumerate() {
            assert!(pool.regrets().is_sorted(), "seed {seed}");
            tried += missed_by_none(&space, job, pool, priced, (slack, 200)).unwrap_or(0);
            for (number, regret) in pool.regrets().iter().enumerate() {
                let score = space.path_score(job, pool.path(number));
                let again = pool.regret(score, pool.uses(number), &priced.prices);
                assert!((regret - again).abs() <= 1e-9 * priced.bound.abs().max(1.0), "seed {seed}");
            }
        }
        // The worst schedule there is: what is kept through the first step, and nothing after it.
        let rest = |job: usize| space.jobs[job].options.iter().position(|o| o.keeps && o.now).unwrap_or(0);
        let path = |job: usize| (0..space.steps.len()).map(|s| if s == 0 { rest(job) } else { 0 }).collect();
        let mut schedule: Schedule = (0..space.jobs.len()).map(path).collect();
        let before = space.score(&schedule);
        let terms = Terms { pools: &pools, priced, least: 0.0 };
        let better = exchange::improve(&space, terms, &mut 20_000, &mut schedule);
        assert!(space.is_feasible(&schedule), "seed {seed}");
        assert_eq!(better, space.score(&schedule) > before, "seed {seed}");
        gained += u32::from(better);
    }
    assert!(gained > 100 && tried > 1000, "only {gained} schedules gained; only {tried} paths were tried");
}

#[test]
fn a_proof_says_what_was_proved_and_by_what() {
    let jobs = ["1 1-8 1:10,2:19,4:35,8:60", "2 1-8 1:10,2:18,4:30,8:44", "3 2-6 2:30,6:60"];
    let mut world = World::new("a1:1800 a2:900 a3:900 a4:1200 a5:400", &jobs);
    let (solved, _) = solve(&world);
    let proof = solved.proof.unwrap();
    assert!(proof.gap <= 1e-6, "{proof:?}");
    let without = fallback(&world.problem(), "test");
    let other = without.proof.unwrap();
    assert!(other.bound >= proof.bound - 1e-6 * proof.bound && other.by == Prover::Prices, "{other:?}");
    // With no time for it, the solver is not asked.
    world.config.solve_secs = 0.0;
    let plan = plan(&world.problem(), &Broken(|_, _| panic!("asked")));
    passes(&world, &plan);
    assert_eq!(plan.proof, without.proof);
    // With one step the knapsack is exact.
    world.config.max_steps = 1;
    let plan = super::plan(&world.problem(), &Broken(|_, _| panic!("asked")));
    assert_eq!(plan.status, SolveStatus::Optimal);
    assert!(plan.proof.is_some_and(|p| p.gap <= 1e-6), "{:?}", plan.proof);
}
