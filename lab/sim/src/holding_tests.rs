//! The results of single jobs, and fairness, in simulations of small clusters.

use super::job::ChangeAccounting;
use super::supply::{JobSupply, SampleWorth};
use super::tests::{setup, simulate};
use super::*;
use infill_model::{
    RescaleCosts, ScalingCurve,
    trace::{NamedCurve, WorkloadJob},
};

/// The only job of a simulation under a policy that gives it all idle nodes.
fn only(setup: &SimulationSetup) -> JobScore {
    let outcome = simulate(setup, "fcfs-max");
    assert_eq!(outcome.jobs.len(), 1);
    outcome.jobs[0].clone()
}

#[test]
fn a_job_has_a_turn_in_each_gap_that_it_waited_for() {
    let job = only(&setup(&[(100, 1000, "n1"), (1500, 1900, "n1"), (1990, 2000, "n2")], 1));
    assert_eq!((job.turns, job.first_wait_secs), (3, Some(100.0)));
    assert_eq!((job.longest_wait_secs, job.waited_secs), (500.0, 100.0 + 500.0 + 90.0));
    assert_eq!((job.present_secs, job.node_secs), (2000.0, 900.0 + 400.0 + 10.0));
    assert_eq!(job.user, None);
}

#[test]
fn other_nodes_in_the_same_second_are_not_a_new_turn() {
    let job = only(&setup(&[(0, 1000, "n1"), (1000, 2000, "n2")], 1));
    assert_eq!((job.turns, job.waited_secs, job.node_secs), (1, 0.0, 2000.0));
    // It still starts twice.
    assert_eq!(job.changing_secs, 2.0 * 18.0);
}

#[test]
fn a_job_that_never_has_a_node_waits_to_the_end() {
    let outcome = simulate(&setup(&[(0, 1000, "n1")], 2), "fcfs-max");
    let job = &outcome.jobs[1];
    assert_eq!((job.turns, job.first_wait_secs, job.node_secs), (0, None, 0.0));
    assert_eq!((job.longest_wait_secs, job.waited_secs, job.present_secs), (1000.0, 1000.0, 1000.0));
    let expected = FairnessScore {
        jain_jobs: Some(0.5),
        jain_users: None,
        longest_first_wait_secs: Some(1000.0),
        median_first_wait_secs: Some(0.0),
        never_started: 1,
    };
    assert_eq!(outcome.fairness(), expected);
}

#[test]
fn changes_cost_the_nodes_that_stand_still() {
    let mut setup = setup(&[(0, 2000, "n1"), (500, 1000, "n2"), (600, 610, "n3")], 1);
    // A start on one node; then changes that stop two, three, two and one nodes.
    let stops = 18.0 + 2.0 * 18.0 + 3.0 * 10.0 + 2.0 * 12.0 + 12.0;
    assert_eq!(only(&setup).changing_secs, stops);
    // Alive: a newcomer warms up for 20 s, and two nodes pause when it joins. One newcomer warms up in vain.
    // At the end one node is left.
    setup.costs = RescaleCosts { up_secs: 3.0, down_secs: 2.0, start_secs: 18.0 };
    setup.warm_secs = 20.0;
    assert_eq!(only(&setup).changing_secs, 18.0 + 20.0 + 2.0 * 3.0 + 10.0 + 2.0);
    assert_eq!(simulate(&setup, "bound").jobs[0].changing_secs, 0.0, "the bound pays for nothing");
}

#[test]
fn charged_changes_cost_the_nodes_before_them() {
    let mut setup = setup(&[(0, 2000, "n1"), (0, 1000, "n2")], 1);
    setup.accounting = ChangeAccounting::OldRate;
    assert_eq!(only(&setup).changing_secs, 12.0 * 2.0);
}

#[test]
fn jobs_that_come_later_and_end_count_for_their_own_time() {
    let job = |name: &str, user: Option<&str>, at: i64, samples: f64| WorkloadJob {
        name: name.to_owned(),
        submit_secs: at,
        samples,
        min_nodes: 1,
        max_nodes: 1,
        curve: "linear".to_owned(),
        weight: 1.0,
        user: user.map(str::to_owned),
    };
    let mut setup = setup(&[(0, 1000, "n1")], 1);
    let curve = NamedCurve { name: "linear".to_owned(), curve: ScalingCurve::parse("1:10").unwrap() };
    // The first job has the node from 100 on, pauses for 18 s, and has made its samples at 200.
    let jobs = [job("a", Some("alice"), 100, 820.0), job("b", Some("bob"), 150, 1e9)];
    setup.supply = JobSupply::from_list(&jobs, &[curve], SampleWorth::Sample).unwrap();
    let outcome = simulate(&setup, "fcfs-max");
    let [first, second] = &outcome.jobs[..] else { panic!("two jobs") };
    assert_eq!((first.user.as_deref(), second.user.as_deref()), (Some("alice"), Some("bob")));
    assert_eq!((first.ended_at, first.present_secs, first.node_secs), (Some(200.0), 100.0, 100.0));
    assert_eq!((second.first_wait_secs, second.present_secs, second.node_secs), (Some(50.0), 850.0, 800.0));
    let x = 800.0 / 850.0;
    let fairness = outcome.fairness();
    assert_eq!(fairness.jain_jobs, Some((1.0 + x) * (1.0 + x) / (2.0 * (1.0 + x * x))));
    assert_eq!(fairness.jain_users, fairness.jain_jobs);
    assert_eq!((fairness.longest_first_wait_secs, fairness.median_first_wait_secs), (Some(50.0), Some(0.0)));
}

#[test]
fn the_results_of_the_jobs_add_up() {
    let names: Vec<String> = (0..6).map(|n| format!("n{n}")).collect();
    let gaps = names.iter().zip(0i64..).flat_map(|(name, n)| {
        (0..6i64).map(move |k| (k * 900 + n * 70, k * 900 + n * 70 + 250 + n * k * 9, name.as_str()))
    });
    let setup = setup(&gaps.collect::<Vec<_>>(), 4);
    for policy in ["equal-share", "fcfs-max", "freetrain", "malletrain", "infill-known", "bound"] {
        let outcome = simulate(&setup, policy);
        let held: f64 = outcome.jobs.iter().map(|j| j.node_secs).sum();
        assert!((held - outcome.held_node_secs).abs() < 1e-6, "{policy}: {held} {}", outcome.held_node_secs);
        for job in &outcome.jobs {
            let first = job.first_wait_secs.unwrap_or(job.present_secs);
            assert!(
                first <= job.longest_wait_secs && job.longest_wait_secs <= job.waited_secs,
                "{policy} {job:?}"
            );
            assert!(
                job.waited_secs <= job.present_secs && job.changing_secs <= job.node_secs,
                "{policy} {job:?}"
            );
            assert_eq!(job.first_wait_secs.is_some(), job.turns > 0, "{policy} {job:?}");
        }
        let jain = outcome.fairness().jain_jobs.unwrap();
        assert!((0.25..=1.0).contains(&jain), "{policy}: {jain}");
    }
}
