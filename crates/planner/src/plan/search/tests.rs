//! What makes large rounds fast must change nothing: paths by running maxima, bounds, exchanges.

use super::exchange::{self, ExchangeTerms};
use super::local_search::repeat_sweeps;
use super::multipliers::LagrangianBound;
use super::path_pool::PathPool;
use super::reduced_space::ReducedSpace;
use super::{incumbent, multipliers, path, rebuild};
use crate::plan::{
    planner::is_trivial,
    space::{
        decision::{DecisionSpace, Schedule},
        step_table::StepTable,
        tests::all_paths,
    },
    tests::{
        random_worlds,
        worlds::{World, job},
    },
};
use infill_model::malleable::RateCurve;
use infill_model::{BoundSource, CurvePoint, ExecPlan, MalleableJob, NodeType, ScalingCurve};
use infill_testkit::effort;

/// The best score of a path through each option of each step, by trying all changes.
fn through_by_hand(space: &DecisionSpace<'_>, job: usize, earnings: &StepTable) -> Vec<Vec<f64>> {
    let steps = space.steps.len();
    let options = space.jobs[job].options.len();
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
    let mut compared = 0;
    let mut classes = 0;
    for seed in effort::seed_range(41_000..41_400) {
        let world = random_worlds::world(seed, 4, 12);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        let prices: Vec<f64> = (0..space.limits.len()).map(|l| (l * 37 % 11) as f64 * 5.0).collect();
        for job in (0..space.jobs.len()).filter(|_| !space.steps.is_empty()) {
            let earnings = path::earnings_table(&space, job, Some(&prices));
            let by_hand = through_by_hand(&space, job, &earnings);
            let through = path::scores_through(&space, job, &earnings);
            for (row, expect) in through.rows().zip(&by_hand) {
                for (score, expect) in row.iter().zip(expect) {
                    let close = (score - expect).abs() <= 1e-9 * expect.abs().max(1.0);
                    assert!(close || score == expect, "seed {seed}, job {job}: {score} is not {expect}");
                }
            }
            let (path, score) = path::best_path(&space, job, &earnings).unwrap();
            let best = by_hand[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!((score - best).abs() <= 1e-9 * best.abs().max(1.0), "seed {seed}, job {job}");
            let mut uses = vec![0; space.limits.len()];
            space.take_path(&mut uses, job, &path, -1);
            let paid: f64 = uses.iter().zip(&prices).map(|(n, price)| *n as f64 * price).sum();
            let worth = space.path_score(job, &path) - paid;
            assert!((worth - score).abs() <= 1e-9 * score.abs().max(1.0), "seed {seed}, job {job}: {path:?}");
            compared += 1;
            classes += u64::from(space.jobs[job].changes.classes.len() > 1);
        }
    }
    let enough = compared >= effort::at_least(501) && classes >= effort::at_least(51);
    assert!(enough, "{compared} jobs, {classes} with several classes");
}

/// Most paths of a job that are tried one by one.
const MOST_PATHS: usize = 5_000;

/// How many paths a pool must have, by trying all: each of them is asserted to be in it. `None` where there
/// are too many.
fn missed_by_none(
    space: &DecisionSpace<'_>,
    job: usize,
    pool: &PathPool,
    priced: &LagrangianBound,
    slack: f64,
    most: usize,
) -> Option<usize> {
    let paths = space.jobs[job].options.len().checked_pow(space.steps.len() as u32)?;
    if paths > MOST_PATHS {
        return None;
    }
    let regret = |path: &Vec<usize>| {
        let mut uses = vec![0; space.limits.len()];
        space.take_path(&mut uses, job, path, -1);
        pool.path_regret(space.path_score(job, path), &uses, &priced.prices)
    };
    let error = 1e-9 * priced.bound.abs().max(1.0);
    let near: Vec<(f64, Vec<usize>)> = all_paths(space, job).into_iter().map(|p| (regret(&p), p)).collect();
    if near.iter().filter(|(regret, _)| *regret <= slack + error).count() > most {
        return None;
    }
    let little: Vec<&Vec<usize>> = near.iter().filter(|(r, _)| *r <= slack - error).map(|(_, p)| p).collect();
    for path in &little {
        assert!((0..pool.regrets().len()).any(|n| pool.path_at(n) == path.as_slice()), "job {job}: {path:?}");
    }
    Some(little.len())
}

#[test]
fn a_pool_has_all_paths_of_little_regret_and_exchanges_only_gain() {
    let mut gained = 0;
    let mut tried = 0;
    for seed in effort::seed_range(42_000..42_300) {
        let world = random_worlds::world(seed, 6, 12);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        if is_trivial(&space) {
            continue;
        }
        let in_hand = incumbent::find_incumbent(&space);
        let priced = &in_hand.priced;
        let slack = priced.bound * 0.3;
        let pools: Vec<PathPool> =
            (0..space.jobs.len()).map(|j| PathPool::within_regret(&space, j, priced, slack, 200)).collect();
        for (job, pool) in pools.iter().enumerate() {
            assert!(pool.regrets().is_sorted(), "seed {seed}");
            tried += missed_by_none(&space, job, pool, priced, slack, 200).unwrap_or(0) as u64;
            for (number, regret) in pool.regrets().iter().enumerate() {
                let score = space.path_score(job, pool.path_at(number));
                let again = pool.path_regret(score, pool.uses(number), &priced.prices);
                assert!((regret - again).abs() <= 1e-9 * priced.bound.abs().max(1.0), "seed {seed}");
            }
        }
        // The worst schedule there is: what is kept through the first step, and nothing after it.
        let mut schedule: Schedule = space.base_schedule();
        let before = space.score(&schedule);
        let terms = ExchangeTerms { pools: &pools, priced, least: 0.0 };
        let better = exchange::improve_by_exchange(&space, terms, &mut 20_000, &mut schedule);
        assert!(space.is_feasible(&schedule), "seed {seed}");
        assert_eq!(better, space.score(&schedule) > before, "seed {seed}");
        gained += u64::from(better);
    }
    let enough = gained >= effort::at_least(101) && tried >= effort::at_least(1001);
    assert!(enough, "only {gained} schedules gained; only {tried} paths were tried");
}

/// Most combinations of paths that are tried one by one.
const MOST_COMBINATIONS: usize = 200_000;

/// The best score of all schedules, by trying them; `None` where there are too many.
fn optimum(space: &DecisionSpace<'_>) -> Option<f64> {
    let mut combinations = 1usize;
    let paths: Vec<Vec<Vec<usize>>> = (0..space.jobs.len())
        .map(|job| {
            let counts = (0..space.steps.len()).map(|step| {
                (0..space.jobs[job].options.len()).filter(|o| space.is_allowed(job, *o, step)).count()
            });
            combinations = counts.fold(combinations, usize::saturating_mul);
            if combinations > MOST_COMBINATIONS { Vec::new() } else { all_paths(space, job) }
        })
        .collect();
    let left: Vec<i64> = space.limits.iter().map(|limit| i64::from(limit.most)).collect();
    (combinations <= MOST_COMBINATIONS).then(|| best_of(space, &paths, 0, &left))
}

fn best_of(space: &DecisionSpace<'_>, paths: &[Vec<Vec<usize>>], job: usize, left: &[i64]) -> f64 {
    let Some(own) = paths.get(job) else { return 0.0 };
    let score = |path: &Vec<usize>| {
        let mut left = left.to_vec();
        space.take_path(&mut left, job, path, 1);
        let fits = left.iter().all(|left| *left >= 0);
        if fits {
            space.path_score(job, path) + best_of(space, paths, job + 1, &left)
        } else {
            f64::NEG_INFINITY
        }
    };
    own.iter().map(score).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn branches_find_the_best_schedule_and_prove_it() {
    let mut tried = 0;
    let mut branched = 0;
    let mut proved = 0;
    for seed in effort::seed_range(43_000..44_500) {
        let mut world = random_worlds::world(seed, 4, 9);
        world.config.max_steps = 1 + (seed % 3) as u32;
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        if is_trivial(&space) {
            continue;
        }
        let Some(optimum) = optimum(&space) else { continue };
        let in_hand = incumbent::find_incumbent(&space);
        let error = 1e-9 * optimum.abs().max(1.0);
        assert!(space.is_feasible(&in_hand.schedule), "seed {seed}");
        assert!(in_hand.score <= optimum + error, "seed {seed}: {} > {optimum}", in_hand.score);
        assert!(
            in_hand.bound >= optimum - error,
            "seed {seed}: no better than {} but {optimum}",
            in_hand.bound
        );
        tried += 1;
        if in_hand.by == BoundSource::Branches {
            branched += 1;
            proved += u64::from(in_hand.bound - in_hand.score <= 1e-6 * optimum.abs().max(1.0));
        }
    }
    let enough = tried >= effort::at_least(201) && branched >= effort::at_least(21);
    assert!(enough, "{tried} tried, {branched} branched");
    assert!(proved + effort::at_most(2) >= branched, "{proved} of {branched} were proved to be the best");
}

#[test]
fn a_varied_pool_has_the_best_path_through_each_option() {
    let mut found = 0;
    for seed in effort::seed_range(45_000..45_200) {
        let world = random_worlds::world(seed, 4, 12);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        if is_trivial(&space) {
            continue;
        }
        let priced = incumbent::find_incumbent(&space).priced;
        let slack = priced.bound.abs() * 0.3;
        let error = 1e-9 * priced.bound.abs().max(1.0);
        for job in 0..space.jobs.len() {
            let pool = PathPool::with_variety(&space, job, &priced, slack, usize::MAX);
            assert!(pool.regrets().is_sorted(), "seed {seed}");
            let paths: Vec<&[usize]> = (0..pool.regrets().len()).map(|number| pool.path_at(number)).collect();
            for (number, regret) in pool.regrets().iter().enumerate() {
                let score = space.path_score(job, paths[number]);
                let again = pool.path_regret(score, pool.uses(number), &priced.prices);
                assert!((regret - again).abs() <= error, "seed {seed}, job {job}: {:?}", paths[number]);
            }
            let earnings = path::earnings_table(&space, job, Some(&priced.prices));
            let through = through_by_hand(&space, job, &earnings);
            let best = through[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for (step, row) in through.iter().enumerate() {
                for (option, score) in
                    row.iter().enumerate().filter(|(_, score)| best - **score <= slack - error)
                {
                    let uses_it = |number: &usize| paths[*number][step] == option;
                    let least = (0..paths.len()).filter(uses_it).map(|number| pool.regrets()[number]);
                    let least = least.fold(f64::INFINITY, f64::min);
                    assert!(
                        (least - (best - score)).abs() <= error,
                        "seed {seed}, job {job}: {step} {option}"
                    );
                    found += 1;
                }
            }
        }
    }
    assert!(found >= effort::at_least(1_001), "only {found} options were looked at");
}

/// A world of jobs on a hundred nodes of three types, with few changes.
fn of_three_types(seed: u64, jobs: u32) -> World {
    let mut random = random_worlds::Random(seed);
    let mut gaps = Vec::new();
    for node in 0..100 {
        gaps.push(format!("n{node:03}:{}:t{}", 300 * (1 + random.below(6)), random.below(3)));
    }
    let mut jobs: Vec<MalleableJob> = (1..=jobs)
        .map(|id| job(&format!("{id} {}-40 1:10,40:{}", 1 + random.below(6), 100 + random.below(300))))
        .collect();
    for job in &mut jobs {
        let curve = job.rates[0].curve.clone();
        job.rates.clear();
        for of_type in 0..3 {
            let factor = 0.5 + random.below(100) as f64 / 100.0;
            let point = |p: &CurvePoint| CurvePoint { rate: p.rate * factor, ..*p };
            let curve = ScalingCurve::new(curve.points().iter().map(point).collect()).unwrap();
            let node_type = Some(NodeType::new(format!("t{of_type}")));
            job.rates.push(RateCurve::new(ExecPlan::default(), node_type, curve, None));
        }
    }
    let mut world = World::new(&gaps.join(" "), &[]);
    world.jobs = jobs;
    world.config.max_changes = 10;
    world
}

#[test]
fn rebuilding_improves_what_one_job_at_a_time_does_not_and_repeats_itself() {
    for (seed, jobs) in [(1, 10), (2, 40)] {
        let world = of_three_types(seed, jobs);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        let mut schedule = space.base_schedule();
        repeat_sweeps(&space, &mut schedule);
        let score = space.score(&schedule);
        let priced = multipliers::optimize_multipliers(
            &space,
            multipliers::MultiplierStart::whole_space(&space),
            score,
            |_, _, _| score,
        );
        let improve = || match jobs {
            10 => rebuild::improve_by_rebuild(&space, &priced, &schedule, 0.0),
            _ => rebuild::rebuild_from_pools(&space, &priced, &schedule, 0.0, 300_000),
        };
        let better = improve();
        assert!(space.is_feasible(&better), "seed {seed}");
        assert!(space.score(&better) > score, "seed {seed}: {} is not above {score}", space.score(&better));
        assert!(space.score(&better) <= priced.bound * (1.0 + 1e-9), "seed {seed}");
        assert_eq!(improve(), better, "seed {seed}");
    }
}

#[test]
fn with_nodes_of_three_types_what_is_in_hand_comes_near_to_the_bound() {
    let mut by_prices = 0.0;
    let mut by_branches = 0.0;
    for seed in 1..4 {
        let world = of_three_types(seed, 10);
        let problem = world.problem();
        let in_hand = incumbent::find_incumbent(&DecisionSpace::from_problem(&problem));
        by_prices += (in_hand.priced.bound - in_hand.score) / in_hand.score;
        by_branches += (in_hand.bound - in_hand.score) / in_hand.score;
    }
    // Without rebuilding it is 0.355.
    assert!(by_prices < 0.15, "{by_prices}");
    assert!(by_branches < 0.75 * by_prices, "{by_branches} of {by_prices}");
}

#[test]
fn a_reduced_space_scores_its_schedules_as_the_whole_one_does() {
    let mut dropped = 0;
    for seed in effort::seed_range(46_000..46_200) {
        let world = random_worlds::world(seed, 5, 12);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        if is_trivial(&space) {
            continue;
        }
        let in_hand = incumbent::find_incumbent(&space);
        let useful = multipliers::useful_options(&space, &in_hand.priced, in_hand.score);
        let reduced = ReducedSpace::from_useful(&space, &useful);
        let base = reduced.space.base_schedule();
        assert_eq!(reduced.restore_schedule(&base), space.base_schedule(), "seed {seed}");
        let mut schedule = base;
        repeat_sweeps(&reduced.space, &mut schedule);
        let restored = reduced.restore_schedule(&schedule);
        assert!(space.is_feasible(&restored), "seed {seed}");
        assert_eq!(space.limits_left(&restored), reduced.space.limits_left(&schedule), "seed {seed}");
        let error = 1e-9 * space.score(&restored).abs().max(1.0);
        assert!((space.score(&restored) - reduced.space.score(&schedule)).abs() <= error, "seed {seed}");
        let count = |space: &DecisionSpace<'_>| space.jobs.iter().map(|job| job.options.len()).sum::<usize>();
        dropped += count(&space) - count(&reduced.space);
    }
    assert!(dropped as u64 >= effort::at_least(101), "only {dropped} options were dropped");
}
