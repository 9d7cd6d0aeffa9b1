//! Jobs that all leave for one planned start, and save through one pipe.

use super::job::{ChangeAccounting, CheckpointCosts};
use super::queue::{LogQueue, MainQueue};
use super::supply::{JobSupply, SampleWorth};
use super::*;
use infill_model::{
    JobId, NodeName, RescaleCosts, ScalingCurve,
    config::Config,
    trace::{JobLog, LoggedJob, NamedCurve},
};

/// Number of malleable jobs of one node each.
const JOBS: u32 = 20;

/// When main jobs start that want all nodes.
const STARTS: [i64; 3] = [4000, 8000, 12000];

/// A main job on these nodes.
fn main_job(id: u32, submit: i64, start: i64, end: i64, nodes: impl Iterator<Item = u32>) -> LoggedJob {
    let node_list: Vec<NodeName> = nodes.map(|n| NodeName::new(format!("n{n:02}"))).collect();
    LoggedJob {
        id: JobId(id),
        name: id.to_string(),
        user: String::new(),
        account: String::new(),
        partition: String::new(),
        submit,
        start,
        end,
        limit_secs: Some(end - start),
        nodes: node_list.len() as u32,
        node_list,
        gpus: None,
        state: String::new(),
    }
}

/// Twenty nodes for jobs that save for 10 s each, and one more on which a main job always ends when the next
/// one starts. Until 1900 only one node is free, and its job leaves alone four times.
fn setup(save_shared: f64) -> SimulationSetup {
    let mut jobs = vec![main_job(1, 0, 0, 1900, 2..=20)];
    for (id, at) in (0..4).map(|n| (n, 400 * i64::from(n))) {
        jobs.push(main_job(10 + id, at, at, at + 300, 21..=21));
        jobs.push(main_job(20 + id, at + 1, at + 300, at + 400, [1, 21].into_iter()));
    }
    for (id, (since, start)) in (40..).zip([1600, STARTS[0] + 500, STARTS[1] + 500].into_iter().zip(STARTS)) {
        jobs.push(main_job(id, since, since, start, 21..=21));
        jobs.push(main_job(id + 10, start - 1900, start, start + 500, 1..=21));
    }
    let end = STARTS[2] + 500;
    jobs.push(main_job(60, end, end, end + 1, 21..=21));
    jobs.sort_by_key(|job| job.start);
    let log = JobLog { jobs, ..JobLog::default() };
    let curve = NamedCurve { name: "one".to_owned(), curve: ScalingCurve::parse("1:10").unwrap() };
    SimulationSetup {
        queue: MainQueue::Log(LogQueue::new(&log, None)),
        supply: JobSupply::endless_jobs(JOBS, &[curve], (1, 1), SampleWorth::Sample).unwrap(),
        costs: RescaleCosts { up_secs: 6.0, down_secs: 4.0, start_secs: 6.0 },
        accounting: ChangeAccounting::Pause,
        warm_secs: 0.0,
        checkpoints: CheckpointCosts { save_secs: 1.0, interval_secs: 600.0, grace_secs: 2.0 },
        leave_secs: 13.0,
        save_shared,
        noise: 0.0,
        seed: 1,
        most_secs: None,
        timeline_nodes: JOBS,
    }
}

fn simulate(save_shared: f64, contention_secs: f64) -> PolicyScore {
    let mut config = Config::default();
    config.gaps.contention_secs = contention_secs;
    run_simulation(&setup(save_shared), PolicyName::InfillKnown.build_policy(&config), &mut |_| {})
}

/// Seconds before each start at which the last of its nodes was left.
fn left_before(score: &PolicyScore) -> [i64; 3] {
    STARTS.map(|start| {
        let held = score.timeline.iter().filter(|span| span.job.is_some() && span.from < start);
        start - held.map(|span| span.to).max().unwrap()
    })
}

#[test]
fn no_start_waits_for_jobs_that_save_through_one_pipe() {
    let as_if_alone = simulate(1.0, 0.0);
    assert!(as_if_alone.preempted.late > 0, "{:?}", as_if_alone.preempted);
    assert!(as_if_alone.preempted.longest_secs > 150.0, "{:?}", as_if_alone.preempted);
    let together = simulate(1.0, 600.0);
    assert_eq!((together.preempted.late, together.preempted.unforeseen), (0, 0), "{:?}", together.preempted);
    assert_eq!(together.preempted.total_secs, 0.0);
    let left = left_before(&together);
    assert!(left.iter().all(|secs| (203..300).contains(secs)), "{left:?}");
}

#[test]
fn independent_saves_are_recognised_at_the_first_start() {
    let together = simulate(0.0, 600.0);
    assert_eq!((together.preempted.late, together.preempted.total_secs), (0, 0.0));
    let [first, others @ ..] = left_before(&together);
    assert!(first > 200, "nothing was measured yet: {first}");
    // The saves of all jobs together took no longer than one alone.
    assert!(others.iter().all(|secs| *secs < 30), "{others:?}");
    assert_eq!(left_before(&simulate(0.0, 0.0))[1..], others);
}
