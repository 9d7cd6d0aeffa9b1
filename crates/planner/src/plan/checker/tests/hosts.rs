//! Who is not to blame where a host has too little.

use crate::plan::tests::worlds::*;

/// Two jobs on one host, whose plans need more than it has.
fn crowded() -> World {
    let mut world = World::new(
        "n1#0:1800 n1#1:1800 n1#2:1800",
        &["1 1-2 linear held=n1:0 needs:default=9", "2 1 linear held=n1:1 needs:default=9"],
    );
    world.count((4, 1000), "n1=12/3000");
    world
}

#[test]
fn who_runs_may_go_on_whatever_hosts_have() {
    let world = crowded();
    let plan = last_resort(&world.problem(), "test");
    assert_eq!(show(&plan), "1: n1:0* | 2: n1:1*");
    passes(&world, &plan);
    let plan = plan_without_solver(&world.problem(), "test");
    assert_eq!(show(&plan), "1: n1:0* | 2: n1:1*", "and gets no more of such a host");
    passes(&world, &plan);
}

#[test]
fn where_nothing_is_counted_nobody_needs_too_much() {
    let mut world = crowded();
    world.gaps.gaps.iter_mut().for_each(|gap| gap.share = None);
    let plan = plan_without_solver(&world.problem(), "test");
    assert_eq!(show(&plan), "1: n1:0* n1:2 | 2: n1:1*");
    passes(&world, &plan);
}
