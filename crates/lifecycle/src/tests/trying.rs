//! Bad nodes, and jobs that fail on every node.

use crate::phase::JobPhase;
use infill_model::{AgentEvent, CommandExit, JobId, MalleableState, SchedulingState};

use super::rig::{LEAD, Rig, alive, n, progress, rig, running};

const FAILED: CommandExit = CommandExit { code: 3, asked: false, killed: false };
const ASKED: CommandExit = CommandExit { code: 0, asked: true, killed: false };

/// The command fails on one node, and the other members are asked to stop.
fn fails_on(r: &mut Rig, node: u32) {
    let generation = r.m.generation.number;
    r.stopped(&n(node), generation, FAILED);
    r.run();
    r.pass(30);
    r.run();
}

#[test]
fn growth_onto_a_bad_node_is_undone_without_a_restart() {
    let mut r = running("1-8", &[1, 2]);
    r.event(&n(1), progress(1));
    r.target(&[1, 2, 5]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2", "n5"]);
    fails_on(&mut r, 5);
    assert_eq!(r.started.last().unwrap(), &["n1", "n2"]);
    assert_eq!((r.m.counts.restarts, r.strikes.clone()), (0, vec![n(5)]));
    assert!(r.m.obstacles.trials.is_shunned(&n(5), r.now));
    // A round that began before does not know it yet.
    r.target(&[1, 2, 5]);
    r.run();
    assert_eq!(r.nodes_running(), ["n1", "n2"]);
}

#[test]
fn a_lead_on_a_bad_node_starts_elsewhere() {
    let mut r = rig("1-8");
    r.target(&[1]);
    r.run();
    fails_on(&mut r, 1);
    r.observe();
    assert_eq!((r.m.malleable_state(), r.m.counts.restarts), (MalleableState::Queued, 0));
    r.now = r.now + 1;
    r.target(&[2]);
    r.run();
    r.target(&[2]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n2"]);
}

#[test]
fn a_command_that_fails_on_every_node_is_itself_to_blame() {
    let mut r = running("1-8", &[1, 2, 3]);
    r.m.spec.max_restarts = 1;
    fails_on(&mut r, 2);
    assert_eq!((r.m.counts.restarts, r.acquitted), (0, false));
    fails_on(&mut r, 3);
    assert_eq!((r.m.counts.restarts, r.acquitted), (1, true));
    assert!(!r.m.obstacles.trials.is_shunned(&n(2), r.now), "it was not the node");
    let generation = r.m.generation.number;
    r.stopped(&n(1), generation, FAILED);
    r.stopped(&n(3), generation, ASKED);
    assert_eq!(r.m.phase, JobPhase::Ending { code: 3 });
}

#[test]
fn restarts_long_ago_do_not_count() {
    let mut r = running("1-8", &[1]);
    r.m.spec.max_restarts = 1;
    r.event(&n(1), progress(1));
    for _ in 0..3 {
        r.pass(3601);
        fails_on(&mut r, 1);
        assert_eq!((r.m.malleable_state(), r.m.counts.restarts), (MalleableState::Running, 1));
    }
    let generation = r.m.generation.number;
    r.stopped(&n(1), generation, FAILED);
    assert_eq!(r.m.phase, JobPhase::Ending { code: 3 });
}

#[test]
fn wings_that_fail_at_once_are_not_ordered_forever() {
    let mut r = running("1-8", &[1]);
    let mut orders = 0;
    // For ten minutes, each round asks for the next node.
    for round in 0..120 {
        r.target(&[1, 2 + round % 7]);
        for order in r.m.wing_orders() {
            orders += 1;
            let job = JobId(100 + order.number as u32);
            r.event(&n(1), AgentEvent::WingSubmitted { order: order.number, job });
            r.slurm.insert(job, order.nodes.clone());
            r.observe();
            r.slurm.remove(&job);
        }
        r.observe();
    }
    assert!((2..=7).contains(&orders), "{orders} orders");
    assert_eq!(r.started.len(), 1);
}

#[test]
fn a_lead_that_cannot_be_launched_is_tried_elsewhere() {
    use crate::effect::Effect;
    let mut r = rig("1-8");
    let launch = Effect::Launch { job: LEAD, node: n(1), limit_mins: 10 };
    for again in [false, true] {
        r.pass(60);
        r.target(&[1]);
        r.with(|m, now, out| m.effect_failed(&launch, "no", false, &super::rig::settings(), now, out));
        assert_eq!(r.m.obstacles.trials.is_shunned(&n(1), r.now), again);
    }
}

#[test]
fn a_job_that_must_not_order_wings_is_not_started_for_them() {
    use infill_model::SchedulingState;
    let mut r = rig("2-8");
    r.m.backoff.order_after = Some(r.now + 30);
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::BackOff(r.now + 30));
    let mut single = rig("1-8");
    single.m.backoff.order_after = Some(single.now + 30);
    assert_eq!(single.m.scheduling_state(single.now), SchedulingState::Waiting);
}

/// A lead whose claim has shrunk to its own node keeps the node until the next plan, which may give more.
#[test]
fn a_lead_that_came_late_waits_for_a_plan_that_gives_it_enough() {
    let mut r = rig("2-4");
    r.target(&[1, 2]);
    r.target(&[1]);
    r.run();
    assert!(matches!(r.m.phase, JobPhase::Assembling { .. }), "{:?}", r.m.phase);
    assert_eq!((r.m.scheduling_state(r.now), &r.m.target), (SchedulingState::Running, &None));
    r.target(&[1, 3]);
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Busy, "its wings are on their way");
    r.run();
    r.pass(30);
    r.run();
    assert_eq!(r.nodes_running(), ["n1", "n3"]);
}

