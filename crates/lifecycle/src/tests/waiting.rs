//! Effects of time: silence, pauses of the daemon, leads that take long to start, and limits.

use crate::effect::Effect;
use crate::observed_job::ObservedJob;
use crate::phase::JobPhase;
use infill_model::{BaseState, JobId, JobState, MalleableState, UnixTime};

use super::rig::{LEAD, Rig, job, n, progress, rig, running, settings};

fn hear(r: &mut Rig, node: u32) {
    let now = r.now;
    r.with(|m, _, _| assert!(m.record_heartbeat(&n(node), m.workers[&n(node)].slurm_job, now)));
}

#[test]
fn silence_alone_is_not_a_loss() {
    let mut r = running("1-8", &[1, 2]);
    r.event(&n(1), progress(1));
    for _ in 0..60 {
        r.now = r.now + 5;
        hear(&mut r, 1);
        r.event(&n(1), progress(1));
    }
    assert_eq!((r.m.malleable_state(), r.started.len()), (MalleableState::Running, 1));
    // All are silent: the network is down.
    r.now = r.now + 300;
    r.with(|_, _, _| {});
    assert_eq!((r.m.malleable_state(), r.started.len()), (MalleableState::Running, 1));
}

#[test]
fn a_silent_worker_for_which_the_others_wait_is_lost() {
    let mut r = running("1-8", &[1, 2]);
    r.event(&n(1), progress(1));
    for _ in 0..12 {
        r.now = r.now + 5;
        hear(&mut r, 1);
    }
    assert_eq!(r.m.malleable_state(), MalleableState::Running);
    r.now = r.now + 5;
    hear(&mut r, 1);
    assert_eq!(r.m.malleable_state(), MalleableState::Rescaling);
}

#[test]
fn a_pause_of_the_daemon_is_not_blamed_on_agents() {
    let mut r = running("1-8", &[1, 2]);
    r.m.spec.grace_secs = 10;
    r.target(&[1]);
    for missed in [70, -3600] {
        r.now = r.now + missed;
        r.m.shift_times(missed as f64);
        r.with(|_, _, _| {});
        assert!(matches!(r.m.phase, JobPhase::Stopping { .. }), "the agents had no time to answer");
    }
    r.run();
    assert_eq!(r.started.last().unwrap(), &["n1"]);
}

#[test]
fn a_silent_lead_claims_only_its_own_node_after_a_while() {
    let mut r = rig("1-8");
    r.target(&[1, 2, 3]);
    r.slurm.insert(LEAD, vec![n(1)]);
    assert_eq!(r.m.held_nodes(r.now).len(), 3);
    for _ in 0..6 {
        r.observe();
    }
    assert_eq!(r.m.held_nodes(r.now).into_keys().collect::<Vec<_>>(), [n(1)]);
    assert_eq!(r.m.held_lead(r.now), Some(&n(1)));
    // Its agent still arrives. Its next start gets more time.
    r.say_hello();
    assert_eq!(r.m.backoff.late_starts, 1);
}

#[test]
fn the_claim_lasts_longer_where_starts_take_long() {
    let mut r = rig("2-8");
    r.target(&[1, 2, 3]);
    r.m.target.as_mut().unwrap().claim_secs = 65.0;
    r.slurm.insert(LEAD, vec![n(1)]);
    let held: Vec<usize> = (0..15)
        .map(|_| {
            r.observe();
            r.m.held_nodes(r.now).len()
        })
        .collect();
    assert_eq!(held, [vec![3; 12], vec![1; 3]].concat(), "every five seconds");
}

#[test]
fn a_lead_that_does_not_start_leaves_its_nodes_to_others_for_longer_each_time() {
    let mut r = rig("1-8");
    let mut claimed = 0;
    for _ in 0..240 {
        r.target(&[1, 2, 3]);
        r.slurm.remove(&LEAD);
        r.observe();
        claimed += i32::from(r.m.held_nodes(r.now).len() == 3);
    }
    // Twenty minutes in steps of five seconds.
    assert!(claimed < 80, "claimed for {claimed} of 240 steps");
}

