//! Restarted daemons, and a Slurm that behaves unexpectedly.

use crate::effect::Effect;
use crate::hello::{AuthenticatedHello, MAX_GENERATION};
use crate::job_lifecycle::JobLifecycle;
use crate::observed_job::ObservedJob;
use crate::phase::JobPhase;
use infill_model::{CommandExit, JobId, MalleableState, SchedulingState};

use super::rig::{LEAD, Rig, job, n, rig, running, settings};

#[test]
fn a_daemon_restarted_while_a_lead_is_requeued_does_not_plan_to_keep_its_node() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[]);
    for node in [n(1), n(2)] {
        r.stopped(&node, 1, CommandExit { code: 0, asked: true, killed: false });
    }
    assert_eq!(r.m.malleable_state(), MalleableState::Parking);
    r.m.resume_after_restart(r.now);
    assert_eq!((r.m.held_nodes(r.now).len(), r.m.held_lead(r.now)), (0, None));
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Busy);
}

#[test]
fn a_restarted_daemon_goes_on_where_it_was_and_does_nothing_twice() {
    let mut r = running("1-8", &[1, 2]);
    let record = r.m.to_record();
    let effects = r.effects.len();
    let generations = r.started.len();
    r.m = JobLifecycle::from_record(record).unwrap();
    r.now = r.now + 300;
    let now = r.now;
    r.m.resume_after_restart(now);
    for i in [1, 2] {
        let slurm_job = r.m.workers[&n(i)].slurm_job;
        let hello = AuthenticatedHello {
            node: n(i),
            slurm_job,
            address: String::new(),
            port: 1,
            running: Some(1),
            spec: None,
            dialect: infill_api::AgentDialect::present_protocol(),
        };
        r.with(|m, now, out| assert!(m.handle_hello(hello, now, out)));
    }
    r.observe();
    r.target(&[1, 2]);
    r.run();
    assert_eq!((r.effects.len(), r.started.len()), (effects, generations));
    assert!(matches!(r.m.phase, JobPhase::Running { .. }));
}

#[test]
fn a_later_generation_of_an_agent_is_taken_over() {
    let mut r = rig("1-8");
    r.slurm.insert(LEAD, vec![n(1)]);
    let hello = AuthenticatedHello {
        node: n(1),
        slurm_job: LEAD,
        address: "n1".into(),
        port: 1,
        running: Some(5),
        spec: None,
        dialect: infill_api::AgentDialect::present_protocol(),
    };
    r.with(|m, now, out| assert!(m.handle_hello(hello, now, out)));
    r.agents.insert(n(1), Some(5));
    r.target(&[1]);
    r.run();
    assert_eq!(r.m.generation.number, 6);
}

#[test]
fn an_impossible_generation_is_refused() {
    for running in [u64::MAX, MAX_GENERATION + 1] {
        let mut r = rig("1-8");
        r.slurm.insert(LEAD, vec![n(1)]);
        let running = Some(running);
        let address = "n1".to_owned();
        let hello = AuthenticatedHello {
            node: n(1),
            slurm_job: LEAD,
            address,
            port: 1,
            running,
            spec: None,
            dialect: infill_api::AgentDialect::present_protocol(),
        };
        r.with(|m, now, out| assert!(!m.handle_hello(hello, now, out)));
        assert_eq!((r.m.generation.number, r.m.workers.len()), (0, 0));
    }
}

#[test]
fn a_lead_that_a_person_released_is_taken_over_and_an_unheld_one_is_held() {
    let mut r = rig("1-8");
    r.held = false;
    r.observe();
    assert_eq!(r.effects, [Effect::Hold { job: LEAD }]);
    r.slurm.insert(LEAD, vec![n(4)]);
    r.observe();
    assert_eq!((r.m.malleable_state(), r.m.lead_node()), (MalleableState::Launching, Some(&n(4))));
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Busy);
}

#[test]
fn a_stale_snapshot_does_not_undo_agents_reports() {
    let mut r = rig("1-8");
    r.target(&[1]);
    let read_at = r.now;
    r.run();
    let waiting = job(LEAD, &[], 0);
    let observed = ObservedJob { lead: Some(&waiting), wings: vec![], read_at, ..ObservedJob::default() };
    r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
    assert!(matches!(r.m.phase, JobPhase::Assembling { .. } | JobPhase::Running { .. }), "{:?}", r.m.phase);
}

#[test]
fn an_unordered_wing_is_cancelled_and_a_stranger_is_refused() {
    let mut r = running("1-8", &[1]);
    r.slurm.insert(JobId(999), vec![n(6)]);
    r.agents.insert(n(6), None);
    r.observe();
    assert_eq!(r.effects.last().unwrap(), &Effect::CancelWing { job: JobId(999) });
    let hello = AuthenticatedHello {
        node: n(7),
        slurm_job: JobId(998),
        address: String::new(),
        port: 1,
        running: None,
        spec: None,
        dialect: infill_api::AgentDialect::present_protocol(),
    };
    r.with(|m, now, out| assert!(!m.handle_hello(hello, now, out)));
}

#[test]
fn a_transient_launch_failure_is_retried_without_blame() {
    let mut r = rig("1-8");
    r.target(&[1]);
    let launch = r.effects[0].clone();
    let launches = |r: &Rig| r.effects.iter().filter(|e| e.takes_nodes()).count();
    for is_transient in [true, false] {
        r.with(|m, now, out| {
            m.effect_failed(&launch, "no", is_transient, &settings(), now, out);
            assert!(out.strikes.is_empty());
        });
        assert_eq!(r.m.malleable_state(), MalleableState::Queued);
        assert_eq!(r.m.backoff.start_after.is_some(), !is_transient);
        assert_eq!(launches(&r), if is_transient { 1 } else { 2 }, "not at once");
        r.pass(2);
        assert_eq!(launches(&r), 2, "the second launch follows the transient failure only");
    }
}

#[test]
fn a_launch_whose_plan_is_out_of_date_waits_for_the_next_plan() {
    let mut r = rig("1-8");
    r.target(&[1]);
    let launch = r.effects[0].clone();
    r.with(|m, now, _| m.effect_outdated(&launch, now));
    assert_eq!(r.m.malleable_state(), MalleableState::Queued);
    r.pass(2);
    assert_eq!((r.m.malleable_state(), r.effects.len()), (MalleableState::Queued, 1));
    r.target(&[2]);
    assert!(matches!(&r.effects[1..], [Effect::Launch { node, .. }] if *node == n(2)), "{:?}", r.effects);
}

#[test]
fn a_lead_that_moves_keeps_its_wings_when_its_launch_is_put_off() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[3, 2]);
    r.run();
    r.observe();
    r.pass(6);
    let launch = r.effects.iter().rfind(|e| e.takes_nodes()).cloned().unwrap();
    r.with(|m, now, _| m.effect_outdated(&launch, now));
    r.pass(2);
    let again = r.effects.iter().filter(|e| matches!(e, Effect::Launch { node, .. } if *node == n(3)));
    assert_eq!(again.count(), 2, "no other plan is made for it: {:?}", r.effects);
    assert!(!r.effects.iter().any(|e| matches!(e, Effect::CancelWing { .. })), "{:?}", r.effects);
}
