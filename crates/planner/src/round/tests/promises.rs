//! What is promised, by what there is: four nodes.

use super::*;
use infill_model::{GuaranteeProspect, MinimumRate, RateGuarantee, RequestedRun, ScalingCurve, StartBlocker};

/// A job that runs on these nodes, wants what it makes on so many, and came so many seconds ago.
fn asks(id: u32, nodes: &str, asked: u32, secs: i64) -> JobFacts {
    let mut job = job(id, nodes);
    job.claims.curve = ScalingCurve::parse("1:10,2:18,3:25,4:32").ok();
    job.claims.at_least = Some(MinimumRate::Asked(asked));
    job.submitted_at = NOW + -secs;
    job
}

/// The same of which nobody knows how fast it is.
fn unknown(mut job: JobFacts) -> JobFacts {
    job.claims.curve = None;
    job
}

fn assured(scene: &RoundState, jobs: &[JobFacts], id: u32) -> RateGuarantee {
    let question = scene.round_input(jobs, RoundConstraints::FREE, NOW);
    let job = question.jobs.into_iter().find(|job| job.id == JobId(id)).expect("a job of the round");
    job.assured.expect("a wish")
}

fn prospects(scene: &RoundState, jobs: &[JobFacts]) -> Vec<GuaranteeProspect> {
    jobs.iter().map(|facts| assured(scene, jobs, facts.job.0).prospect).collect()
}

#[test]
fn what_was_asked_for_is_the_rate_of_the_first_plan_at_that_size() {
    let mut scene = scene();
    let jobs = [asks(1, "n1 n2", 2, 0)];
    look(&mut scene, &jobs);
    let found = assured(&scene, &jobs, 1);
    let run = RequestedRun { nodes: 2, exec_plan: ExecPlan::default() };
    assert!((found.rate - 18.0).abs() < 0.02, "{}", found.rate);
    assert_eq!((found.asked, found.prospect), (Some(run), GuaranteeProspect::Open { needs: 2 }));
    assert!(found.bonus > 0.0 && found.enough[0].ranges == [(2, 4)], "{:?}", found.enough);

    let jobs = [unknown(asks(1, "n1 n2", 2, 0))];
    let found = assured(&scene, &jobs, 1);
    assert_eq!((found.rate, found.prospect, found.enough.len()), (0.0, GuaranteeProspect::Unmeasured, 0));
    let said = found.outcome_reason(false).to_string();
    assert!(said.starts_with("nothing is assured yet: it wants the rate of the 2 nodes asked for"), "{said}");
}

#[test]
fn promises_are_made_in_the_order_of_submission_while_there_is_room() {
    let mut scene = scene();
    let mut jobs = vec![asks(1, "n1", 3, 10), asks(2, "n2", 2, 20), asks(3, "n3", 1, 5)];
    look(&mut scene, &jobs);
    let open = |needs| GuaranteeProspect::Open { needs };
    let left = GuaranteeProspect::Promised { needs: 3, there: 1 };
    // The third is promised what the second one leaves, less the least of the first.
    assert_eq!(prospects(&scene, &jobs), [left, open(2), open(1)]);
    jobs.remove(1);
    look(&mut scene, &jobs);
    assert_eq!(prospects(&scene, &jobs), [open(3), open(1)], "there is room now");

    let beside = [asks(1, "n1", 4, 10), job(2, "n2")];
    look(&mut scene, &beside[1..]);
    let found = assured(&scene, &beside, 1).prospect;
    assert_eq!(found, GuaranteeProspect::TooFew { needs: 4, there: 3 }, "the other one keeps its least");
}

#[test]
fn a_promise_stands_whoever_is_known_or_comes_later() {
    let mut scene = scene();
    let first = asks(1, "n1", 3, 20);
    let second = asks(2, "n2 n3", 2, 10);
    look(&mut scene, &[unknown(first.clone()), second.clone()]);
    let jobs = [first.clone(), second.clone()];
    let left = GuaranteeProspect::Promised { needs: 3, there: 2 };
    let open = GuaranteeProspect::Open { needs: 2 };
    assert_eq!(prospects(&scene, &jobs), [left, open]);
    // All nodes are others' least: that is no reason to take it back.
    let crowd = [second.clone(), job(3, "n1"), job(4, "n4"), asks(5, "", 2, 30)];
    look(&mut scene, &crowd);
    assert_eq!(assured(&scene, &crowd, 2).prospect, open);
    // Who has seen nothing yet goes by submission.
    let mut anew = super::scene();
    look(&mut anew, &jobs);
    assert_eq!(
        prospects(&anew, &jobs),
        [GuaranteeProspect::Open { needs: 3 }, GuaranteeProspect::Promised { needs: 2, there: 1 }]
    );
}

