//! Preemption, failures and nodes that die.

use crate::effect::Effect;
use crate::job_lifecycle::JobLifecycle;
use crate::phase::JobPhase;
use crate::settings::RETRY_SECS;
use infill_model::{AgentEvent, CommandExit, Directive, FaultSource, JobId, MalleableState};

use crate::observed_job::ObservedJob;

use super::rig::{LEAD, Rig, job, n, progress, rig, running, settings};

#[test]
fn a_preempted_wing_stops_all_and_the_rest_goes_on() {
    let mut r = running("1-8", &[1, 2, 3]);
    r.event(&n(2), AgentEvent::Leaving);
    assert_eq!(r.m.directive_for(&n(1)), Directive::Stop { generation: 1 });
    // Rank 2 noticed the loss before its agent got the order: that does not end the job.
    r.stopped(&n(3), 1, CommandExit { code: 0, asked: false, killed: false });
    r.stopped(&n(2), 1, CommandExit { code: 0, asked: true, killed: false });
    r.slurm.retain(|_, nodes| !nodes.contains(&n(2)));
    r.agents.remove(&n(2));
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n3"]);
    assert_eq!((r.m.counts.rescales, r.m.counts.restarts), (1, 0));
}

#[test]
fn a_preempted_lead_goes_back_to_the_queue_and_takes_its_wings_along() {
    let mut r = running("1-8", &[1, 2]);
    r.event(&n(1), AgentEvent::Leaving);
    // A round that began before does not know it yet.
    r.target(&[1, 2]);
    r.stopped(&n(1), 1, CommandExit { code: 0, asked: true, killed: false });
    r.run();
    assert_eq!(r.started.len(), 1, "nothing starts on a lead that leaves");
    r.slurm.remove(&LEAD);
    r.agents.remove(&n(1));
    r.run();
    r.observe();
    r.run();
    assert_eq!(r.m.malleable_state(), MalleableState::Queued);
    assert!(r.effects.contains(&Effect::Hold { job: LEAD }) || r.held);
    r.observe();
    r.run();
    assert!(r.slurm.is_empty(), "wings need a lead: {:?}", r.slurm);
    assert!(r.m.backoff.start_after.is_some());
}

#[test]
fn a_preempted_wing_without_agents_is_cancelled_at_once() {
    let mut r = running("1-8", &[1, 2]);
    r.target(&[1, 2, 3]);
    r.submit_wings();
    let (wing, _) = r.slurm.iter().find(|(_, nodes)| nodes.contains(&n(3))).expect("the wing was ordered");
    let wing = *wing;
    r.preempted.insert(wing, r.now + 5);
    r.observe();
    assert!(r.effects.contains(&Effect::CancelWing { job: wing }), "{:?}", r.effects);
    assert_eq!(r.nodes_running(), ["n1", "n2"], "the members train on");
    assert!(r.strikes.is_empty(), "no node is to blame");
}

#[test]
fn a_preempted_lead_without_an_agent_is_requeued_at_once() {
    let mut r = rig("1-8");
    r.target(&[1]);
    assert!(matches!(r.m.phase, JobPhase::Launching { .. }));
    r.preempted.insert(LEAD, r.now + 5);
    r.observe();
    assert!(r.effects.contains(&Effect::RequeueHold { job: LEAD }), "{:?}", r.effects);
    assert!(r.m.backoff.start_after.is_some(), "the main queue comes first");
    // In its next run Slurm may still show the preemption of the last one.
    let mut lead = job(LEAD, &[n(1)], 0);
    lead.preempt_time = Some(r.now);
    assert!(lead.is_preempted());
    lead.start_time = Some(r.now + 1);
    assert!(!lead.is_preempted());
}

