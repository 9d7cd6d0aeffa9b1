//! Which main jobs count as having waited for nodes of malleable jobs.

use super::*;

/// The delays that these snapshots of n1 show, as `job seconds`. Each snapshot has a moment and the jobs that
/// Slurm shows then.
fn delays(looks: &[(i64, Vec<Job>)]) -> Vec<String> {
    let mut delays = DelayTracker::default();
    let mut found = Vec::new();
    for (at, jobs) in looks {
        let is_used = jobs.iter().any(|j| j.state.occupies_nodes());
        let seen = snapshot(&[("n1", if is_used { "ALLOCATED" } else { "IDLE" })], jobs.clone());
        found.extend(delays.observe_snapshot(
            &seen,
            &NodeOccupancy::from_snapshot(&seen, "infill"),
            NOW + *at,
        ));
    }
    found.iter().map(|delay| format!("{} {}", delay.job, delay.secs)).collect()
}

/// A job that Slurm preempts 4 s from now.
fn preempted(text: &str) -> Job {
    Job { preempt_time: Some(NOW + 4), ..job(text, -500) }
}

#[test]
fn a_malleable_job_that_starts_where_another_left_has_no_delay() {
    let before = [(0, vec![job("90 infill running n1", -500)]), (5, vec![preempted("90 infill running n1")])];
    let then = |next: &str| delays(&[&before[..], &[(10, vec![job(next, 8)])]].concat());
    assert_eq!(then("1 main running n1"), ["1 4"]);
    assert!(then("91 infill running n1").is_empty());
    assert!(then("1 main pending n1").is_empty(), "it still waits");
}

#[test]
fn a_preempted_main_job_makes_no_delay() {
    let looks = |partition: &str| {
        let held = format!("90 {partition} running n1");
        delays(&[
            (0, vec![job(&held, -500)]),
            (5, vec![preempted(&held)]),
            (10, vec![job("1 main running n1", 6)]),
        ])
    };
    assert_eq!(looks("infill"), ["1 2"]);
    assert!(looks("main").is_empty());
}

#[test]
fn a_preempted_malleable_job_that_is_gone_in_the_next_snapshot_is_counted() {
    let gone = vec![preempted("90 infill ended n1"), job("1 main running n1", 6)];
    assert_eq!(delays(&[(0, vec![job("90 infill running n1", -500)]), (10, gone)]), ["1 2"]);
}