#[test]
fn a_lead_that_was_requeued_on_its_way_is_launched_again_at_once() {
    for (held, reason) in [(true, "JobHeldUser"), (false, "BeginTime")] {
        let mut r = rig("1-8");
        r.target(&[1]);
        let mut lead = job(LEAD, &[], 0);
        lead.state = JobState::from_base(BaseState::Pending);
        lead.held = held;
        lead.state_reason = reason.to_owned();
        r.now = r.now + 11;
        let observed =
            ObservedJob { lead: Some(&lead), wings: Vec::new(), read_at: r.now, ..ObservedJob::default() };
        r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
        assert_eq!(r.m.malleable_state(), MalleableState::Queued, "{reason}");
    }
}

#[test]
fn wings_that_are_not_stored_are_taken_over() {
    let before = running("1-8", &[1, 2, 3]);
    let mut r = rig("1-8");
    r.slurm = before.slurm.clone();
    r.held = false;
    r.observe();
    assert_eq!(r.m.occupied_nodes().into_keys().collect::<Vec<_>>(), [n(1), n(2), n(3)]);
    r.say_hello();
    r.observe();
    assert_eq!(r.slurm, before.slurm, "nothing is cancelled");
    r.target(&[1, 2, 3]);
    r.run();
    assert_eq!(r.started, [["n1", "n2", "n3"]]);
    // After the first plan, an unknown wing is unwanted.
    r.slurm.insert(JobId(150), vec![n(7)]);
    r.observe();
    assert!(r.effects.contains(&Effect::CancelWing { job: JobId(150) }));
}

#[test]
fn a_lead_that_has_come_is_given_its_limit_at_once() {
    let mut r = rig("1-8");
    r.target(&[1]);
    r.now = r.now + 9;
    r.say_hello();
    // A lease of 600 s from the launch, and half an hour.
    assert!(r.effects.contains(&Effect::SetLimit { job: LEAD, limit_mins: 40 }), "{:?}", r.effects);
}

#[test]
fn limits_are_renewed_from_a_doubtful_snapshot_too() {
    let mut r = running("1-8", &[1, 2]);
    let mut lead = job(LEAD, &[n(1)], 0);
    lead.time_limit_mins = Some(1);
    let mut wing = job(JobId(101), &[n(2)], 1);
    wing.time_limit_mins = Some(1);
    let observed =
        ObservedJob { lead: Some(&lead), wings: vec![&wing], read_at: r.now, ..ObservedJob::default() };
    r.with(|m, now, out| m.renew_limits(&observed, now, out));
    let limits = r.effects.iter().filter(|e| matches!(e, Effect::SetLimit { .. }));
    let last: Vec<JobId> = limits.map(Effect::job).rev().take(2).collect();
    assert_eq!(last, [JobId(101), LEAD], "{:?}", r.effects);
}

#[test]
fn a_wings_time_limit_is_cut_to_the_shortest_lease_of_its_nodes() {
    let mut r = rig("1-8");
    for i in [2, 3] {
        r.windows.insert(n(i), UnixTime(5000));
    }
    for _ in 0..2 {
        r.target(&[1, 2, 3]);
        r.run();
    }
    r.observe();
    let wing = r.m.held_nodes(r.now)[&n(2)];
    assert_eq!(r.m.held_nodes(r.now)[&n(3)], wing, "one wing for both");
    assert_eq!(r.limits[&wing], 10, "a lease of 600 s from its start");
    // Another job is planned on the second node.
    r.pass(55);
    r.target_for(&[(1, 600), (2, 600), (3, 240)]);
    r.observe();
    assert_eq!(r.limits[&wing], 5, "300 s from its start");
    // The lead's node alone does not shorten the wing.
    r.pass(55);
    r.target_for(&[(1, 30), (2, 600), (3, 180)]);
    r.observe();
    assert_eq!(r.limits[&wing], 5);
}
