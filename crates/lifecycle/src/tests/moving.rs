//! Starts, growth, shrinking, moves and parking.

use crate::effect::Effect;
use crate::phase::JobPhase;
use infill_model::{Directive, MalleableState, SchedulingState, UnixTime};

use super::rig::{LEAD, Rig, n, rig, running};

#[test]
fn starts_on_all_its_nodes_at_once() {
    let r = running("1-8", &[3, 1, 2]);
    assert_eq!(r.started, vec![vec!["n3", "n1", "n2"]], "{:?}", r.notes);
    assert_eq!(r.nodes_running(), ["n1", "n2", "n3"]);
    assert_eq!(r.m.counts.rescales, 0);
    let Directive::Run(member) = r.m.directive_for(&n(2)) else { panic!("n2 runs nothing") };
    assert_eq!((member.rank, member.world, member.master_addr.as_str()), (2, 3, "n3.cluster"));
}

#[test]
fn grows_only_once_all_new_workers_have_arrived() {
    let mut r = running("1-8", &[1]);
    r.target(&[1, 2, 3]);
    assert_eq!(r.nodes_running(), ["n1"], "training goes on while wings come up");
    assert!(matches!(r.m.phase, JobPhase::Running { .. }));
    r.run();
    assert_eq!(r.started, [vec!["n1"], vec!["n1", "n2", "n3"]]);
    assert_eq!(r.m.counts.rescales, 1);
}

#[test]
fn growth_waits_for_all_wings_under_way_until_they_are_late() {
    for late in [false, true] {
        let mut r = running("1-8", &[1]);
        r.target(&[1, 2, 3]);
        r.submit_wings();
        let slow = r.m.held_nodes(r.now)[&n(3)];
        let nodes = r.slurm.remove(&slow).unwrap();
        r.run();
        r.pass(20);
        assert_eq!((r.agents.len(), r.started.len()), (2, 1), "n2 has arrived, and n3 may still arrive");
        if late {
            r.pass(1);
            r.run();
            assert_eq!(r.started[1..], [["n1", "n2"]]);
        } else {
            r.slurm.insert(slow, nodes);
            r.run();
            assert_eq!(r.started[1..], [["n1", "n2", "n3"]]);
        }
    }
}

#[test]
fn a_lead_with_too_few_nodes_waits_for_wings_under_way_until_they_are_late() {
    for late in [false, true] {
        let mut r = rig("2-4");
        r.target(&[1, 2]);
        r.say_hello();
        r.target(&[1, 2]);
        r.submit_wings();
        (0..2).for_each(|_| r.pass(10));
        assert_eq!((r.m.malleable_state(), r.started.len()), (MalleableState::Starting, 0));
        if late {
            (0..2).for_each(|_| r.pass(1));
            assert_eq!(r.m.malleable_state(), MalleableState::Parking);
        } else {
            r.say_hello();
            assert_eq!(r.started, [["n1", "n2"]]);
        }
    }
}

#[test]
fn shrinks_and_gives_the_wing_back() {
    let mut r = running("1-8", &[1, 2, 3]);
    r.target(&[1, 3]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n3"]);
    r.observe();
    r.run();
    assert!(!r.agents.contains_key(&n(2)), "the worker on n2 has left");
    assert_eq!(r.m.wings.len(), 1);
}

#[test]
fn only_allowed_sizes_are_run() {
    let r = running("1,2,4", &[1, 2, 3]);
    assert_eq!(r.started, vec![vec!["n1", "n2"]]);
}

#[test]
fn one_wing_for_nodes_with_the_same_known_end_and_one_each_for_others() {
    let mut r = rig("1-8");
    for i in [2, 3] {
        r.windows.insert(n(i), UnixTime(5000));
    }
    r.target(&[1, 2, 3, 4, 5]);
    r.run();
    r.target(&[1, 2, 3, 4, 5]);
    let mut sizes: Vec<usize> = r.m.wings.values().map(|w| w.order.nodes.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 2]);
}

