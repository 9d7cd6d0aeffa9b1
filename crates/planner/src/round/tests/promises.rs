//! Which rates are promised on four nodes.

use super::*;
use infill_model::{GuaranteeProspect, MinimumRate, RateGuarantee, RequestedRun, ScalingCurve, StartBlocker};

/// A job that runs on these nodes, wants the rate that it has on `asked` nodes, and came `secs` seconds ago.
fn wants_rate(id: u32, nodes: &str, asked: u32, secs: i64) -> JobFacts {
    let mut job = job(id, nodes);
    job.declaration.curve = ScalingCurve::parse("1:10,2:18,3:25,4:32").ok();
    job.declaration.at_least = Some(MinimumRate::Requested(asked));
    job.submitted_at = NOW + -secs;
    job
}

/// The same job without a curve, so that its rates are unknown.
fn without_rates(mut job: JobFacts) -> JobFacts {
    job.declaration.curve = None;
    job
}

fn assured(state: &RoundState, jobs: &[JobFacts], id: u32) -> RateGuarantee {
    let input = state.round_input(jobs, RoundConstraints::FREE, NOW);
    let job = input.jobs.into_iter().find(|job| job.id == JobId(id)).expect("a job of the round");
    job.guarantee.expect("a guarantee")
}

fn prospects(state: &RoundState, jobs: &[JobFacts]) -> Vec<GuaranteeProspect> {
    jobs.iter().map(|facts| assured(state, jobs, facts.job.0).prospect).collect()
}

#[test]
fn the_promised_rate_is_that_of_the_first_plan_at_the_requested_size() {
    let mut state = round_state();
    let jobs = [wants_rate(1, "n1 n2", 2, 0)];
    look(&mut state, &jobs);
    let found = assured(&state, &jobs, 1);
    let run = RequestedRun { nodes: 2, exec_plan: ExecPlan::default() };
    assert!((found.rate - 18.0).abs() < 0.02, "{}", found.rate);
    assert_eq!((found.requested, found.prospect), (Some(run), GuaranteeProspect::Open { needs: 2 }));
    assert!(
        found.bonus > 0.0 && found.sufficient_sizes[0].ranges == [(2, 4)],
        "{:?}",
        found.sufficient_sizes
    );

    let jobs = [without_rates(wants_rate(1, "n1 n2", 2, 0))];
    let found = assured(&state, &jobs, 1);
    assert_eq!(
        (found.rate, found.prospect, found.sufficient_sizes.len()),
        (0.0, GuaranteeProspect::Unmeasured, 0)
    );
    let words = found.outcome_reason(false).to_string();
    assert!(
        words.starts_with("nothing is assured yet: it wants the rate of the 2 nodes asked for"),
        "{words}"
    );
}

#[test]
fn promises_are_made_in_the_order_of_submission_while_nodes_are_left() {
    let mut state = round_state();
    let mut jobs = vec![wants_rate(1, "n1", 3, 10), wants_rate(2, "n2", 2, 20), wants_rate(3, "n3", 1, 5)];
    look(&mut state, &jobs);
    let open = |needs| GuaranteeProspect::Open { needs };
    let left = GuaranteeProspect::Promised { needs: 3, available: 1 };
    // The third is promised what the second leaves, less the minimum of the first.
    assert_eq!(prospects(&state, &jobs), [left, open(2), open(1)]);
    jobs.remove(1);
    look(&mut state, &jobs);
    assert_eq!(prospects(&state, &jobs), [open(3), open(1)], "its nodes are free now");

    let beside = [wants_rate(1, "n1", 4, 10), job(2, "n2")];
    look(&mut state, &beside[1..]);
    let found = assured(&state, &beside, 1).prospect;
    assert_eq!(
        found,
        GuaranteeProspect::TooFew { needs: 4, available: 3 },
        "the other job keeps its minimum"
    );
}

#[test]
fn a_promise_stands_whichever_jobs_come_later() {
    let mut state = round_state();
    let first = wants_rate(1, "n1", 3, 20);
    let second = wants_rate(2, "n2 n3", 2, 10);
    look(&mut state, &[without_rates(first.clone()), second.clone()]);
    let jobs = [first.clone(), second.clone()];
    let left = GuaranteeProspect::Promised { needs: 3, available: 2 };
    let open = GuaranteeProspect::Open { needs: 2 };
    assert_eq!(prospects(&state, &jobs), [left, open]);
    // All nodes belong to the minimum of some job: that does not take the promise back.
    let crowd = [second.clone(), job(3, "n1"), job(4, "n4"), wants_rate(5, "", 2, 30)];
    look(&mut state, &crowd);
    assert_eq!(assured(&state, &crowd, 2).prospect, open);
    // A state without earlier rounds goes by submission.
    let mut fresh = super::round_state();
    look(&mut fresh, &jobs);
    assert_eq!(
        prospects(&fresh, &jobs),
        [GuaranteeProspect::Open { needs: 3 }, GuaranteeProspect::Promised { needs: 2, available: 1 }]
    );
}

