//! Placing on few switches: against trying everything on a real cluster's switches, and against placing
//! without regard to them.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::random_worlds::{self, Random};
use super::worlds::*;
use crate::plan::PlanningProblem;
use infill_model::{SwitchRecord, Topology};
use infill_testkit::effort;

/// Hosts by leaf, in the order of the file; `None` without the file.
fn real_leaves() -> Option<BTreeMap<String, Vec<String>>> {
    let path = infill_testkit::data_file("topology/lingjun-hosts.csv.gz")?;
    let (mut unpacked, _) = niffler::from_path(path).expect("a packed file");
    let mut text = String::new();
    unpacked.read_to_string(&mut text).expect("text");
    let mut leaves: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let (host, leaf) = line.split_once(',').expect("a host and its switches");
        leaves.entry(leaf.to_owned()).or_default().push(host[..12].to_owned());
    }
    Some(leaves)
}

fn topology(leaves: &BTreeMap<String, Vec<String>>) -> Topology {
    let leaf = |(name, hosts): (&String, &Vec<String>)| SwitchRecord {
        name: name.clone(),
        nodes: hosts.iter().map(NodeName::new).collect(),
        below: Vec::new(),
    };
    // Core and pod are before the leaf: `G6,P10,S14`.
    let above = |name: &str| name.rsplit_once(',').map(|(above, _)| above.to_owned());
    let mut pods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    leaves
        .keys()
        .for_each(|name| pods.entry(above(name).unwrap_or_default()).or_default().push(name.clone()));
    let records: Vec<SwitchRecord> = leaves
        .iter()
        .map(leaf)
        .chain(pods.into_iter().map(|(name, below)| SwitchRecord { name, nodes: Vec::new(), below }))
        .collect();
    Topology::from_records(&records).expect("a forest")
}

/// Bytes that cross leaves for each byte of gradients. A ring of `nodes` nodes on `leaves` leaves has one
/// link from leaf to leaf for each leaf, if there are several, and each link carries 2(n−1)/n of a byte.
fn crossing(nodes: usize, leaves: usize) -> f64 {
    let links = if leaves > 1 { leaves as f64 } else { 0.0 };
    links * 2.0 * (nodes as f64 - 1.0) / nodes as f64
}

/// The smallest crossing that jobs of these sizes can have, by trying everything. `known` remembers results.
fn least(free: &[usize], sizes: &[usize], known: &mut BTreeMap<(usize, Vec<usize>), f64>) -> f64 {
    let Some((size, rest)) = sizes.split_first() else { return 0.0 };
    let mut free = free.to_vec();
    free.sort_unstable();
    if let Some(least) = known.get(&(sizes.len(), free.clone())) {
        return *least;
    }
    let mut best = f64::INFINITY;
    let mut ways = vec![(0, *size, 0, free.clone())];
    while let Some((at, wanted, leaves, left)) = ways.pop() {
        if wanted == 0 {
            best = best.min(crossing(*size, leaves) + least(&left, rest, known));
        } else if let Some(here) = left.get(at).copied() {
            for taken in 0..=here.min(wanted) {
                let mut left = left.clone();
                left[at] -= taken;
                ways.push((at + 1, wanted - taken, leaves + usize::from(taken > 0), left));
            }
        }
    }
    known.insert((sizes.len(), free), best);
    best
}

fn crossing_of(plan: &Plan, topology: &Topology) -> f64 {
    let of = |nodes: Vec<&NodeName>| crossing(nodes.len().max(1), topology.count_leaves(nodes));
    plan.jobs.iter().map(|job| of(job.nodes.iter().map(|p| &p.node).collect())).sum()
}

fn with<'a>(world: &'a World, topology: &'a Topology) -> PlanningProblem<'a> {
    let mut problem = world.problem();
    problem.topology = Some(topology);
    problem
}

