//! Jobs that stay alive and lose their lead: the other members train on, and the lead returns as a newcomer.

use crate::effect::Effect;
use crate::phase::{AbsenceStage, JobPhase};
use crate::settings::{AWAY_SECS, LEAVES_SECS};
use infill_model::{AgentEvent, CommandExit, Directive, MalleableState, NodeName, SchedulingState};

use super::rig::{LEAD, Rig, alive, n, settings};

const DONE: CommandExit = CommandExit { code: 0, asked: false, killed: false };

fn last(r: &Rig) -> Vec<&str> {
    r.started.last().unwrap().iter().map(String::as_str).collect()
}

fn stage(r: &Rig) -> Option<AbsenceStage> {
    r.m.generation.lead_absence.as_ref().map(|away| away.stage)
}

/// Slurm has taken the lead's node, and shows the lead in its queue.
fn requeued(r: &mut Rig) {
    r.slurm.remove(&LEAD);
    r.agents.remove(&n(1));
    r.held = false;
    r.observe();
}

/// A job of four nodes after Slurm has taken the lead's node.
fn taken() -> Rig {
    let mut r = alive("1-8", &[1, 2, 3, 4]);
    r.event(&n(1), AgentEvent::Leaving);
    r.run();
    r
}

#[test]
fn wings_train_on_and_the_lead_replaces_one_of_them() {
    let mut r = taken();
    assert_eq!(
        (r.m.malleable_state(), last(&r)),
        (MalleableState::Running, vec!["n2", "n3"]),
        "{:?}",
        r.notes
    );
    assert_eq!(
        (stage(&r), r.m.scheduling_state(r.now)),
        (Some(AbsenceStage::Leaving), SchedulingState::Busy)
    );
    assert_eq!(r.m.held_lead(r.now), Some(&n(4)), "its return node is its own");
    assert!(!r.effects.iter().any(|e| matches!(e, Effect::Launch { node, .. } if *node == n(4))));
    requeued(&mut r);
    r.run();
    r.observe();
    r.run();
    assert!(r.effects.contains(&Effect::Hold { job: LEAD }), "only infill starts it: {:?}", r.effects);
    assert!(r.effects.iter().any(|e| matches!(e, Effect::Launch { node, .. } if *node == n(4))));
    assert_eq!((stage(&r), last(&r)), (None, vec!["n2", "n3", "n4"]), "{:?}", r.notes);
    assert_eq!((r.stops, r.m.counts.restarts, r.m.malleable_state()), (0, 0, MalleableState::Running));
    assert_eq!(r.m.lead_node(), Some(&n(4)));
    // After that it grows and shrinks like any other job.
    r.target(&[4, 2, 3, 5]);
    r.run();
    assert_eq!(last(&r), ["n2", "n3", "n4", "n5"]);
    r.target(&[4, 3, 5]);
    r.run();
    assert_eq!((last(&r), r.stops), (vec!["n3", "n4", "n5"], 0), "{:?}", r.notes);
}

#[test]
fn a_snapshot_from_before_its_return_changes_nothing() {
    let mut r = taken();
    requeued(&mut r);
    r.say_hello();
    assert_eq!((stage(&r), r.m.lead_node()), (None, Some(&n(4))));
    let nodes = r.slurm.remove(&LEAD).unwrap();
    r.look();
    assert_eq!(r.m.lead_node(), Some(&n(4)), "{:?}", r.notes);
    r.slurm.insert(LEAD, nodes);
    r.observe();
    r.run();
    assert_eq!((last(&r), r.stops), (vec!["n2", "n3", "n4"], 0), "{:?}", r.notes);
    // A later snapshot counts.
    r.slurm.remove(&LEAD);
    r.observe();
    assert_ne!(r.m.lead_node(), Some(&n(4)));
}

#[test]
fn a_plan_from_before_its_absence_changes_nothing() {
    let mut r = taken();
    // The second plan knows that the lead is away, but not where it will return.
    for nodes in [&[1, 2, 3, 4][..], &[2, 3]] {
        r.target(nodes);
        r.run();
        assert_eq!(
            (r.m.malleable_state(), last(&r), r.stops),
            (MalleableState::Running, vec!["n2", "n3"], 0)
        );
    }
    requeued(&mut r);
    r.target(&[4, 2, 3]);
    r.run();
    r.observe();
    r.run();
    assert_eq!((stage(&r), last(&r), r.stops), (None, vec!["n2", "n3", "n4"], 0), "{:?}", r.notes);
}

