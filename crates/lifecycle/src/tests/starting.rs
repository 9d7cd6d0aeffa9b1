//! Leads that Slurm does not start, and the limits with which it starts them.

use super::rig::{LEAD, Rig, job, n, rig, settings};
use crate::effect::Effect;
use crate::observed_job::{ObservedJob, StartConditions};
use infill_model::{Job, MalleableState, SchedulingState, UnixTime};

/// The launch limit of a lead on a node where backfill has planned a job for `at`; `None` without a launch.
fn launched_with(resolution_secs: Option<u32>, at: i64) -> Option<u32> {
    let mut r = rig("1-8");
    r.resolution_secs = resolution_secs;
    r.windows.insert(n(1), UnixTime(at));
    r.target(&[1]);
    let launch = r.effects.iter().find_map(|e| match e {
        Effect::Launch { limit_mins, .. } => Some(*limit_mins),
        _ => None,
    });
    let state = if launch.is_some() { MalleableState::Launching } else { MalleableState::Queued };
    assert_eq!(r.m.malleable_state(), state);
    launch
}

#[test]
fn the_limit_of_a_launch_ends_before_what_backfill_plans_there() {
    // It is 1000 s, and the lease lasts ten minutes.
    assert_eq!(launched_with(None, 1259), Some(10), "backfill's resolution is unknown");
    assert_eq!(launched_with(Some(60), 1259), Some(3), "from 1200 s on");
    assert_eq!(launched_with(Some(1), 1259), Some(4));
    assert_eq!(launched_with(Some(60), 99_999), Some(10), "not longer than the lease");
    assert_eq!(launched_with(Some(1), 1063), Some(1));
    assert_eq!(launched_with(Some(1), 1062), None, "backfill looks when a minute is left");
    assert_eq!(launched_with(Some(60), 1079), None, "from 1020 s on");
}

#[test]
fn no_wing_is_ordered_where_slurm_would_not_start_it() {
    let ordered = |at: i64| {
        let mut r = super::rig::running("1-8", &[1]);
        r.resolution_secs = Some(60);
        r.windows.insert(n(2), UnixTime(at));
        r.target(&[1, 2, 3]);
        let mut orders: Vec<(String, u32)> =
            r.m.wing_orders().iter().map(|o| (o.nodes[0].to_string(), o.time_limit_mins)).collect();
        orders.sort();
        orders
    };
    assert_eq!(ordered(1079), [("n3".to_owned(), 10)]);
    assert_eq!(ordered(1259), [("n2".to_owned(), 3), ("n3".to_owned(), 10)]);
}

/// A lead that was released to n1 just now.
fn released() -> Rig {
    let mut r = rig("1-8");
    r.target(&[1]);
    r.with(|m, now, _| m.record_launch(now));
    r
}

/// A lead that was released and waits.
fn waiting() -> Job {
    let mut lead = job(LEAD, &[], 0);
    lead.held = false;
    lead.state_reason = "Priority".to_owned();
    lead
}

/// Takes in a snapshot after `secs`. Returns the state after that.
fn look(r: &mut Rig, secs: i64, start: Option<StartConditions>) -> MalleableState {
    r.now = r.now + secs;
    let lead = waiting();
    let observed =
        ObservedJob { lead: Some(&lead), wings: Vec::new(), read_at: r.now, start, ..ObservedJob::default() };
    r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
    r.m.malleable_state()
}

#[test]
fn a_lead_that_backfill_can_no_longer_start_is_called_back_at_once() {
    let kept_from =
        |at: i64| Some(StartConditions { kept_from: Some(UnixTime(at)), ..StartConditions::default() });
    let mut r = released();
    assert_eq!(look(&mut r, 1, kept_from(1062)), MalleableState::Launching, "61 s are left");
    // The planned start has come nearer.
    assert_eq!(look(&mut r, 1, kept_from(1062)), MalleableState::Queued);
    assert!(r.effects.contains(&Effect::Hold { job: LEAD }), "{:?}", r.effects);
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Waiting, "it may start elsewhere");
    assert!(r.m.target.is_none());
    // A second later another plan may launch it.
    r.now = r.now + 1;
    r.target(&[2]);
    assert_eq!(r.m.malleable_state(), MalleableState::Launching);
}

#[test]
fn a_lead_that_backfill_has_passed_over_is_called_back_within_five_seconds() {
    let start = |is_idle, looked_at: i64| {
        Some(StartConditions { is_idle, kept_from: None, looked_at: Some(UnixTime(looked_at)) })
    };
    // It was released at 1000 s.
    for (secs, shown, state) in [
        (4, start(true, 1001), MalleableState::Queued),
        (3, start(true, 1001), MalleableState::Launching),
        // Backfill may not have seen it yet.
        (4, start(true, 1000), MalleableState::Launching),
        (
            19,
            Some(StartConditions { is_idle: true, ..StartConditions::default() }),
            MalleableState::Launching,
        ),
        // Something else is on its node.
        (19, start(false, 1010), MalleableState::Launching),
        (19, None, MalleableState::Launching),
        // The wait for the start ends in any case.
        (20, None, MalleableState::Queued),
    ] {
        let mut r = released();
        assert_eq!(look(&mut r, secs, shown), state, "after {secs} s: {shown:?}");
        let waits = matches!(r.m.scheduling_state(r.now), SchedulingState::BackOff(_));
        assert_eq!(waits, state == MalleableState::Queued, "others may have the node meanwhile");
    }
}

#[test]
fn a_lead_that_was_requeued_since_was_not_passed_over() {
    for (held, reason) in [(true, "JobHeldUser"), (false, "BeginTime")] {
        let mut r = released();
        let mut lead = waiting();
        lead.held = held;
        lead.state_reason = reason.to_owned();
        lead.state_description = "described".to_owned();
        r.now = r.now + 9;
        let start =
            Some(StartConditions { is_idle: true, kept_from: Some(r.now + 30), looked_at: Some(r.now) });
        let observed = ObservedJob {
            lead: Some(&lead),
            wings: Vec::new(),
            read_at: r.now,
            start,
            ..ObservedJob::default()
        };
        r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
        assert_eq!(r.m.malleable_state(), MalleableState::Launching, "{reason}");
    }
}

#[test]
fn a_snapshot_from_before_the_release_does_not_count() {
    let mut r = rig("1-8");
    r.target(&[1]);
    let passed_over =
        StartConditions { is_idle: true, kept_from: Some(r.now + 10), looked_at: Some(r.now + 10) };
    // Slurm has not received the release yet.
    assert_eq!(look(&mut r, 15, Some(passed_over)), MalleableState::Launching);
}
