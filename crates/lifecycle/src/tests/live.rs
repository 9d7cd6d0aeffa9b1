//! Commands that stay alive: they grow, shrink and lose members without a stop, or restart.

mod any_order;

use crate::phase::JobPhase;
use crate::settings::{MAX_TRIES, WARM_SECS};
use crate::worker::LiveState;
use infill_model::{AgentEvent, CommandExit, Directive, LiveChange, MalleableState, RescaleMode};

use super::rig::{Rig, alive, n, progress, running};

const DONE: CommandExit = CommandExit { code: 0, asked: false, killed: false };
const KILLED: CommandExit = CommandExit { code: 137, asked: false, killed: false };

/// The end of a command that its agent has killed because the other members go on without it.
fn let_go(generation: u64) -> AgentEvent {
    let exit = CommandExit { code: 137, asked: true, killed: false };
    AgentEvent::Stopped { generation, exit, stop_secs: 0.0, port: 4000 }
}

pub(super) fn last(r: &Rig) -> Vec<&str> {
    r.started.last().unwrap().iter().map(String::as_str).collect()
}

#[track_caller]
pub(super) fn went_on(r: &Rig, nodes: &[&str]) {
    assert_eq!((r.m.malleable_state(), last(r)), (MalleableState::Running, nodes.to_vec()), "{:?}", r.notes);
    assert_eq!((r.stops, r.m.counts.restarts), (0, 0), "{:?}", r.notes);
}

/// One agent follows its order, and the others do not yet.
fn obey(r: &mut Rig, i: u32) {
    let running = r.agents.get(&n(i)).copied().flatten();
    r.obey(&n(i), running);
}

#[test]
fn grows_while_its_members_train_without_a_stop() {
    let mut r = alive("1-8", &[1, 2]);
    r.target(&[1, 2, 3, 4]);
    r.submit_wings();
    r.say_hello();
    assert!(matches!(r.m.directive_for(&n(1)), Directive::Run(_)), "the members are not notified yet");
    let Directive::Warm(place) = r.m.directive_for(&n(3)) else { panic!("{:?}", r.m.directive_for(&n(3))) };
    assert_eq!((place.rank, place.world), (2, 3), "a membership that no member waits for");
    obey(&mut r, 3);
    assert_eq!(r.m.malleable_state(), MalleableState::Running, "the other one is awaited");
    obey(&mut r, 4);
    let Directive::Regroup(place) = r.m.directive_for(&n(4)) else {
        panic!("{:?}", r.m.directive_for(&n(4)))
    };
    let meeting = place.meeting.unwrap();
    assert_eq!((place.generation, place.rank, place.world), (2, 3, 4));
    assert_eq!((meeting.store.as_deref(), meeting.urgent), (Some("n1.cluster:5000"), false));
    r.run();
    went_on(&r, &["n1", "n2", "n3", "n4"]);
    assert_eq!((r.m.generation.number, r.m.counts.rescales), (2, 1));
    assert_eq!(
        (r.lived, r.m.rescale_mode()),
        (vec![LiveChange { from: 2, to: 4, secs: 0.1 }], RescaleMode::Live)
    );
}

#[test]
fn shrinks_and_only_the_removed_members_leave() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.target(&[1, 3]);
    assert_eq!(r.m.directive_for(&n(2)), Directive::Part { generation: 2, urgent: false });
    r.run();
    went_on(&r, &["n1", "n3"]);
    r.observe();
    r.run();
    assert!(!r.agents.contains_key(&n(2)) && r.m.wings.len() == 1, "{:?}", r.agents);
    assert_eq!(r.lived, [LiveChange { from: 3, to: 2, secs: 0.1 }]);
}

#[test]
fn a_node_that_is_taken_is_left_at_the_next_step() {
    let mut r = alive("1-8", &[1, 2, 3]);
    let rescaled = r.m.rescaled_at;
    r.event(&n(2), AgentEvent::Leaving);
    assert_eq!(r.m.directive_for(&n(2)), Directive::Part { generation: 2, urgent: false });
    r.run();
    went_on(&r, &["n1", "n3"]);
    assert_eq!(r.m.rescaled_at, rescaled, "a loss does not count as a rescale");
}

#[test]
fn a_killed_process_causes_no_restart_and_its_node_is_avoided() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.stopped(&n(2), 1, KILLED);
    let Directive::Regroup(place) = r.m.directive_for(&n(3)) else { panic!("{:?}", r.m.phase) };
    assert!(place.meeting.unwrap().urgent, "the members must not wait for its step");
    r.run();
    went_on(&r, &["n1", "n3"]);
    assert!(r.m.obstacles.trials.is_shunned(&n(2), r.now) && r.strikes.is_empty());
    assert!(r.lived.is_empty(), "a loss is not typical of planned changes");
}