#[test]
fn its_node_may_die_without_a_report() {
    let mut r = alive("1-8", &[1, 2, 3, 4]);
    requeued(&mut r);
    let Directive::Regroup(place) = r.m.directive_for(&n(2)) else { panic!("{:?}", r.m.phase) };
    assert!(place.meeting.unwrap().urgent, "the members do not wait for the step of a dead node");
    r.run();
    r.observe();
    r.run();
    assert_eq!((stage(&r), last(&r)), (None, vec!["n2", "n3", "n4"]), "{:?}", r.notes);
    assert_eq!((r.stops, r.m.counts.restarts), (0, 0), "{:?}", r.notes);
}

#[test]
fn infill_requeues_it_if_slurm_does_not() {
    let mut r = taken();
    r.pass(LEAVES_SECS as i64 + 1);
    assert!(r.effects.contains(&Effect::RequeueHold { job: LEAD }), "{:?}", r.effects);
    r.observe();
    r.run();
    r.observe();
    r.run();
    assert_eq!((stage(&r), r.stops), (None, 0), "{:?}", r.notes);
    assert_eq!(last(&r), ["n2", "n3", "n4"]);
}

#[test]
fn a_job_with_too_few_remaining_members_restarts() {
    for (sizes, nodes) in [("1-8", &[1, 2][..]), ("3-8", &[1, 2, 3, 4])] {
        let mut r = alive(sizes, nodes);
        r.event(&n(1), AgentEvent::Leaving);
        assert!(matches!(r.m.phase, JobPhase::Stopping { .. }), "{sizes}: {:?}", r.m.phase);
        assert_eq!(stage(&r), None);
    }
}

#[test]
fn a_command_that_fails_on_the_leads_node_is_a_failure() {
    let mut r = alive("1-8", &[1, 2, 3, 4]);
    r.stopped(&n(1), 1, CommandExit { code: 3, asked: false, killed: false });
    assert!(matches!(r.m.phase, JobPhase::Stopping { .. }) && stage(&r).is_none(), "{:?}", r.m.phase);
}

#[test]
fn the_wait_for_its_return_is_limited() {
    let mut r = taken();
    requeued(&mut r);
    assert_eq!(stage(&r), Some(AbsenceStage::Launched), "its place is free");
    // Slurm does not start it.
    r.slurm.remove(&LEAD);
    let max_secs = AWAY_SECS + settings().lead_start_secs + settings().prolog_secs;
    for _ in 0..(max_secs / 5.0) as i64 + 1 {
        r.pass(5);
    }
    assert!(!matches!(r.m.phase, JobPhase::Running { .. }), "{:?}", r.m.phase);
    r.observe();
    assert!(
        matches!(r.m.phase, JobPhase::Stopping { .. }),
        "the members are still stopping: {:?}",
        r.m.phase
    );
    for i in [2, 3] {
        r.stopped(&n(i), r.m.generation.number, CommandExit { code: 0, asked: true, killed: false });
    }
    r.observe();
    assert_eq!((r.m.malleable_state(), stage(&r)), (MalleableState::Queued, None), "{:?}", r.notes);
    assert_eq!(r.m.obstacles.held_by, None, "infill holds it");
    r.run();
    assert!(r.slurm.is_empty(), "the wings are given back: {:?}", r.slurm);
}

#[test]
fn a_command_that_ends_meanwhile_ends_once_the_lead_is_back() {
    let mut r = taken();
    requeued(&mut r);
    let generation = r.m.generation.number;
    for i in [2, 3] {
        r.stopped(&n(i), generation, DONE);
    }
    assert_eq!(r.m.malleable_state(), MalleableState::Queued, "{:?}", r.notes);
    for _ in 0..3 {
        r.observe();
        r.run();
    }
    r.pass(600);
    for _ in 0..2 {
        r.target(&[4, 2]);
        r.run();
    }
    let generation = r.m.generation.number;
    for node in last(&r).iter().map(|n| NodeName::new(*n)).collect::<Vec<_>>() {
        r.stopped(&node, generation, DONE);
    }
    assert_eq!(r.m.phase, JobPhase::Ending { code: 0 }, "{:?}", r.notes);
}

#[test]
fn wings_may_be_lost_while_it_is_away() {
    let mut r = taken();
    requeued(&mut r);
    r.event(&n(3), AgentEvent::Leaving);
    r.run();
    r.observe();
    r.run();
    assert_eq!((stage(&r), last(&r), r.stops), (None, vec!["n2", "n4"], 0), "{:?}", r.notes);
}