#[test]
fn an_agent_that_missed_the_preemption_notice_is_stopped() {
    let mut r = running("1-8", &[1, 2]);
    let wing = *r.slurm.iter().find(|(_, nodes)| nodes.contains(&n(2))).expect("a wing").0;
    r.preempted.insert(wing, r.now);
    r.observe();
    assert!(matches!(r.m.phase, JobPhase::Running { .. }), "its own report may be on its way");
    r.observe();
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1"], "{:?}", r.notes);
    assert!(r.effects.contains(&Effect::CancelWing { job: wing }), "{:?}", r.effects);
    // The same applies to the lead.
    r.preempted.insert(LEAD, r.now);
    r.observe();
    r.observe();
    r.run();
    assert!(r.effects.contains(&Effect::RequeueHold { job: LEAD }), "{:?}", r.effects);
}

#[test]
fn a_failure_is_retried_and_then_ends_the_job_with_its_code() {
    let mut r = running("1-8", &[1, 2]);
    r.m.spec.max_restarts = 1;
    r.event(&n(1), progress(1));
    let failed = CommandExit { code: 3, asked: false, killed: false };
    let echo = CommandExit { code: 1, asked: false, killed: false };
    r.stopped(&n(2), 1, failed);
    r.stopped(&n(1), 1, echo);
    r.run();
    assert!(matches!(r.m.phase, JobPhase::Assembling { .. }), "not at once");
    r.pass(1);
    r.run();
    assert_eq!(
        (r.m.counts.restarts, r.m.counts.rescales, r.m.generation.number),
        (1, 0, 2),
        "a retry is not a rescale"
    );
    r.stopped(&n(2), 2, failed);
    r.stopped(&n(1), 2, echo);
    assert_eq!(r.m.phase, JobPhase::Ending { code: 3 });
    assert_eq!(r.m.directive_for(&n(1)), Directive::Finish { code: 3 });
    assert_eq!(r.m.directive_for(&n(2)), Directive::Leave);
}

#[test]
fn the_job_is_done_when_the_command_has_ended_everywhere() {
    let mut r = running("1-8", &[1, 2]);
    let done = CommandExit { code: 0, asked: false, killed: false };
    r.stopped(&n(2), 1, done);
    assert!(matches!(r.m.phase, JobPhase::Running { .. }));
    r.stopped(&n(1), 1, done);
    assert_eq!(r.m.phase, JobPhase::Ending { code: 0 });
    r.run();
    r.observe();
    assert_eq!(r.m.phase, JobPhase::Ended);
    assert!(r.m.held_nodes(r.now).is_empty() && r.slurm.is_empty());
}