#[test]
fn nodes_share_wings_near_the_limit() {
    let sizes = |wings_left: usize| {
        let mut r = running("1-9", &[1]);
        r.windows.insert(n(2), UnixTime(5000));
        r.wings_left = wings_left;
        r.target(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let mut sizes: Vec<usize> = r.m.wings.values().map(|w| w.order.nodes.len()).collect();
        sizes.sort_unstable();
        (sizes, r.m.shortage_reason(r.now))
    };
    let bound = Some("there are as many wings as slurm.max_wings allows".to_owned());
    assert_eq!(sizes(8), (vec![1; 8], None));
    assert_eq!(sizes(7), (vec![1, 3, 4], None), "half of them for this job");
    assert_eq!(sizes(2), (vec![1, 7], None));
    assert_eq!(sizes(1), (vec![7], bound.clone()), "no more than the limit of orders");
    assert_eq!(sizes(0), (vec![], bound));
}

#[test]
fn moves_the_lead_with_one_restart_and_keeps_the_wings_that_stay() {
    let mut r = running("1-8", &[1, 2, 3]);
    let wing_of_3 = r.m.held_nodes(r.now)[&n(3)];
    r.target(&[4, 3]);
    r.run();
    assert_eq!(r.m.malleable_state(), MalleableState::Parking);
    r.observe();
    r.run();
    // Its last node would still refuse a new start, and Slurm would count the job as failed.
    r.target(&[4, 3]);
    assert_eq!(r.m.malleable_state(), MalleableState::Queued);
    r.now = r.now + 1;
    r.target(&[4, 3]);
    assert_eq!(r.m.malleable_state(), MalleableState::Launching);
    r.run();
    r.target(&[4, 3]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n4", "n3"], "{:?}", r.notes);
    assert_eq!(r.m.held_nodes(r.now)[&n(3)], wing_of_3);
}

#[test]
fn a_plan_that_puts_another_of_its_nodes_first_moves_the_lead_there() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[2, 1]);
    r.run();
    assert_eq!(r.m.malleable_state(), MalleableState::Parking);
    assert!(r.notes.is_empty(), "{:?}", r.notes);
    r.observe();
    r.run();
    for _ in 0..2 {
        r.now = r.now + 1;
        r.target(&[2, 1]);
        r.run();
    }
    assert_eq!(r.started, [["n1", "n2"], ["n2", "n1"]], "{:?}", r.notes);
    assert_eq!((r.slurm[&LEAD].as_slice(), r.m.counts.rescales), ([n(2)].as_slice(), 1));
}

#[test]
fn the_lead_starts_on_its_own_wings_node_only_once_the_wing_has_gone() {
    let mut r = running("1-8", &[1, 2, 3]);
    let wing = r.m.held_nodes(r.now)[&n(2)];
    let launches = |r: &Rig| r.effects.iter().filter(|e| matches!(e, Effect::Launch { .. })).count();
    assert_eq!(launches(&r), 1);
    r.target(&[2, 3]);
    r.run();
    // Slurm takes a while to end the wing.
    r.slurm.insert(wing, vec![n(2)]);
    r.observe();
    r.now = r.now + 1;
    r.target(&[2, 3]);
    assert_eq!((r.m.malleable_state(), launches(&r)), (MalleableState::Queued, 1));
    r.slurm.remove(&wing);
    r.observe();
    r.target(&[2, 3]);
    assert_eq!((r.m.malleable_state(), launches(&r)), (MalleableState::Launching, 2));
    assert_eq!(r.slurm[&LEAD], [n(2)]);
}

#[test]
fn parks_when_it_gets_nothing_and_starts_again_later() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[]);
    r.run();
    r.observe();
    r.run();
    r.observe();
    r.run();
    assert_eq!((r.m.malleable_state(), r.m.held_nodes(r.now).len()), (MalleableState::Queued, 0));
    assert!(r.agents.is_empty() && r.slurm.is_empty() && r.held);
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Waiting);
    r.target(&[5]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n5"]);
}

#[test]
fn a_job_with_too_few_nodes_does_not_start() {
    let mut r = rig("2-4");
    r.target(&[1]);
    r.run();
    assert_eq!(r.m.malleable_state(), MalleableState::Starting, "the next plan may have more for it");
    r.target(&[1]);
    r.run();
    r.pass(30);
    assert!(r.started.is_empty());
    assert_eq!(r.m.malleable_state(), MalleableState::Parking);
}
