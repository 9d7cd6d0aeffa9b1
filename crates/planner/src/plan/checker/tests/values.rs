//! Values that the checker computes, against numbers that are worked out by hand.

use super::*;
use crate::plan::checker::recomputed_value::RecomputedValue;
use infill_model::PlannedNode;

/// Three steps, of 600 s each.
const STEPS: &str = "n1:1800 n2:1200 n3:600";

/// The value of a plan for the only job of a world: with the nodes that it gets now, and the number of nodes
/// in each step after the first.
fn value_of(world: &World, nodes: &[&str], later: &[u32]) -> RecomputedValue {
    let problem = world.problem();
    let steps = TimeSteps::from_problem(&problem);
    let mut plan = plan_without_solver(&problem, "test");
    let planned = &mut plan.jobs[0];
    let lease_until = NOW + 1800;
    planned.nodes =
        nodes.iter().map(|node| PlannedNode { node: NodeName::from(*node), lease_until }).collect();
    planned.forecast = steps.ends().iter().skip(1).copied().zip(later.iter().copied()).collect();
    assert_eq!(planned.forecast.len(), later.len(), "a number for each later step");
    recomputed_value::recompute_value(
        &problem,
        &steps,
        &[CheckedJob::from_plan(&problem, &steps, &world.jobs[0], planned)],
    )
}

/// Net value and largest value, in whole samples.
fn samples(value: RecomputedValue) -> (i64, i64) {
    (value.net.round() as i64, value.most.round() as i64)
}

#[test]
fn each_change_costs_its_own_seconds() {
    // One sample a second on each node.
    let world = World::new(STEPS, &["1 1-3 linear up=18 down=12 start=30"]);
    // Nothing now; then a start, 600 - 30, and as before.
    assert_eq!(samples(value_of(&world, &[], &[1, 1])), (1170, 1170));
    // A start, 600 - 30; growth to two nodes, 2 x (600 - 18); as before, 2 x 600.
    assert_eq!(samples(value_of(&world, &["n1"], &[2, 2])), (2934, 2934));
    // A start on three nodes, 3 x (600 - 30); two of them, 2 x (600 - 12); one of them, 600 - 12.
    assert_eq!(samples(value_of(&world, &["n1", "n2", "n3"], &[2, 1])), (3474, 3474));
    // A start, 600 - 30; parked; a start, 600 - 30.
    assert_eq!(samples(value_of(&world, &["n1"], &[0, 1])), (1140, 1140));
}

#[test]
fn the_largest_value_counts_the_cheapest_way_to_the_same_sizes() {
    // A new start is cheaper than growing or shrinking: by the forecast alone it may be either.
    let world = World::new(STEPS, &["1 1-3 linear up=18 down=12 start=10"]);
    // 600 - 10; 2 x (600 - 18); 2 x 600, or with 10 s instead of 18 s.
    assert_eq!(samples(value_of(&world, &["n1"], &[2, 2])), (2954, 2970));
    // 3 x (600 - 10); 2 x (600 - 12), 600 - 12; or with 10 s instead of 12 s.
    assert_eq!(samples(value_of(&world, &["n1", "n2", "n3"], &[2, 1])), (3534, 3540));
}

#[test]
fn the_reluctance_of_the_first_change_lowers_the_largest_value() {
    let mut world = World::new(NODES, &["1 1-2 linear held=n1 w=2"]);
    world.config.hysteresis = 0.1;
    let found = value_of(&world, &["n1", "n2"], &[]);
    // 2 x 2 x (1800 - 18) are made. If it stays, the job makes 2 x 1800; a tenth of that must be gained.
    assert_eq!((found.net, found.reluctance, found.score(), found.most), (7128.0, 360.0, 6768.0, 6768.0));
}

#[test]
fn a_job_of_blocks_starts_later_where_a_whole_block_has_places() {
    // One place of the type on which it is faster, until the end.
    let gaps = "n1#0:1800 n1#1:1800 n2#0:600:b n2#1:1800:b";
    let world = World::new(gaps, &["1 1 linear block=2 on:b=1:5"]);
    assert_eq!(samples(value_of(&world, &[], &[1])).0, 1182, "a sample a second for 1200 - 18 s");
    let world =
        World::new(&gaps.replace("n2#0:600:b", "n2#0:1800:b n3:600"), &["1 1 linear block=2 on:b=1:5"]);
    assert_eq!(samples(value_of(&world, &[], &[1])).0, 5910, "five times as many");
}