#[test]
fn an_end_beside_a_lost_member_is_not_the_end_of_the_job() {
    // Without the daemon a wing was lost, and the command has ended with code 0 on the lead: ranks that save
    // together all leave if one of them is asked to.
    let mut r = running("1-8", &[1, 2]);
    r.m = JobLifecycle::from_record(r.m.to_record()).unwrap();
    r.m.resume_after_restart(r.now);
    r.slurm.retain(|_, nodes| !nodes.contains(&n(2)));
    r.agents.clear();
    r.say_hello();
    r.observe();
    r.stopped(&n(1), 1, CommandExit { code: 0, asked: false, killed: false });
    r.target(&[1]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1"]);
    assert_eq!(r.m.counts.restarts, 0);
}

#[test]
fn a_dead_node_is_a_loss_and_not_a_failure() {
    let mut r = running("1-8", &[1, 2, 3]);
    // The node of rank 2 is gone. The other members crash on the lost connection.
    r.slurm.retain(|_, nodes| !nodes.contains(&n(3)));
    r.agents.remove(&n(3));
    for i in [1, 2] {
        r.stopped(&n(i), 1, CommandExit { code: 1, asked: false, killed: false });
    }
    assert!(matches!(r.m.phase, JobPhase::Stopping { .. }));
    r.observe();
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2"]);
    assert_eq!((r.m.counts.restarts, r.m.counts.rescales), (0, 1));
}

#[test]
fn a_loss_does_not_count_as_a_rescale() {
    let mut r = running("1-8", &[1, 2, 3]);
    let rescaled = r.m.rescaled_at.expect("it was started by a plan");
    r.now = r.now + 7;
    r.event(&n(3), AgentEvent::Leaving);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2"]);
    assert!(r.m.last_change > Some(rescaled));
    assert_eq!(r.m.rescaled_at, Some(rescaled));
    r.now = r.now + 7;
    r.target(&[1, 2, 4]);
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2", "n4"]);
    assert_eq!(r.m.rescaled_at, r.m.last_change);
}

#[test]
fn a_worker_that_never_stops_is_given_up_after_its_grace_time() {
    let mut r = running("1-8", &[1, 2]);
    r.m.spec.grace_secs = 10;
    r.target(&[1]);
    r.stopped(&n(1), 1, CommandExit { code: 0, asked: true, killed: false });
    r.now = r.now + 14;
    r.m.workers.values_mut().for_each(|w| w.last_seen = r.now);
    r.with(|_, _, _| {});
    assert!(matches!(r.m.phase, JobPhase::Stopping { .. }));
    r.now = r.now + 2;
    r.with(|_, _, _| {});
    assert!(matches!(r.m.phase, JobPhase::Assembling { .. } | JobPhase::Running { .. }), "{:?}", r.m.phase);
    assert!(r.effects.iter().any(|e| matches!(e, Effect::CancelWing { .. })), "{:?}", r.effects);
}

/// Orders a wing that waits in the queue for this reason until it is late.
fn waits_for(r: &mut Rig, reason: &str) {
    r.target(&[1, 2]);
    for order in r.m.wing_orders() {
        let id = JobId(100 + order.number as u32);
        r.event(&n(1), AgentEvent::WingSubmitted { order: order.number, job: id });
        r.now = r.now + 15;
        let wing = infill_model::Job { state_reason: reason.into(), ..job(id, &[], order.number) };
        let lead = job(LEAD, &[n(1)], 0);
        let observed =
            ObservedJob { lead: Some(&lead), wings: vec![&wing], read_at: r.now, ..ObservedJob::default() };
        r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
        r.now = r.now + 6;
        r.m.workers.values_mut().for_each(|w| w.last_seen = r.now);
        r.with(|_, _, _| {});
        let observed =
            ObservedJob { lead: Some(&lead), wings: vec![], read_at: r.now, ..ObservedJob::default() };
        r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
    }
}

#[test]
fn a_wing_that_a_limit_keeps_waiting_is_not_ordered_again_at_once() {
    let mut r = running("1-8", &[1]);
    waits_for(&mut r, "AssocGrpNodeLimit");
    assert!(r.m.wings.is_empty(), "{:?}", r.m.wings);
    let why = "Slurm keeps its wings waiting: AssocGrpNodeLimit; infill orders no wings for 30 s";
    assert_eq!(r.m.shortage_reason(r.now).as_deref(), Some(why));
    r.target(&[1, 2]);
    assert_eq!(r.m.wing_orders().len(), 0, "it backs off");
    r.now = r.now + 31;
    waits_for(&mut r, "AssocGrpNodeLimit");
    assert!(r.m.shortage_reason(r.now).unwrap().ends_with("for 60 s"), "twice as long");
    // The main queue was faster: a wing on another node may be ordered at once.
    let mut r = running("1-8", &[1]);
    waits_for(&mut r, "ReqNodeNotAvail, UnavailableNodes:n2");
    r.target(&[1, 3]);
    assert_eq!((r.m.wing_orders().len(), r.m.shortage_reason(r.now)), (1, None));
}

#[test]
fn a_wing_that_never_comes_is_cancelled_and_does_not_hold_up_the_others() {
    let mut r = running("1-8", &[1]);
    r.target(&[1, 2, 3]);
    for order in r.m.wing_orders() {
        let id = JobId(100 + order.number as u32);
        // The wing on n3 waits in the queue forever.
        if order.nodes.contains(&n(2)) {
            r.slurm.insert(id, order.nodes.clone());
        }
        r.event(&n(1), AgentEvent::WingSubmitted { order: order.number, job: id });
    }
    r.say_hello();
    assert_eq!(r.started.len(), 1, "the other wing is awaited");
    r.now = r.now + 21;
    r.m.workers.values_mut().for_each(|w| w.last_seen = r.now);
    r.with(|_, _, _| {});
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1", "n2"]);
    assert!(r.effects.iter().any(|e| matches!(e, Effect::CancelWing { .. })));
}

#[test]
fn an_unfit_wing_is_the_fault_of_the_job_or_of_the_node() {
    for (blame, strikes) in [(FaultSource::Job, 0), (FaultSource::Node, 1)] {
        let mut r = running("1-8", &[1, 2]);
        let mut struck = 0;
        let unfit = AgentEvent::Unfit { blame, why: "no such directory".to_owned() };
        r.with(|m, now, out| {
            m.handle_event(&n(2), &unfit, &settings(), now, out);
            struck = out.strikes.len();
        });
        assert_eq!((struck, r.m.workers.contains_key(&n(2))), (strikes, false), "{blame}");
        let why = "nothing can be started on further nodes: no such directory";
        assert_eq!(r.m.shortage_reason(r.now).is_some_and(|s| s.starts_with(why)), blame == FaultSource::Job);
        assert_eq!(r.m.backoff.orders_barred(r.now), blame == FaultSource::Job);
    }
}

#[test]
fn a_requeued_wing_is_cancelled_and_its_node_is_dropped() {
    // It ran, or its node did not come up.
    for came in [true, false] {
        let mut r = if came { running("1-4", &[1, 2]) } else { running("1-4", &[1]) };
        if !came {
            r.target(&[1, 2]);
            r.with(|_, _, _| {});
        }
        let (number, wing) = r.m.wings.iter().next().map(|(n, w)| (*n, w.clone())).unwrap();
        let id = wing.job.unwrap_or(JobId(777));
        let lead = job(LEAD, &[n(1)], 0);
        let mut back = job(id, &[], number);
        back.held = false;
        back.state_reason = "BeginTime".to_owned();
        back.asks.requeues = 1;
        for _ in 0..2 {
            r.now = r.now.plus_secs(RETRY_SECS);
            let observed = ObservedJob {
                lead: Some(&lead),
                wings: vec![&back],
                read_at: r.now,
                ..ObservedJob::default()
            };
            r.effects.clear();
            r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
            assert_eq!(r.effects, [Effect::CancelWing { job: id }], "came: {came}");
            assert!(!r.m.wings.contains_key(&number) && !r.m.workers.contains_key(&n(2)));
            assert_eq!(r.strikes, [], "no node is blamed");
        }
        r.run();
        assert_eq!(r.started.last().unwrap(), &["n1"], "it trains on: {:?}", r.notes);
    }
}

#[test]
fn a_wing_that_prepares_its_node_is_waited_for() {
    for (setup_secs, is_cancelled) in [(0, true), (600, false)] {
        let mut r = running("1-8", &[1]);
        r.m.spec.setup_secs = setup_secs;
        r.target(&[1, 2]);
        let order = r.m.wing_orders()[0].number;
        let id = JobId(100 + order as u32);
        r.event(&n(1), AgentEvent::WingSubmitted { order, job: id });
        for secs in [2, 300] {
            r.now = r.now + secs;
            r.m.workers.values_mut().for_each(|w| w.last_seen = r.now);
            let wing = job(id, &[n(2)], order);
            let lead = job(LEAD, &[n(1)], 0);
            let observed = ObservedJob {
                lead: Some(&lead),
                wings: vec![&wing],
                read_at: r.now,
                ..ObservedJob::default()
            };
            r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
            r.with(|_, _, _| {});
        }
        let cancels = r.effects.iter().any(|e| matches!(e, Effect::CancelWing { .. }));
        assert_eq!(cancels, is_cancelled, "{setup_secs}: {:?}", r.effects);
    }
}