#[test]
fn a_lead_that_gets_too_few_nodes_is_given_back() {
    let mut r = rig("2-4");
    r.target(&[1, 2]);
    r.target(&[1]);
    r.run();
    r.target(&[]);
    r.run();
    r.observe();
    assert_eq!(r.m.malleable_state(), MalleableState::Queued);
}

fn overflows(r: &mut Rig, node: u32) {
    let generation = r.m.generation.number;
    r.event(&n(node), AgentEvent::OutOfMemory { generation });
    r.stopped(&n(node), generation, FAILED);
}

#[test]
fn a_command_that_runs_out_of_memory_is_tried_with_another_size() {
    let mut r = running("1-8", &[1, 2]);
    r.m.spec.max_restarts = 0;
    overflows(&mut r, 1);
    r.stopped(&n(2), 1, ASKED);
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Running, "any plan will do");
    assert!(matches!(r.m.phase, JobPhase::Assembling { .. }), "{:?}", r.m.phase);
    assert_eq!((r.m.counts.restarts, r.overflowed), (0, Some(2)));
    assert!(r.strikes.is_empty());
    r.target(&[1, 2, 3]);
    r.run();
    r.pass(30);
    r.run();
    assert_eq!(r.nodes_running(), ["n1", "n2", "n3"]);
    r.event(&n(1), progress(r.m.generation.number));
    // Another kind of failure counts.
    r.stopped(&n(1), r.m.generation.number, FAILED);
    r.stopped(&n(2), r.m.generation.number, ASKED);
    r.stopped(&n(3), r.m.generation.number, ASKED);
    assert_eq!(r.m.phase, JobPhase::Ending { code: 3 });
}

#[test]
fn the_others_live_on_without_a_worker_that_ran_out_of_memory() {
    let mut r = alive("1-8", &[1, 2, 3]);
    overflows(&mut r, 3);
    assert_eq!(r.overflowed, Some(3));
    r.run();
    assert_eq!((r.m.counts.restarts, r.m.phase.members()), (0, [n(1), n(2)].as_slice()));
}

#[test]
fn running_out_of_memory_without_an_alternative_is_a_failure() {
    let mut r = running("1", &[1]);
    r.m.spec.max_restarts = 0;
    overflows(&mut r, 1);
    assert_eq!((r.m.phase.clone(), r.overflowed), (JobPhase::Ending { code: 3 }, None));
}

#[test]
fn retries_after_running_out_of_memory_are_limited() {
    let mut r = running("1-2", &[1]);
    r.m.spec.max_restarts = 0;
    for _ in 0..100 {
        overflows(&mut r, 1);
        if matches!(r.m.phase, JobPhase::Ending { .. }) {
            break;
        }
        r.target(&[1]);
        r.run();
    }
    assert_eq!((r.m.phase.clone(), r.started.len()), (JobPhase::Ending { code: 3 }, 25));
}
