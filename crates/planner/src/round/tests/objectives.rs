//! Which job comes first, by the objective.

use super::*;

fn with_objective(objective: PlanningObjective) -> RoundState {
    let mut config = Config::default();
    config.slurm.partition = "infill".to_owned();
    config.planner.objective = objective;
    RoundState::new(Arc::new(config), NOW)
}

/// A job of a user that has made `samples` samples, and estimates that it will make `total`.
fn with_estimate(id: u32, user: &str, samples: f64, total: f64) -> JobFacts {
    let mut job = job(id, "");
    job.program.user = user.to_owned();
    job.declaration.curve = infill_model::ScalingCurve::parse("1:1,2:1.9,4:3.5").ok();
    job.progress.record_progress(samples, None, Some(total));
    job
}

#[test]
fn with_the_objective_completion_jobs_that_end_soon_come_first() {
    let jobs = [with_estimate(1, "alice", 0.0, 90_000.0), with_estimate(2, "alice", 0.0, 900.0)];
    for (objective, first) in [(PlanningObjective::Throughput, 1), (PlanningObjective::Completion, 2)] {
        let mut state = with_objective(objective);
        let snapshot = FakeSlurm::new(1, "infill").edit_snapshot(|world| world.clone());
        let _ = state.ingest_snapshot(&snapshot, &jobs, AdvisorMode::Unasked, NOW);
        let next = [1, 2].map(|id| state.priorities().turn_of(JobId(id)) == Some(TurnState::Next));
        assert_eq!(next, [first == 1, first == 2], "{objective}");
    }
}

#[test]
fn jobs_divide_their_owners_share_by_their_weights() {
    let state = with_objective(PlanningObjective::Throughput);
    let weights = |first: Option<f64>| {
        let mut jobs =
            [(1, "alice"), (2, "alice"), (3, "bob")].map(|(id, user)| with_estimate(id, user, 1.0, 90.0));
        jobs[0].progress.record_weight(first);
        let input = state.round_input(&jobs, RoundConstraints::FREE, NOW);
        input.jobs.iter().map(|job| job.weight).collect::<Vec<_>>()
    };
    let equal = weights(None);
    assert!(equal[0] == equal[1] && equal[2] == 2.0 * equal[0], "{equal:?}");
    let unequal = weights(Some(3.0));
    assert!((unequal[0] / unequal[1] - 3.0).abs() < 1e-9, "{unequal:?}");
    assert!(
        (unequal[0] + unequal[1] - equal[2]).abs() < 1e-9 && unequal[2] == equal[2],
        "only alice's own: {unequal:?}"
    );
    assert_eq!(weights(Some(1e9)), equal, "a weight out of bounds is ignored");
}

/// The job claims to be short, and is not.
#[test]
fn a_false_claim_to_be_short_brings_no_advantage() {
    let mut state = with_objective(PlanningObjective::Completion);
    let left = |state: &RoundState, job: &JobFacts| state.remaining_work(job).0.known_remaining_secs();
    let short = with_estimate(2, "mallory", 100.0, 110.0);
    look(&mut state, std::slice::from_ref(&short));
    let first = left(&state, &short).unwrap();
    assert!(first < 300.0, "an estimate is believed until it is false: {first}");
    let outlived = with_estimate(2, "mallory", 5000.0, 110.0);
    look(&mut state, std::slice::from_ref(&outlived));
    assert_eq!(left(&state, &outlived), None);
    // It ends, and so do the next ones; then another job claims the same.
    for id in 2..6 {
        let predictor = &mut state.priorities_mut().length_predictor;
        predictor.add_job(JobId(id), &with_estimate(id, "mallory", 0.0, 110.0).submission());
        let estimate = UserEstimate { declared_secs: Some(110.0), ..UserEstimate::default() };
        predictor.record_end(JobId(id), NOW, 5000.0, &estimate);
    }
    let again = with_estimate(9, "mallory", 0.0, 110.0);
    look(&mut state, std::slice::from_ref(&again));
    let third = left(&state, &again);
    assert!(third.is_none_or(|secs| secs > 1000.0), "{third:?}");
}

#[test]
fn a_job_that_ends_soon_is_not_rescaled_for_later_gains() {
    let state = with_objective(PlanningObjective::Throughput);
    let costs = |samples: f64| {
        let mut job = with_estimate(1, "alice", samples, 10_000.0);
        job.running = Some(1);
        job.scheduling_state = SchedulingState::Running;
        job.location = self::job(1, "n1").location;
        state.round_input(&[job], RoundConstraints::FREE, NOW).jobs[0].costs
    };
    let far = costs(0.0);
    let near = costs(9_990.0);
    assert!(near.up_secs > 20.0 * far.up_secs && near.start_secs == far.start_secs, "{far:?} {near:?}");
}
