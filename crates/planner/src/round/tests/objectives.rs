//! Which job comes first by the objective.

use super::*;

fn striving_for(objective: PlanningObjective) -> RoundState {
    let mut config = Config::default();
    config.slurm.partition = "infill".to_owned();
    config.planner.objective = objective;
    RoundState::new(Arc::new(config), NOW)
}

/// A job of a user that has made so many samples, and says that it will make so many.
fn told(id: u32, user: &str, samples: f64, total: f64) -> JobFacts {
    let mut job = job(id, "");
    job.program.user = user.to_owned();
    job.claims.curve = infill_model::ScalingCurve::parse("1:1,2:1.9,4:3.5").ok();
    job.course.record_progress(samples, None, Some(total));
    job
}

#[test]
fn where_jobs_shall_end_soon_those_that_will_come_first() {
    let jobs = [told(1, "alice", 0.0, 90_000.0), told(2, "alice", 0.0, 900.0)];
    for (objective, first) in [(PlanningObjective::Throughput, 1), (PlanningObjective::Completion, 2)] {
        let mut scene = striving_for(objective);
        let snapshot = FakeSlurm::new(1, "infill").edit_snapshot(|world| world.clone());
        let _ = scene.ingest_snapshot(&snapshot, &jobs, AdvisorMode::Unasked, NOW);
        let next = [1, 2].map(|id| scene.priorities().turn_of(JobId(id)) == Some(TurnState::Next));
        assert_eq!(next, [first == 1, first == 2], "{objective}");
    }
}

/// It says that it is short, and is not.
#[test]
fn nobody_gets_ahead_by_saying_that_a_job_is_short() {
    let mut scene = striving_for(PlanningObjective::Completion);
    let left = |scene: &RoundState, job: &JobFacts| scene.remaining_work(job).0.known_remaining_secs();
    let short = told(2, "mallory", 100.0, 110.0);
    look(&mut scene, std::slice::from_ref(&short));
    let first = left(&scene, &short).unwrap();
    assert!(first < 300.0, "a word is believed until it is false: {first}");
    let outlived = told(2, "mallory", 5000.0, 110.0);
    look(&mut scene, std::slice::from_ref(&outlived));
    assert_eq!(left(&scene, &outlived), None);
    // It ends, and so do the next ones; then another says the same.
    for id in 2..6 {
        let outlook = &mut scene.priorities_mut().outlook;
        outlook.add_job(JobId(id), &told(id, "mallory", 0.0, 110.0).submission());
        let word = UserEstimate { said_secs: Some(110.0), ..UserEstimate::default() };
        outlook.record_end(JobId(id), NOW, 5000.0, &word);
    }
    let again = told(9, "mallory", 0.0, 110.0);
    look(&mut scene, std::slice::from_ref(&again));
    let third = left(&scene, &again);
    assert!(third.is_none_or(|secs| secs > 1000.0), "{third:?}");
}

#[test]
fn a_job_that_is_about_to_end_is_not_rescaled_for_what_it_could_gain_later() {
    let scene = striving_for(PlanningObjective::Throughput);
    let costs = |samples: f64| {
        let mut job = told(1, "alice", samples, 10_000.0);
        (job.running, job.standing) = (Some(1), SchedulingState::Running);
        job.place = self::job(1, "n1").place;
        scene.round_input(&[job], RoundConstraints::FREE, NOW).jobs[0].costs
    };
    let far = costs(0.0);
    let near = costs(9_990.0);
    assert!(near.up_secs > 20.0 * far.up_secs && near.start_secs == far.start_secs, "{far:?} {near:?}");
}
