//! Holds, refusals, suspension and time limits of a lead.

use crate::effect::Effect;
use crate::observed_job::ObservedJob;
use crate::phase::JobPhase;
use infill_model::{BaseState, HoldKind, Job, SchedulingState, StartBlocker};

use super::rig::{LEAD, Rig, job, n, rig, running, settings};

/// Takes in a snapshot, a second later, of a waiting lead: held or not, with this reason.
fn waits(r: &mut Rig, held: bool, reason: &str, description: &str) {
    let mut lead = job(LEAD, &[], 0);
    lead.held = held;
    lead.state_reason = reason.to_owned();
    lead.state_description = description.to_owned();
    see(r, &lead);
}

fn see(r: &mut Rig, lead: &Job) {
    r.now = r.now + 1;
    let observed =
        ObservedJob { lead: Some(lead), wings: Vec::new(), read_at: r.now, ..ObservedJob::default() };
    r.with(|m, now, out| m.apply_observation(&observed, &settings(), now, out));
}

/// A lead that infill has released, and that has not started.
fn released() -> Rig {
    let mut r = rig("1-4");
    r.target(&[1]);
    r.with(|m, now, _| m.record_launch(now));
    r
}

fn launches(r: &Rig) -> usize {
    r.effects.iter().filter(|e| matches!(e, Effect::Launch { .. })).count()
}

#[test]
fn a_hold_by_an_administrator_counts_whenever_it_comes() {
    let mut r = rig("1-4");
    waits(&mut r, true, "JobHeldUser", "");
    assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Waiting, "the plug-in's hold is infill's");
    waits(&mut r, true, "JobHeldAdmin", "");
    r.target(&[1]);
    assert_eq!(
        (launches(&r), r.m.scheduling_state(r.now)),
        (0, SchedulingState::Blocked(StartBlocker::Held(HoldKind::Admin)))
    );
    // After its release infill holds it again, and then starts it.
    waits(&mut r, false, "Priority", "");
    assert!(r.effects.contains(&Effect::Hold { job: LEAD }), "{:?}", r.effects);
    waits(&mut r, true, "JobHeldUser", "");
    r.target(&[1]);
    assert_eq!(launches(&r), 1);
}

#[test]
fn a_hold_after_infills_release_belongs_to_a_person() {
    for (reason, by) in [("JobHeldUser", HoldKind::Owner), ("JobHeldAdmin", HoldKind::Admin)] {
        let mut r = released();
        waits(&mut r, true, reason, "");
        assert_eq!(r.m.scheduling_state(r.now), SchedulingState::Blocked(StartBlocker::Held(by)));
        r.now = r.now + 1000;
        r.target(&[1]);
        assert_eq!(launches(&r), 1, "launching undid a hold");
        // A restarted daemon knows it, too.
        let read = crate::JobLifecycle::from_record(r.m.to_record()).unwrap();
        assert_eq!(read.scheduling_state(r.now), SchedulingState::Blocked(StartBlocker::Held(by)));
    }
}

#[test]
fn before_infill_has_released_it_the_lead_is_still_held_by_infill() {
    let mut r = rig("1-4");
    r.target(&[1]);
    waits(&mut r, true, "JobHeldUser", "");
    assert!(matches!(r.m.phase, JobPhase::Launching { .. }));
    // A requeue by the agent while the daemon was away is not a person's hold either.
    let mut r = running("1-4", &[1]);
    waits(&mut r, true, "JobHeldUser", "job requeued in held state");
    assert_eq!((r.m.obstacles.held_by, r.m.malleable_state().word()), (None, "queued"));
    let mut r = running("1-4", &[1]);
    waits(&mut r, true, "JobHeldUser", "");
    assert_eq!(r.m.obstacles.held_by, Some(HoldKind::Owner));
}

#[test]
fn a_lead_that_ran_and_went_back_while_the_daemon_was_away_is_not_held_by_its_owner() {
    let mut r = released();
    r.now = r.now.plus_secs(61.0);
    waits(&mut r, true, "JobHeldUser", "job requeued in held state");
    assert_eq!((r.m.obstacles.held_by, r.m.malleable_state().word()), (None, "queued"));
    r.now = r.now.plus_secs(60.0);
    r.target(&[1]);
    assert_eq!(launches(&r), 2, "it is never started again");
}

#[test]
fn a_lead_that_slurm_refuses_gives_its_nodes_back_at_once_and_waits_longer_each_time() {
    for (reason, held) in [("QOSMaxJobsPerUserLimit", false), ("Licenses", false), ("BadConstraints", true)] {
        let mut r = released();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            waits(&mut r, held, reason, "");
            let SchedulingState::Blocked(StartBlocker::Refused { reason: why, until }) =
                r.m.scheduling_state(r.now)
            else {
                panic!("{reason}: {:?}", r.m.scheduling_state(r.now))
            };
            assert_eq!((why.as_str(), r.m.held_nodes(r.now).len()), (reason, 0));
            pauses.push(until.secs_since(r.now));
            r.now = until;
            r.target(&[1]);
            r.with(|m, now, _| m.record_launch(now));
        }
        assert_eq!(pauses, [30.0, 60.0, 120.0], "{reason}");
        assert_eq!(launches(&r), 4);
    }
    // The job waits for free nodes. A refusal in a snapshot from before the release does not count.
    let mut r = released();
    waits(&mut r, false, "Resources", "");
    assert!(matches!(r.m.phase, JobPhase::Launching { .. }));
    let mut r = rig("1-4");
    r.target(&[1]);
    waits(&mut r, false, "Licenses", "");
    assert!(matches!(r.m.phase, JobPhase::Launching { .. }));
}

