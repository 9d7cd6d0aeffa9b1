//! Placing workers on few hosts: against trying everything, and against placing by windows only.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks;
use super::random_worlds::Random;
use super::worlds::*;
use crate::plan::{
    placement::{extract, network_spread::plan_spread},
    search::incumbent,
    space::decision::DecisionSpace,
};
use infill_model::{SwitchRecord, Topology};
use infill_testkit::effort;

/// The places that a job gets, in the order of its ranks.
fn places(plan: &Plan, job: u32) -> String {
    let nodes = plan.job_plan(JobId(job)).map_or(&[][..], |job| &job.nodes);
    nodes.iter().map(|p| p.node.to_string()).collect::<Vec<_>>().join(" ")
}

/// As [`World::new`], with a budget for all jobs to change.
fn world(gaps: &str, jobs: &[&str]) -> World {
    let mut world = World::new(gaps, jobs);
    world.config.max_changes = 100;
    world
}

fn planned(world: &World) -> Plan {
    let plan = plan_without_solver(&world.problem(), "test");
    passes(world, &plan);
    plan
}

/// The smallest total number of hosts for jobs of these sizes, each host counted for each of its jobs, by
/// trying everything. `known` remembers results.
fn fewest(free: &[usize], sizes: &[usize], known: &mut BTreeMap<(usize, Vec<usize>), usize>) -> usize {
    let Some((size, rest)) = sizes.split_first() else { return 0 };
    let mut free = free.to_vec();
    free.sort_unstable();
    if let Some(fewest) = known.get(&(sizes.len(), free.clone())) {
        return *fewest;
    }
    let mut best = usize::MAX;
    let mut ways = vec![(0, *size, 0, free.clone())];
    while let Some((at, wanted, hosts, left)) = ways.pop() {
        if wanted == 0 {
            best = best.min(hosts + fewest(&left, rest, known));
        } else if let Some(here) = left.get(at).copied() {
            for taken in 0..=here.min(wanted) {
                let mut left = left.clone();
                left[at] -= taken;
                ways.push((at + 1, wanted - taken, hosts + usize::from(taken > 0), left));
            }
        }
    }
    known.insert((sizes.len(), free), best);
    best
}

#[test]
fn a_job_gets_the_two_places_of_one_host() {
    // The most stable places are those that Slurm fills last: n2#0, then n1#1.
    let plan = planned(&world("n1#0:900 n1#1:900 n2#0:900", &["1 2 linear"]));
    assert_eq!(places(&plan, 1), "n1:1 n1:0");
}

#[test]
fn the_tightest_host_is_taken_that_takes_all_else_the_largest_first() {
    let free = "a#0:900 a#1:900 b#0:900 b#1:900 b#2:900 c#0:900 c#1:900 c#2:900 c#3:900";
    assert_eq!(places(&planned(&world(free, &["1 3 linear"])), 1), "b:2 b:0 b:1");
    assert_eq!(places(&planned(&world(free, &["1 2 linear"])), 1), "a:1 a:0");
    let six: BTreeSet<String> =
        places(&planned(&world(free, &["1 6 linear"])), 1).split(' ').map(|p| p[..1].to_owned()).collect();
    assert_eq!(six.into_iter().collect::<String>(), "ac", "four and two instead of four, one and one");
}

#[test]
fn a_running_job_keeps_its_places_and_grows_beside_them() {
    let free = "n1#0:900 n1#1:900 n3#0:900 n3#1:900 n9#0:900 n9#1:900";
    let world = world(free, &["1 4 linear held=n3:1,n1:0"]);
    let plan = planned(&world);
    // Ranks on the lead's host come first, and ranks on one host follow one another.
    assert_eq!(places(&plan, 1), "n3:1 n3:0 n1:0 n1:1");
}

#[test]
fn kept_places_are_together() {
    let free = "n1#0:900 n2#0:900 n3#0:900 n3#1:900 n1#1:900 n4#0:500";
    let world = world(free, &["1 1-9 linear held=n1:0,n1:1,n2:0,n3:0,n3:1,n4:0"]);
    let problem = world.problem();
    let space = DecisionSpace::from_problem(&problem);
    let kept = space.jobs[0].kept_order.iter().map(|kept| space.slots[kept.slots[0]].gap.node.to_string());
    assert_eq!(kept.collect::<Vec<_>>().join(" "), "n1:0 n1:1 n3:1 n3:0 n2:0 n4:0");
}