#[test]
fn a_node_that_misses_the_roll_call_is_lost() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.pass(100);
    r.now = r.now + 1;
    r.event(&n(1), AgentEvent::Stuck { generation: 1 });
    let Directive::Run(place) = r.m.directive_for(&n(2)) else { panic!("{:?}", r.m.phase) };
    assert_eq!(place.meeting.unwrap().rolls, 1, "a roll call has begun");
    r.now = r.now + 1;
    for i in [1, 3] {
        r.m.record_heartbeat(&n(i), r.m.workers[&n(i)].slurm_job, r.now);
    }
    r.now = r.now + 1;
    r.with(|_, _, _| {});
    assert_eq!(r.m.malleable_state(), MalleableState::Running, "it may still answer");
    r.now = r.now + 1;
    r.with(|_, _, _| {});
    assert_eq!(last(&r), ["n1", "n3"]);
    r.hang.insert(n(2));
    r.run();
    went_on(&r, &["n1", "n3"]);
    // It was away only for a while, and comes back as a newcomer.
    r.hang.clear();
    r.run();
    went_on(&r, &["n1", "n3", "n2"]);
}

#[test]
fn a_sign_of_life_before_the_roll_call_does_not_answer_it() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.pass(100);
    r.event(&n(1), AgentEvent::Failed { generation: 1 });
    for i in [1, 3] {
        r.m.record_heartbeat(&n(i), r.m.workers[&n(i)].slurm_job, r.now);
        // It reports its membership again, because the roll call came with its assignment.
        r.event(&n(i), AgentEvent::Joined { generation: 1, secs: 0.1 });
    }
    r.now = r.now + 3;
    r.with(|_, _, _| {});
    assert_eq!(last(&r), ["n1", "n3"], "{:?}", r.notes);
    r.hang.insert(n(2));
    r.run();
    went_on(&r, &["n1", "n3"]);
}

#[test]
fn a_repeated_report_does_not_resolve_a_failed_step() {
    let mut r = alive("1-8", &[1, 2]);
    r.event(&n(1), AgentEvent::Failed { generation: 1 });
    r.event(&n(1), AgentEvent::Joined { generation: 1, secs: 0.1 });
    r.pass(3);
    r.run();
    went_on(&r, &["n1", "n2"]);
    assert_eq!(r.m.generation.number, 2, "they met again");
}

#[test]
fn members_that_answer_the_roll_call_go_on() {
    let mut r = alive("1-8", &[1, 2]);
    r.event(&n(1), AgentEvent::Stuck { generation: 1 });
    r.pass(3);
    assert_eq!(r.started.len(), 1);
    // After a failed step without a loss the members meet again.
    r.event(&n(1), AgentEvent::Failed { generation: 1 });
    assert_eq!(r.started.len(), 1, "the lost member may still be found");
    r.pass(3);
    r.run();
    went_on(&r, &["n1", "n2"]);
    assert_eq!(r.m.generation.number, 2);
}

#[test]
fn a_newcomer_that_never_warms_up_costs_the_others_nothing() {
    let mut r = alive("1-8", &[1, 2]);
    r.hang.insert(n(3));
    r.target(&[1, 2, 3]);
    r.run();
    assert!(matches!(r.m.workers[&n(3)].live, LiveState::Warming { .. }));
    r.pass(WARM_SECS as i64 + 1);
    r.run();
    r.observe();
    went_on(&r, &["n1", "n2"]);
    assert_eq!((r.m.generation.number, r.m.wings.len()), (1, 1), "it was given back");
    assert!(r.m.obstacles.trials.is_shunned(&n(3), r.now));
}

#[test]
fn a_newcomer_gets_as_long_as_the_command_needs() {
    let mut r = alive("1-8", &[1, 2]);
    r.target(&[1, 2, 3]);
    r.submit_wings();
    r.say_hello();
    r.pass(200);
    r.event(&n(3), AgentEvent::Ready { generation: 1 });
    r.run();
    went_on(&r, &["n1", "n2", "n3"]);
    // Another newcomer takes longer than the shortest limit, but less than three times the last one's time.
    r.hang.insert(n(4));
    r.target(&[1, 2, 3, 4]);
    r.run();
    r.pass(WARM_SECS as i64 + 1);
    r.run();
    assert!(matches!(r.m.workers[&n(4)].live, LiveState::Warming { .. }));
    r.pass(300);
    r.run();
    r.observe();
    assert!(r.m.obstacles.trials.is_shunned(&n(4), r.now));
}

