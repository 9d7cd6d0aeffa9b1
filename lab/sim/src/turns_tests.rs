//! Complete simulations of priorities: short jobs before long ones, and users by their shares.

use std::collections::BTreeMap;

use super::job::{ChangeAccounting, CheckpointCosts};
use super::queue::{IdleQueue, MainQueue};
use super::supply::{JobSupply, SampleWorth};
use super::*;
use infill_model::{
    NodeName, PlanningObjective, RescaleCosts, ScalingCurve,
    config::Config,
    trace::{IdleInterval, IdleLog, NamedCurve, WorkloadJob},
};

/// Eight nodes without main jobs.
fn setup(jobs: &[WorkloadJob], secs: i64) -> SimulationSetup {
    let log = IdleLog {
        intervals: (1..9)
            .map(|n: i64| IdleInterval { start: 0, end: secs, node: NodeName::new(format!("n{n}")) })
            .collect(),
        start: 0,
        end: secs,
    };
    let curves = [
        NamedCurve { name: "one".to_owned(), curve: ScalingCurve::parse("1:10").unwrap() },
        NamedCurve { name: "wide".to_owned(), curve: ScalingCurve::parse("1:10,2:19,4:36,8:66").unwrap() },
    ];
    SimulationSetup {
        queue: MainQueue::Idle(IdleQueue::new(&log, usize::MAX)),
        supply: JobSupply::from_list(jobs, &curves, SampleWorth::NodeSecond).unwrap(),
        costs: RescaleCosts { up_secs: 6.0, down_secs: 4.0, start_secs: 6.0 },
        accounting: ChangeAccounting::Pause,
        warm_secs: 0.0,
        checkpoints: CheckpointCosts { save_secs: 1.0, interval_secs: 600.0, grace_secs: 2.0 },
        leave_secs: 5.0,
        save_shared: 0.0,
        noise: 0.02,
        seed: 1,
        most_secs: None,
        timeline_nodes: 8,
    }
}

fn job(name: &str, user: &str, curve: &str, at: i64, samples: f64) -> WorkloadJob {
    WorkloadJob {
        name: name.to_owned(),
        submit_secs: at,
        samples,
        min_nodes: 1,
        max_nodes: if curve == "one" { 1 } else { 8 },
        curve: curve.to_owned(),
        weight: 1.0,
        user: Some(user.to_owned()),
    }
}

fn simulate(setup: &SimulationSetup, policy: &str, objective: PlanningObjective) -> PolicyScore {
    let mut config = Config::default();
    config.planner.objective = objective;
    let policy: PolicyName = policy.parse().unwrap();
    run_simulation(setup, policy.build_policy(&config), &mut |_| {})
}

/// Node-seconds of each user, whose name is the part of a job's name before the dash.
fn by_user(score: &PolicyScore) -> BTreeMap<&str, f64> {
    let mut node_secs: BTreeMap<&str, f64> = BTreeMap::new();
    for job in &score.jobs {
        *node_secs.entry(job.name.split('-').next().unwrap_or("")).or_default() += job.node_secs;
    }
    node_secs
}

#[test]
fn many_small_jobs_of_one_user_do_not_starve_the_large_one_of_another() {
    let small = (0..20).map(|n| job(&format!("alice-{n}"), "alice", "one", 0, 1e9));
    let jobs: Vec<WorkloadJob> = small.chain([job("bob-0", "bob", "wide", 0, 1e9)]).collect();
    let setup = setup(&jobs, 3600);
    for policy in ["infill", "infill-known"] {
        let score = simulate(&setup, policy, PlanningObjective::Completion);
        let node_secs = by_user(&score);
        let share = node_secs["bob"] / (node_secs["alice"] + node_secs["bob"]);
        assert!((0.45..=0.55).contains(&share), "{policy}: {node_secs:?}");
    }
}

#[test]
fn short_jobs_end_before_long_ones() {
    // Eight long ones come first, then a short one every two minutes.
    let long = (0..8).map(|n| job(&format!("long-{n}"), "alice", "wide", 0, 1e6));
    let short = (0..20).map(|n| job(&format!("short-{n}"), "alice", "wide", 600 + 120 * n, 9000.0));
    let setup = setup(&long.chain(short).collect::<Vec<_>>(), 10_000);
    let jct = |objective| {
        let score = simulate(&setup, "infill-known", objective);
        let short = score.jobs.iter().filter(|j| j.name.starts_with("short"));
        let times = short.map(|j| j.ended_at.unwrap_or(10_000.0) - j.submitted_at as f64);
        times.sum::<f64>() / 20.0
    };
    let soon = jct(PlanningObjective::Completion);
    let most = jct(PlanningObjective::Throughput);
    assert!(soon < 0.9 * most, "{soon} {most}");
}