#[test]
fn hosts_come_under_leaf_switches_also_for_blocks() {
    let record = |name: &str, nodes: &[&str]| SwitchRecord {
        name: name.to_owned(),
        nodes: nodes.iter().map(NodeName::new).collect(),
        below: Vec::new(),
    };
    let topology =
        Topology::from_records(&[record("left", &["n1", "n3"]), record("right", &["n2", "n4"])]).unwrap();
    // Single places: the right leaf takes all six, on two hosts; n3, with four, is on the other leaf.
    let free = "n1#0:900 n2#0:900 n2#1:900 n2#2:900 n3#0:900 n3#1:900 n3#2:900 n3#3:900 n4#0:900 n4#1:900 \
                n4#2:900";
    let plan_of = |free: &str, job: &str| {
        let world = world(free, &[job]);
        let mut problem = world.problem();
        problem.topology = Some(&topology);
        let plan = plan_without_solver(&problem, "test");
        passes(&world, &plan);
        places(&plan, 1)
    };
    assert_eq!(plan_of(free, "1 6 linear"), "n4:2 n4:0 n4:1 n2:0 n2:1 n2:2");
    // Blocks of two: n4 has one, n3 two, n1 one.
    let free = "n1#0:900 n1#1:900 n3#0:900 n3#1:900 n4#0:900 n4#1:900";
    assert_eq!(plan_of(free, "1 2 linear block=2"), "n3:0+1 n1:0+1");
}

#[test]
fn jobs_are_on_few_more_hosts_than_possible_and_never_on_more_than_by_name() {
    let mut ours = 0;
    let mut by_name = 0;
    let mut optimum = 0;
    for seed in effort::seed_range(0..300) {
        let mut random = Random(seed);
        let r = &mut random;
        let free: Vec<usize> = (0..2 + r.below(4)).map(|_| 1 + r.below(4) as usize).collect();
        let mut left = free.iter().sum::<usize>().min(12);
        let mut sizes = Vec::new();
        while left > 0 && sizes.len() < 4 {
            let size = (1 + r.below(6) as usize).min(left);
            sizes.push(size);
            left -= size;
        }
        let all: Vec<(usize, usize)> = free
            .iter()
            .enumerate()
            .flat_map(|(host, free)| (0..*free).map(move |at| (host, at)).collect::<Vec<_>>())
            .collect();
        let gaps: Vec<String> = all.iter().map(|(host, at)| format!("n{host}#{at}:900")).collect();
        let jobs: Vec<String> =
            sizes.iter().enumerate().map(|(id, size)| format!("{} {size} linear", id + 1)).collect();
        let world = world(&gaps.join(" "), &jobs.iter().map(String::as_str).collect::<Vec<_>>());
        let plan = planned(&world);
        // The most stable places are the last by name, and those go to the job that loses most.
        let mut largest_first = sizes.clone();
        largest_first.sort_unstable_by(|a, b| b.cmp(a));
        let mut in_order = all.iter().rev();
        let hosts = |size: usize| {
            in_order.by_ref().take(size).map(|(host, _)| *host).collect::<BTreeSet<usize>>().len()
        };
        let in_order: usize = largest_first.iter().copied().map(hosts).sum();
        let (_, placed) = plan_spread(&world.problem(), &plan.jobs);
        assert!(placed <= in_order, "seed {seed}: {placed} hosts, {in_order} in the order of names");
        plan.jobs
            .iter()
            .zip(&sizes)
            .for_each(|(job, size)| assert_eq!(job.nodes.len(), *size, "seed {seed}"));
        ours += placed;
        by_name += in_order;
        optimum += fewest(&free, &sizes, &mut BTreeMap::new());
    }
    println!("hosts: {ours}, at least {optimum}, in the order of names {by_name}");
    if effort::has_totals() {
        assert!(ours * 100 <= optimum * 103, "{ours} hosts where {optimum} would do");
        assert!(ours * 100 <= by_name * 90, "{ours} hosts, {by_name} in the order of names");
    }
}

#[test]
fn placing_on_few_hosts_costs_nothing_else() {
    let mut near = 0;
    let mut anywhere = 0;
    for seed in effort::seed_range(0..600) {
        let world = blocks::world(seed);
        let problem = world.problem();
        let space = DecisionSpace::from_problem(&problem);
        let schedule = incumbent::find_incumbent(&space).schedule;
        let plan = extract::placed_plan(&space, &schedule, SolveStatus::Trivial);
        passes(&world, &plan);
        let by_windows = extract::placed_plan_by_windows(&space, &schedule, SolveStatus::Trivial);
        let score = |plan: &Plan| evaluate_plan(&problem, &TimeSteps::from_problem(&problem), plan).score();
        let with = score(&plan);
        let least = score(&by_windows);
        assert!(with >= least - 1e-6 * least.abs(), "seed {seed}: {with} instead of {least}");
        let hosts = |plan: &Plan| plan_spread(&problem, &plan.jobs).1;
        assert!(hosts(&plan) <= hosts(&by_windows), "seed {seed}");
        near += hosts(&plan);
        anywhere += hosts(&by_windows);
    }
    println!("hosts: {near}, and {anywhere} by windows alone");
    assert!(near * 100 < anywhere * 98 || !effort::has_totals(), "{near} hosts, {anywhere} by windows alone");
}
