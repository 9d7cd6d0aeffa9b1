//! Members that are lost while others join.

use crate::phase::Phase;
use infill_model::AgentEvent;

use super::live::{last, went_on};
use super::rig::{Rig, alive, n};

/// Two members of which one has died, and a third that is let in.
fn growing() -> Rig {
    let mut r = alive("1-8", &[1, 2]);
    r.pass(100);
    r.hang.insert(n(2));
    r.target(&[1, 2, 3]);
    r.run();
    assert!(matches!(r.m.phase, Phase::Regrouping { .. }), "{:?}", r.m.phase);
    assert_eq!(last(&r), ["n1", "n2", "n3"]);
    r
}

fn are_here(r: &mut Rig) {
    for i in [1, 3] {
        r.m.seen(&n(i), r.m.workers[&n(i)].slurm_job, r.now);
    }
}

#[test]
fn a_member_that_died_is_missed_by_those_who_wait_for_its_step() {
    for event in [AgentEvent::Failed { generation: 1 }, AgentEvent::Stuck { generation: 1 }] {
        let mut r = growing();
        r.event(&n(1), event);
        are_here(&mut r);
        r.now = r.now + 3;
        r.with(|_, _, _| {});
        assert_eq!(last(&r), ["n1", "n3"], "{:?}", r.notes);
        r.run();
        went_on(&r, &["n1", "n3"]);
    }
}

#[test]
fn where_nobody_misses_a_step_there_is_time_for_it() {
    let mut r = growing();
    are_here(&mut r);
    r.now = r.now + 3;
    r.with(|_, _, _| {});
    assert_eq!(last(&r), ["n1", "n2", "n3"]);
}

#[test]
fn nobody_joins_before_it_is_known_who_is_lost() {
    let mut r = alive("1-8", &[1, 2]);
    r.pass(100);
    r.hang.insert(n(2));
    r.event(&n(1), AgentEvent::Failed { generation: 1 });
    r.target(&[1, 2, 3]);
    r.run();
    assert!(matches!(r.m.phase, Phase::Running { .. }), "{:?}", r.m.phase);
    are_here(&mut r);
    r.now = r.now + 3;
    r.with(|_, _, _| {});
    assert_eq!(last(&r), ["n1"], "{:?}", r.notes);
    r.run();
    went_on(&r, &["n1"]);
    r.target(&[1, 3]);
    r.run();
    went_on(&r, &["n1", "n3"]);
}