#[test]
fn a_failed_newcomer_is_blamed_like_a_failed_command() {
    let mut r = alive("1-8", &[1, 2]);
    r.event(&n(1), progress(1));
    r.target(&[1, 2, 3]);
    r.submit_wings();
    r.say_hello();
    r.stopped(&n(3), 1, KILLED);
    r.run();
    went_on(&r, &["n1", "n2"]);
    assert_eq!((r.m.generation.number, r.strikes.clone()), (1, vec![n(3)]));
}

#[test]
fn newcomers_that_are_ready_wait_for_slow_ones_only_for_a_while() {
    let mut r = alive("1-8", &[1]);
    r.hang.insert(n(3));
    r.target(&[1, 2, 3]);
    r.run();
    assert_eq!(last(&r), ["n1"]);
    r.pass(5);
    r.run();
    went_on(&r, &["n1", "n2"]);
}

#[test]
fn a_member_lost_during_a_regroup_is_left_out_of_the_next_try() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.target(&[1, 2]);
    assert_eq!((r.m.generation.number, r.m.malleable_state()), (2, MalleableState::Regrouping));
    r.stopped(&n(2), 2, KILLED);
    assert_eq!((r.m.generation.number, last(&r)), (3, vec!["n1"]));
    let Directive::Regroup(place) = r.m.directive_for(&n(1)) else { panic!("{:?}", r.m.phase) };
    assert!(place.meeting.unwrap().urgent);
    r.run();
    went_on(&r, &["n1"]);
}

#[test]
fn a_newcomer_that_dies_in_the_change_does_not_interrupt_the_step() {
    let mut r = alive("1-8", &[1, 2]);
    r.target(&[1, 2, 3]);
    r.submit_wings();
    r.say_hello();
    obey(&mut r, 3);
    assert_eq!(r.m.malleable_state(), MalleableState::Regrouping);
    r.stopped(&n(3), 2, KILLED);
    let Directive::Regroup(place) = r.m.directive_for(&n(1)) else { panic!("{:?}", r.m.phase) };
    assert!(!place.meeting.unwrap().urgent);
    r.run();
    went_on(&r, &["n1", "n2"]);
}

/// Asserts that the job restarts on these nodes after all members have stopped.
#[track_caller]
fn assert_restarts(r: &mut Rig, nodes: &[&str]) {
    assert_eq!(r.m.malleable_state(), MalleableState::Rescaling, "{:?}", r.notes);
    r.hang.clear();
    r.run();
    r.pass(5);
    r.run();
    assert_eq!((r.m.malleable_state(), last(r)), (MalleableState::Running, nodes.to_vec()), "{:?}", r.notes);
    assert!(r.stops > 0);
}

#[test]
fn members_that_do_not_meet_are_restarted() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.hang.insert(n(2));
    r.target(&[1, 2]);
    r.run();
    r.pass(30 + i64::from(r.m.spec.grace_secs));
    assert_eq!(r.m.malleable_state(), MalleableState::Regrouping);
    r.pass(1);
    assert_eq!(
        r.m.directive_for(&n(1)),
        Directive::Rescue { generation: 2 },
        "it has the training state in memory"
    );
    assert_eq!(r.m.directive_for(&n(2)), Directive::Stop { generation: 2 });
    assert_restarts(&mut r, &["n1", "n2"]);
}

#[test]
fn a_restart_follows_the_last_failed_try() {
    let mut r = alive("1-8", &[1, 2]);
    for try_ in 1..=u64::from(MAX_TRIES) {
        r.event(&n(2), AgentEvent::Failed { generation: try_ });
        r.pass(3);
    }
    assert_eq!((r.m.generation.number, r.m.malleable_state()), (6, MalleableState::Regrouping));
    let JobPhase::Regrouping { regroup, .. } = &r.m.phase else { panic!() };
    assert_eq!(regroup.tries, MAX_TRIES);
    r.event(&n(2), AgentEvent::Failed { generation: 6 });
    r.pass(3);
    assert_restarts(&mut r, &["n1", "n2"]);
    assert_eq!(r.m.counts.restarts, 0, "no command has failed");
}

#[test]
fn each_further_try_meets_elsewhere() {
    let mut r = alive("1-8", &[1, 2]);
    let mut hosts = Vec::new();
    for generation in 1..4 {
        r.event(&n(1), AgentEvent::Failed { generation });
        r.pass(3);
        hosts.push(r.m.generation.store.clone().map(|s| s.node));
    }
    assert_eq!(hosts, [n(1), n(2), n(1)].map(Some));
}