#[test]
fn a_promise_outlives_the_daemon_that_made_it() {
    let first = wants_rate(1, "n1", 3, 20);
    let second = wants_rate(2, "n2 n3", 2, 10);
    let jobs = [first.clone(), second.clone()];
    let kept = [GuaranteeProspect::Promised { needs: 3, available: 2 }, GuaranteeProspect::Open { needs: 2 }];
    let made_at = NOW + -5;
    let promised = |state: &RoundState| [1, 2].map(|id| state.priorities().promised_at(JobId(id)));
    let mut state = round_state();
    state.priorities_mut().restore_promises([(JobId(2), made_at)].into_iter());
    // Its profile is read after the first round.
    let unread = [first, without_rates(second)];
    look(&mut state, &unread);
    assert_eq!(promised(&state), [None, Some(made_at)], "no other job takes its place meanwhile");
    assert_eq!(prospects(&state, &jobs), kept);
    look(&mut state, &jobs);
    assert_eq!((promised(&state), prospects(&state, &jobs)), ([None, Some(made_at)], kept.into()));
    look(&mut state, &unread);
    assert_eq!(promised(&state)[1], Some(made_at), "a forgotten profile takes no promise back");
    assert_eq!(prospects(&state, &jobs), kept);
    // Slurm may give its id to another job.
    state.priorities_mut().forget_job(JobId(2));
    assert_eq!(promised(&state)[1], None);
}

#[test]
fn turns_do_not_take_promised_nodes() {
    let mut state = round_state();
    let owner = wants_rate(1, "n1 n2 n3", 3, 10_000);
    look(&mut state, std::slice::from_ref(&owner));
    let waiting = (2..5).map(|id| job(id, ""));
    let turn = |state: &RoundState, id| state.priorities().turn_of(JobId(id));
    let jobs: Vec<JobFacts> = std::iter::once(owner).chain(waiting.clone()).collect();
    look(&mut state, &jobs);
    assert_eq!(turn(&state, 2), Some(TurnState::Next), "n4 is free");
    for id in [3, 4] {
        assert!(turn(&state, id).and_then(TurnState::queue_position).is_some(), "{:?}", turn(&state, id));
    }
    // The main queue took its nodes and gave them back: no other job comes before it.
    let parked = wants_rate(1, "", 3, 10_000);
    let jobs: Vec<JobFacts> = std::iter::once(parked).chain(waiting).collect();
    look(&mut state, &jobs);
    assert_eq!(turn(&state, 1), Some(TurnState::Next));
    assert_eq!(assured(&state, &jobs, 1).prospect, GuaranteeProspect::Open { needs: 3 });
}

#[test]
fn a_job_that_may_not_start_has_no_promise_yet_and_takes_nothing() {
    let mut state = round_state();
    let mut barred = wants_rate(1, "", 4, 20);
    barred.scheduling_state = SchedulingState::Blocked(StartBlocker::Reservation("maintenance".to_owned()));
    let jobs = [barred, wants_rate(2, "n1 n2", 2, 10)];
    look(&mut state, &jobs);
    assert_eq!(assured(&state, &jobs, 2).prospect, GuaranteeProspect::Open { needs: 2 });
    assert_eq!(assured(&state, &jobs[..1], 1).prospect, GuaranteeProspect::Waits { needs: 4 });
    let too_fast = [JobFacts {
        declaration: JobDeclaration {
            at_least: Some(MinimumRate::Rate(33.0)),
            ..jobs[1].declaration.clone()
        },
        ..jobs[1].clone()
    }];
    let too_slow = assured(&state, &too_fast, 2).prospect;
    assert!(
        matches!(too_slow, GuaranteeProspect::TooSlow { most } if (most - 32.0).abs() < 0.1),
        "{too_slow:?}"
    );
    let too_large = [wants_rate(2, "n1 n2", 9, 0)];
    assert_eq!(
        assured(&state, &too_large, 2).prospect,
        GuaranteeProspect::Open { needs: 4 },
        "its curve ends there"
    );
}
