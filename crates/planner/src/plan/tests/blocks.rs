//! Blocks of several places of one host: counting them, against packing them one by one.

use std::collections::{BTreeMap, BTreeSet};

use super::random::is_last_resort;
use super::random_worlds::{Random, have_turns};
use super::worlds::*;
use crate::plan::{
    placement::extract,
    space::decision::{DecisionSpace, Schedule},
};
use infill_testkit::effort;

/// Number of places of a node, with block sizes that are a chain of divisors.
const CHAINS: [(u32, &[u32]); 4] = [(4, &[1, 2, 4]), (8, &[1, 2, 4, 8]), (6, &[1, 3, 6]), (4, &[2, 4])];

/// A world of places: for each node the seconds that each of its places lasts.
fn places(nodes: &[Vec<i64>]) -> World {
    let mut world = World::new("", &[]);
    for (number, places) in nodes.iter().enumerate() {
        let host = NodeName::new(format!("n{number:03}"));
        for (at, secs) in places.iter().enumerate() {
            world.gaps.gaps.push(Gap { node: host.place_name(at), ..gap(&format!("x:{secs}")) });
        }
    }
    world.gaps.gaps.sort_by(|a, b| a.node.cmp(&b.node));
    world
}

/// Whether blocks of these sizes fit on nodes with this many free places, by trying everything. `failed`
/// remembers the numbers of remaining blocks and the free places for which they do not fit.
fn packs(mut free: Vec<u32>, blocks: &[u32], failed: &mut BTreeSet<(usize, Vec<u32>)>) -> bool {
    let Some((size, rest)) = blocks.split_first() else { return true };
    free.sort_unstable();
    if failed.contains(&(blocks.len(), free.clone())) {
        return false;
    }
    for at in (0..free.len()).filter(|at| free[*at] >= *size) {
        let mut left = free.clone();
        left[at] -= size;
        if packs(left, rest, failed) {
            return true;
        }
    }
    failed.insert((blocks.len(), free));
    false
}

/// As [`packs`] for chains: places the largest first, each wherever it fits.
fn packs_largest_first(free: &mut [u32], blocks: &[u32]) -> bool {
    let mut blocks = blocks.to_vec();
    blocks.sort_unstable_by(|a, b| b.cmp(a));
    blocks.iter().all(|size| match free.iter_mut().find(|free| **free >= *size) {
        Some(free) => {
            *free -= size;
            true
        }
        None => false,
    })
}

/// The schedule of one step in which each job has all nodes that it wants; `None` where the space has no such
/// option, or the rows forbid it.
fn complete_schedule(space: &DecisionSpace<'_>) -> Option<Schedule> {
    let option = |job: usize| {
        let all = space.jobs[job].options.iter().enumerate().skip(1);
        let fits = all.filter(|(_, spec)| spec.nodes == space.jobs[job].job.sizes.max());
        fits.map(|(option, _)| vec![option]).next()
    };
    let schedule: Schedule = (0..space.jobs.len()).map(option).collect::<Option<_>>()?;
    space.is_feasible(&schedule).then_some(schedule)
}

#[test]
fn counts_fit_by_rows_if_and_only_if_they_can_be_packed() {
    let mut fit = 0;
    let mut not = 0;
    for seed in effort::seed_range(0..10_000) {
        let mut random = Random(seed);
        let r = &mut random;
        let (size, chain) = CHAINS[r.below(4) as usize];
        let is_large = seed % 100 == 0;
        let count = if is_large { 20 + r.below(181) } else { 1 + r.below(5) };
        let mut free: Vec<u32> = (0..count).map(|_| r.below(u64::from(size) + 1) as u32).collect();
        let mut world = places(&free.iter().map(|n| vec![900; *n as usize]).collect::<Vec<_>>());
        world.config.max_steps = 1;
        world.config.max_changes = 100;
        // Around the number of free places, so that both answers occur.
        let mut left = i64::from(free.iter().sum::<u32>()) * (40 + r.below(61) as i64) / 100;
        let mut blocks = Vec::new();
        for id in 1..=chain.len() as u32 + 1 {
            let block = chain[r.below(chain.len() as u64) as usize];
            let nodes = 1 + r.below((left.max(0) as u64) / u64::from(block) + 1) as u32;
            left -= i64::from(nodes * block);
            blocks.extend(std::iter::repeat_n(block, nodes as usize));
            world.jobs.push(job(&format!("{id} {nodes} linear block={block}")));
            if left <= 0 {
                break;
            }
        }
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        let schedule = complete_schedule(&space);
        let expected = match is_large {
            true => packs_largest_first(&mut free, &blocks),
            false => packs(free.clone(), &blocks, &mut BTreeSet::new()),
        };
        assert_eq!(schedule.is_some(), expected, "seed {seed}: {blocks:?} on {free:?}");
        if let Some(schedule) = schedule {
            let plan = extract::placed_plan(&space, &schedule, SolveStatus::Trivial);
            for job in &world.jobs {
                let nodes = plan.job_plan(job.id).map_or(0, |p| p.nodes.len() as u32);
                assert_eq!(nodes, job.sizes.max(), "seed {seed}: job {} lacks nodes", job.id);
            }
            passes(&world, &plan);
        }
        fit += u64::from(expected);
        not += u64::from(!expected);
    }
    let enough = effort::at_least(2501);
    assert!(fit >= enough && not >= enough, "{fit} fit, {not} do not");
}