#[test]
fn a_hopeless_process_causes_a_restart() {
    let mut r = alive("1-8", &[1, 2]);
    r.event(&n(2), AgentEvent::Hopeless { generation: 1, why: "out of tries".into() });
    assert_restarts(&mut r, &["n1", "n2"]);
    let mut r = alive("1-8", &[1, 2, 3]);
    r.target(&[1, 2]);
    r.event(&n(2), AgentEvent::Hopeless { generation: 1, why: "of another time".into() });
    assert_eq!(r.m.malleable_state(), MalleableState::Regrouping);
    r.event(&n(2), AgentEvent::Hopeless { generation: 2, why: "a wait that nothing ends".into() });
    assert_eq!(r.m.malleable_state(), MalleableState::Regrouping, "its agent ends it");
    r.event(&n(2), let_go(2));
    assert_eq!(last(&r), ["n1"]);
    r.run();
    went_on(&r, &["n1", "n2"]);
    let mut r = alive("1-8", &[1, 2, 3]);
    r.target(&[1, 2]);
    r.event(&n(1), AgentEvent::Hopeless { generation: 2, why: "out of tries".into() });
    assert_eq!(r.m.directive_for(&n(2)), Directive::Rescue { generation: 2 }, "it can still save");
    assert_restarts(&mut r, &["n1", "n2"]);
}

#[test]
fn a_generation_without_a_store_fails() {
    let mut r = running("1-8", &[1, 2]);
    r.event(&n(1), AgentEvent::Failed { generation: 1 });
    r.pass(3);
    assert_eq!(r.m.malleable_state(), MalleableState::Rescaling);
    assert!(matches!(r.m.phase, JobPhase::Stopping { .. }));
}

#[test]
fn losing_or_moving_the_lead_is_a_restart() {
    let mut r = alive("1-8", &[1, 2]);
    r.event(&n(1), AgentEvent::Leaving);
    assert_eq!(r.m.malleable_state(), MalleableState::Rescaling);
    let mut r = alive("1-8", &[1, 2]);
    r.target(&[4, 2]);
    assert_eq!(r.m.malleable_state(), MalleableState::Rescaling);
    assert_eq!(r.m.directive_for(&n(1)), Directive::Stop { generation: 1 });
    let mut r = alive("2-8", &[1, 2]);
    r.stopped(&n(2), 1, KILLED);
    assert_eq!(r.m.malleable_state(), MalleableState::Rescaling, "one node is too few");
}

#[test]
fn a_program_that_fails_everywhere_fails_as_itself() {
    let mut r = alive("1-8", &[1, 2]);
    r.m.spec.max_restarts = 0;
    r.event(&n(1), progress(1));
    let failed = CommandExit { code: 3, asked: false, killed: false };
    r.stopped(&n(2), 1, failed);
    r.stopped(&n(1), 2, failed);
    r.run();
    assert_eq!(r.m.malleable_state(), MalleableState::Ended, "{:?}", r.notes);
    assert!(r.notes.iter().any(|n| n == "the command failed with code 3 after 0 restarts"), "{:?}", r.notes);
}

#[test]
fn a_command_may_end_in_the_middle_of_a_change() {
    let mut r = alive("1-8", &[1, 2]);
    r.target(&[1, 2, 3]);
    r.submit_wings();
    r.say_hello();
    obey(&mut r, 3);
    for i in [1, 2] {
        r.stopped(&n(i), 2, DONE);
    }
    assert_eq!(r.m.phase, JobPhase::Ending { code: 0 });
    assert_eq!(r.m.directive_for(&n(3)), Directive::Leave, "the newcomer is no longer needed");
    r.run();
    r.observe();
    assert_eq!(r.m.phase, JobPhase::Ended);
}

#[test]
fn an_end_after_a_loss_does_not_count() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.event(&n(3), AgentEvent::Leaving);
    r.stopped(&n(2), 2, DONE);
    // Its agent reports the end with the next generation.
    r.stopped(&n(1), 3, DONE);
    assert_eq!(r.m.malleable_state(), MalleableState::Rescaling, "{:?}", r.notes);
}

#[test]
fn a_restarted_daemon_finishes_a_regroup() {
    let mut r = alive("1-8", &[1, 2, 3]);
    r.target(&[1, 2]);
    let mut read = crate::JobLifecycle::from_record(r.m.to_record()).unwrap();
    read.resume_after_restart(r.now);
    r.m = read;
    r.run();
    went_on(&r, &["n1", "n2"]);
}

#[test]
fn a_command_that_cannot_stay_alive_is_stopped() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[1, 2, 3]);
    r.submit_wings();
    r.say_hello();
    assert_eq!(r.m.directive_for(&n(1)), Directive::Stop { generation: 1 });
    r.run();
    assert_eq!((last(&r), r.stops), (vec!["n1", "n2", "n3"], 2));
}