#[test]
fn a_promise_outlives_the_daemon_that_made_it() {
    let first = asks(1, "n1", 3, 20);
    let second = asks(2, "n2 n3", 2, 10);
    let jobs = [first.clone(), second.clone()];
    let kept = [GuaranteeProspect::Promised { needs: 3, there: 2 }, GuaranteeProspect::Open { needs: 2 }];
    let made_at = NOW + -5;
    let promised = |scene: &RoundState| [1, 2].map(|id| scene.priorities().promised_at(JobId(id)));
    let mut scene = scene();
    scene.priorities_mut().restore_promises([(JobId(2), made_at)].into_iter());
    // Its profile is read after the first look.
    let unread = [first, unknown(second)];
    look(&mut scene, &unread);
    assert_eq!(promised(&scene), [None, Some(made_at)], "no other job takes its place meanwhile");
    assert_eq!(prospects(&scene, &jobs), kept);
    look(&mut scene, &jobs);
    assert_eq!((promised(&scene), prospects(&scene, &jobs)), ([None, Some(made_at)], kept.into()));
    look(&mut scene, &unread);
    assert_eq!(promised(&scene)[1], Some(made_at), "a profile that was forgotten takes nothing back");
    assert_eq!(prospects(&scene, &jobs), kept);
    // Its number may be another job's next.
    scene.priorities_mut().forget_job(JobId(2));
    assert_eq!(promised(&scene)[1], None);
}

#[test]
fn turns_leave_alone_what_is_promised() {
    let mut scene = scene();
    let owner = asks(1, "n1 n2 n3", 3, 10_000);
    look(&mut scene, std::slice::from_ref(&owner));
    let waiting = (2..5).map(|id| job(id, ""));
    let turn = |scene: &RoundState, id| scene.priorities().turn_of(JobId(id));
    let jobs: Vec<JobFacts> = std::iter::once(owner).chain(waiting.clone()).collect();
    look(&mut scene, &jobs);
    assert_eq!(turn(&scene, 2), Some(TurnState::Next), "n4 is free");
    for id in [3, 4] {
        assert!(turn(&scene, id).and_then(TurnState::queue_position).is_some(), "{:?}", turn(&scene, id));
    }
    // The main queue took its nodes, and they are back: no other job is before it.
    let parked = asks(1, "", 3, 10_000);
    let jobs: Vec<JobFacts> = std::iter::once(parked).chain(waiting).collect();
    look(&mut scene, &jobs);
    assert_eq!(turn(&scene, 1), Some(TurnState::Next));
    assert_eq!(assured(&scene, &jobs, 1).prospect, GuaranteeProspect::Open { needs: 3 });
}

#[test]
fn who_may_not_start_is_promised_nothing_yet_and_takes_nothing() {
    let mut scene = scene();
    let mut barred = asks(1, "", 4, 20);
    barred.standing = SchedulingState::Barred(StartBlocker::Reservation("maintenance".to_owned()));
    let jobs = [barred, asks(2, "n1 n2", 2, 10)];
    look(&mut scene, &jobs);
    assert_eq!(assured(&scene, &jobs, 2).prospect, GuaranteeProspect::Open { needs: 2 });
    assert_eq!(assured(&scene, &jobs[..1], 1).prospect, GuaranteeProspect::Waits { needs: 4 });
    let too_fast = [JobFacts {
        claims: JobDeclaration { at_least: Some(MinimumRate::Rate(33.0)), ..jobs[1].claims.clone() },
        ..jobs[1].clone()
    }];
    let too_slow = assured(&scene, &too_fast, 2).prospect;
    assert!(
        matches!(too_slow, GuaranteeProspect::TooSlow { most } if (most - 32.0).abs() < 0.1),
        "{too_slow:?}"
    );
    let too_large = [asks(2, "n1 n2", 9, 0)];
    assert_eq!(
        assured(&scene, &too_large, 2).prospect,
        GuaranteeProspect::Open { needs: 4 },
        "its curve ends there"
    );
}