/// A random world in which jobs hold blocks, and nodes end at different times.
pub(super) fn world(seed: u64) -> World {
    let mut random = Random(seed);
    let r = &mut random;
    let (size, chain) = CHAINS[r.below(4) as usize];
    let mut secs = || [-20, 20, 70, 130, 300, 900, 900, 1800][r.below(8) as usize];
    let nodes: Vec<Vec<i64>> = (0..6).map(|_| (0..size).map(|_| secs()).collect()).collect();
    let mut world = places(&nodes);
    let mut free: BTreeMap<usize, Vec<usize>> = (0..6).map(|n| (n, (0..size as usize).collect())).collect();
    for id in 1..=1 + r.below(5) as u32 {
        let block = chain[r.below(chain.len() as u64) as usize];
        let mut job = job(&format!(
            "{id} {} 1:10,2:19,4:35,8:60 block={block}",
            ["1-4", "1-8", "2-6"][r.below(3) as usize]
        ));
        for _ in 0..r.below(4) {
            let host = r.below(6) as usize;
            let there = free.entry(host).or_default();
            if there.len() >= block as usize && r.chance(70) {
                let numbers: Vec<usize> = there.drain(..block as usize).collect();
                let node = NodeName::new(format!("n{host:03}")).block_name(&numbers);
                job.held.push(HeldNode { node, slurm_job: JobId(id) });
            }
        }
        if let Some(first) = job.held.first() {
            job.lead_node = Some(first.node.clone());
            job.scheduling_state =
                if r.chance(15) { SchedulingState::Busy } else { SchedulingState::Running };
        }
        job.held.sort_by(|a, b| a.node.cmp(&b.node));
        if r.chance(20) {
            job.excluded =
                world.gaps.gaps.iter().skip(id as usize).step_by(5).map(|g| g.node.clone()).collect();
        }
        world.jobs.push(job);
    }
    world.set_holders();
    world.config.max_steps = 1 + r.below(6) as u32;
    world.config.max_changes = [0, 1, 20][r.below(3) as usize];
    world.min_window_secs = [0.0, 60.0][r.below(2) as usize];
    world.may_grow = !r.chance(10);
    have_turns(&mut world, seed);
    world
}

#[test]
fn the_checker_passes_every_plan_of_blocks() {
    let mut blocks = 0;
    for seed in effort::seed_range(0..3000) {
        let mut world = world(seed);
        let without = plan_without_solver(&world.problem(), "test");
        passes(&world, &without);
        let report = explain_plan(&world.problem(), &without);
        assert_eq!(report.nodes.len(), world.gaps.gaps.len(), "seed {seed}");
        blocks += without.jobs.iter().flat_map(|j| &j.nodes).filter(|p| p.node.is_block()).count() as u64;
        if seed % 10 == 0 {
            world.config.solve_secs = 1.0;
            let with = plan_round(&world.problem(), solver().as_ref());
            passes(&world, &with);
        }
    }
    assert!(blocks >= effort::at_least(3001), "{blocks} blocks");
}

#[test]
fn the_checker_passes_every_last_resort_of_blocks() {
    let kept: u64 = effort::seed_range(0..3000).map(|seed| is_last_resort(&world(seed), seed).0).sum();
    assert!(kept >= effort::at_least(1001), "{kept} jobs keep something");
}

#[test]
fn a_small_worker_goes_where_it_breaks_up_no_larger_block() {
    let mut world = places(&[vec![900; 4], vec![900; 3], vec![900; 2]]);
    world.jobs = vec![job("1 1 linear"), job("2 1 linear block=2"), job("3 1 linear block=4")];
    let plan = plan_round(&world.problem(), solver().as_ref());
    let nodes: Vec<String> = plan.jobs.iter().map(|j| j.nodes[0].node.to_string()).collect();
    assert_eq!(nodes, ["n001:2", "n002:0+1", "n000:0+1+2+3"]);
    passes(&world, &plan);
}