#[test]
fn little_more_crosses_leaves_than_must() {
    let Some(leaves) = real_leaves() else { return };
    let topology = topology(&leaves);
    let names: Vec<&String> = leaves.keys().collect();
    let mut ours = 0.0;
    let mut by_name = 0.0;
    let mut optimum = 0.0;
    for seed in effort::seed_range(0..300) {
        let mut random = Random(seed);
        let r = &mut random;
        // Some hosts of two to five leaves are free, at most twelve in all.
        let mut free: Vec<String> = Vec::new();
        for _ in 0..2 + r.below(4) {
            let hosts = &leaves[names[r.below(names.len() as u64) as usize]];
            free.extend(hosts.iter().filter(|_| r.chance(60)).cloned());
        }
        free.sort();
        free.dedup();
        while free.len() > 12 {
            free.remove(r.below(free.len() as u64) as usize);
        }
        let mut left = free.len();
        let mut sizes = Vec::new();
        while left > 1 && sizes.len() < 4 {
            let size = (2 + r.below(6) as usize).min(left);
            sizes.push(size);
            left -= size;
        }
        let gaps: Vec<String> = free.iter().map(|host| format!("{host}:900")).collect();
        let jobs: Vec<String> =
            sizes.iter().enumerate().map(|(id, size)| format!("{} {size} linear", id + 1)).collect();
        let mut world = World::new(&gaps.join(" "), &jobs.iter().map(String::as_str).collect::<Vec<_>>());
        world.config.max_changes = 100;
        let problem = with(&world, &topology);
        let plan = plan_without_solver(&problem, "test");
        passes(&world, &plan);
        let mut in_order = free.iter().map(NodeName::new);
        for (job, size) in plan.jobs.iter().zip(&sizes) {
            assert_eq!(job.nodes.len(), *size, "seed {seed}");
            let nodes: Vec<NodeName> = in_order.by_ref().take(*size).collect();
            by_name += crossing(*size, topology.count_leaves(&nodes));
        }
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        free.iter().for_each(|host| *counts.entry(topology.leaf_of(&NodeName::new(host))).or_default() += 1);
        let counts: Vec<usize> = counts.into_values().collect();
        optimum += least(&counts, &sizes, &mut BTreeMap::new());
        ours += crossing_of(&plan, &topology);
    }
    println!("crossing: {ours:.1}, at least {optimum:.1}, in the order of names {by_name:.1}");
    if !effort::has_totals() {
        return;
    }
    assert!(ours <= 1.05 * optimum, "{ours} where {optimum} would do");
    assert!(ours <= 0.7 * by_name, "{ours} against {by_name} in the order of names");
}

#[test]
fn regard_to_switches_costs_nothing_else() {
    let mut near = 0;
    let mut anywhere = 0;
    for seed in effort::seed_range(71_000..71_150) {
        let world = random_worlds::world(seed, 6, 40);
        let mut random = Random(seed);
        let mut leaves: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for gap in &world.gaps.gaps {
            if random.chance(10) {
                continue;
            }
            let leaf = format!("G,P{},S{}", random.below(2), random.below(4));
            leaves.entry(leaf).or_default().push(gap.node.to_string());
        }
        let topology = topology(&leaves);
        let problem = with(&world, &topology);
        let plan = plan_without_solver(&problem, "test");
        passes(&world, &plan);
        let without = plan_without_solver(&world.problem(), "test");
        let score = |plan: &Plan| evaluate_plan(&problem, &TimeSteps::from_problem(&problem), plan).score();
        let with = score(&plan);
        let least = score(&without);
        assert!(with >= least - 1e-6 * least.abs(), "seed {seed}: {with} instead of {least}");
        near +=
            plan.jobs.iter().map(|j| topology.count_leaves(j.nodes.iter().map(|p| &p.node))).sum::<usize>();
        anywhere += without
            .jobs
            .iter()
            .map(|j| topology.count_leaves(j.nodes.iter().map(|p| &p.node)))
            .sum::<usize>();
    }
    let saves = near * 100 < anywhere * 95;
    assert!(saves || !effort::has_totals(), "jobs span {near} leaves, and {anywhere} without regard to them");
}

#[test]
fn a_large_job_is_on_the_fewest_possible_switches() {
    for (big, small, wanted, fewest) in [(50, 50, 300, 38), (40, 0, 320, 40), (2, 60, 40, 26)] {
        let host = |leaf: usize, i: usize| format!("l{leaf}h{i}");
        let free = |leaf: usize| if leaf < big { 8 } else { 1 };
        let hosts = |leaf: usize| (0..free(leaf)).map(|i| host(leaf, i)).collect::<Vec<String>>();
        let leaves: BTreeMap<String, Vec<String>> =
            (0..big + small).map(|leaf| (format!("G,P{},S{leaf}", leaf % 7), hosts(leaf))).collect();
        let gaps: Vec<String> = leaves.values().flatten().map(|host| format!("{host}:900")).collect();
        let world = World::new(&gaps.join(" "), &[&format!("1 {wanted} linear")]);
        let topology = topology(&leaves);
        let plan = plan_without_solver(&with(&world, &topology), "test");
        passes(&world, &plan);
        let nodes: Vec<&NodeName> = plan.jobs[0].nodes.iter().map(|p| &p.node).collect();
        assert_eq!((nodes.len(), topology.count_leaves(nodes)), (wanted, fewest));
    }
}