#[test]
fn a_suspended_lead_keeps_what_it_has_and_goes_on() {
    let mut r = running("1-4", &[1]);
    let effects = r.effects.len();
    let mut lead = job(LEAD, &[n(1)], 0);
    lead.state.base = BaseState::Suspended;
    see(&mut r, &lead);
    r.now = r.now + 4000;
    r.target(&[3]);
    assert_eq!(r.effects.len(), effects, "{:?}", &r.effects[effects..]);
    assert_eq!((r.m.scheduling_state(r.now), r.m.held_nodes(r.now).len()), (SchedulingState::Busy, 1));
    r.target(&[1]);
    lead.state.base = BaseState::Running;
    see(&mut r, &lead);
    assert!(matches!(r.m.phase, JobPhase::Running { .. }), "{:?}: {:?}", r.m.phase, r.notes);
}

#[test]
fn the_users_own_time_limit_holds() {
    let mut r = rig("1-4");
    r.m.submitted.limit_mins = Some(5);
    r.target(&[1]);
    let Some(Effect::Launch { limit_mins, .. }) = r.effects.first() else { panic!("{:?}", r.effects) };
    assert_eq!(*limit_mins, 5);
    r.run();
    r.target(&[1]);
    let mut lead = job(LEAD, &[n(1)], 0);
    lead.time_limit_mins = Some(5);
    see(&mut r, &lead);
    assert!(!r.effects.iter().any(|e| matches!(e, Effect::SetLimit { .. })), "{:?}", r.effects);
}

/// Slurm's description of a job that was requeued, held.
const REQUEUED: &str = "job requeued in held state";

/// A lead that infill has requeued, held, and that no snapshot has shown since.
fn requeued() -> Rig {
    let mut r = running("1-4", &[1]);
    r.target(&[]);
    r.run();
    assert!(r.m.phase.is_requeueing());
    r.effects.clear();
    r
}

#[test]
fn a_hold_that_slurm_attributes_wrongly_is_still_infills() {
    // Slurm forgets the holder at once, or after some snapshots, or after a restart of the daemon.
    for shown in [0, 1, 20] {
        let mut r = requeued();
        (0..shown).for_each(|_| waits(&mut r, true, "JobHeldUser", REQUEUED));
        r.m = crate::JobLifecycle::from_record(r.m.to_record()).unwrap();
        assert_eq!(r.effects.len(), 0);
        for _ in 0..2 {
            waits(&mut r, true, "JobHeldAdmin", "");
            assert_eq!(r.m.obstacles.held_by, None);
            assert_eq!(r.effects, [Effect::Hold { job: LEAD }], "infill holds it again");
        }
        waits(&mut r, true, "JobHeldUser", "");
        assert_eq!(r.m.obstacles.held_by, None);
        waits(&mut r, true, "JobHeldAdmin", "");
        assert_eq!(r.m.obstacles.held_by, Some(HoldKind::Admin), "this is an administrator's hold");
    }
}

#[test]
fn an_administrators_hold_of_a_requeued_lead_counts() {
    for shown in [0, 1] {
        let mut r = requeued();
        (0..shown).for_each(|_| waits(&mut r, true, "JobHeldUser", REQUEUED));
        waits(&mut r, true, "JobHeldAdmin", REQUEUED);
        assert_eq!((r.m.obstacles.held_by, r.effects.len()), (Some(HoldKind::Admin), 0));
    }
    // A hold after infill's release is not a consequence of the requeue.
    let mut r = requeued();
    waits(&mut r, true, "JobHeldUser", REQUEUED);
    r.now = r.now + 60;
    r.target(&[1]);
    r.with(|m, now, _| m.record_launch(now));
    waits(&mut r, true, "JobHeldAdmin", "");
    assert_eq!(r.m.obstacles.held_by, Some(HoldKind::Admin));
}

#[test]
fn a_lead_that_slurm_holds_for_its_requeues_starts_again() {
    for (reason, more) in [
        ("JobHoldMaxRequeue", "launch failure limit exceeded requeued held"),
        ("JobHoldMaxPreemptRequeue", ""),
        ("JobHeldMaxPreemptRequeue", "preemption requeue limit exceeded requeued held"),
        ("JobHoldMaxNodeFailRequeue", "node failure requeue limit exceeded requeued held"),
    ] {
        // It trained or was launched.
        for mut r in [running("1-4", &[1]), released()] {
            let launched = launches(&r);
            waits(&mut r, true, reason, more);
            waits(&mut r, true, reason, more);
            assert_eq!((r.m.obstacles.held_by, r.m.malleable_state().word()), (None, "queued"), "{reason}");
            let refused = r.m.obstacles.refusal.clone().unwrap_or_default();
            assert!(refused.starts_with(reason) && refused.contains(more), "{refused}");
            let blocker = r.m.scheduling_state(r.now);
            assert!(
                matches!(&blocker, SchedulingState::Blocked(StartBlocker::Refused { reason: r, .. }) if *r == refused),
                "{blocker:?}"
            );
            let noted = r.notes.iter().filter(|note| note.contains(reason)).count();
            assert!((1..=2).contains(&noted), "the log has it only once each time: {:?}", r.notes);
            r.now = r.now + 1000;
            r.target(&[2]);
            assert_eq!(launches(&r), launched + 1, "{reason}: it is started elsewhere");
        }
    }
}
