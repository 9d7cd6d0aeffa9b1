//! Complete simulations of small clusters.

use super::job::{ChangeAccounting, ChangeCause, CheckpointCosts, SimJob};
use super::queue::{IdleQueue, MainQueue, NodeIx};
use super::supply::{JobSupply, SampleWorth};
use super::*;
use infill_model::{
    JobId, NodeName, RescaleCosts, ScalingCurve,
    config::Config,
    trace::{IdleInterval, IdleLog, NamedCurve},
};

const COSTS: RescaleCosts = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 };

pub fn setup(intervals: &[(i64, i64, &str)], jobs: u32) -> SimulationSetup {
    let end = intervals.iter().map(|(_, end, _)| *end).max().unwrap_or(0);
    let intervals = intervals.iter().map(|(start, end, node)| IdleInterval {
        start: *start,
        end: *end,
        node: NodeName::new(node),
    });
    let log = IdleLog { intervals: intervals.collect(), start: 0, end };
    let curve = NamedCurve { name: "linear".to_owned(), curve: ScalingCurve::parse("1:10,64:640").unwrap() };
    SimulationSetup {
        queue: MainQueue::Idle(IdleQueue::new(&log, usize::MAX)),
        supply: JobSupply::endless_jobs(jobs, &[curve], (1, 64), SampleWorth::Sample).unwrap(),
        costs: COSTS,
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

pub fn simulate(setup: &SimulationSetup, policy: &str) -> PolicyScore {
    let policy: PolicyName = policy.parse().unwrap();
    run_simulation(setup, policy.build_policy(&Config::default()), &mut |_| {})
}

#[test]
fn one_job_on_two_nodes_loses_one() {
    // The job starts at 0 on both nodes, loses one at 1000 and pauses, and has the other up to 2000.
    let setup = setup(&[(0, 2000, "n1"), (0, 1000, "n2")], 1);
    let bound = simulate(&setup, "bound");
    assert_eq!(bound.samples, 2000.0 * 10.0 + 1000.0 * 10.0);
    for policy in ["freetrain@120", "infill-known", "equal-share", "fcfs-max"] {
        let outcome = simulate(&setup, policy);
        // A policy with a lead may lose the lead's node, and then starts again.
        let pauses = [(982.0 * 20.0 + 988.0 * 10.0), (982.0 * 20.0 + 982.0 * 10.0)];
        assert!(pauses.contains(&outcome.samples), "{policy}: {}", outcome.samples);
        assert_eq!(outcome.loss.rescale, 18.0 * 20.0, "{policy}");
        assert!([120.0, 180.0].contains(&outcome.loss.preemption), "{policy}");
        assert_eq!((outcome.refused_plans, outcome.preempted.unforeseen), (0, 1), "{policy}");
    }
}

#[test]
fn the_administrators_limits_hold_in_simulations() {
    let setup = setup(&[(0, 2000, "n1"), (0, 2000, "n2"), (0, 2000, "n3"), (0, 2000, "n4")], 3);
    let mut config = Config::default();
    let held = |config: &Config| {
        let outcome = run_simulation(&setup, PolicyName::InfillKnown.build_policy(config), &mut |_| {});
        assert_eq!(outcome.refused_plans, 0, "{:?}", config.safety);
        (outcome.held_node_secs, outcome.jobs.iter().filter(|job| job.node_secs > 0.0).count())
    };
    assert_eq!(held(&config), (8000.0, 3));
    config.safety.max_jobs = 1;
    assert_eq!(held(&config), (8000.0, 1));
    // They have one owner.
    config.safety.max_nodes_a_user = 2;
    assert_eq!(held(&config), (4000.0, 1));
    config.safety.nodes = "n[1,9]".to_owned();
    assert_eq!(held(&config), (2000.0, 1));
}

#[test]
fn newcomers_warm_up_on_their_own_nodes_while_the_others_train() {
    let mut setup = setup(&[(0, 2000, "n1"), (500, 1000, "n2"), (600, 610, "n3")], 1);
    setup.costs = RescaleCosts { up_secs: 3.0, down_secs: 2.0, start_secs: 18.0 };
    setup.warm_secs = 20.0;
    // The job starts at 0. n2 comes at 500, is warm at 520, and is lost at 1000. n3 leaves after ten seconds
    // and costs the others nothing.
    let samples = (520.0 - 18.0) * 10.0 + (1000.0 - 523.0) * 20.0 + (2000.0 - 1002.0) * 10.0;
    let outcome = simulate(&setup, "fcfs-max");
    assert_eq!(outcome.samples, samples);
    assert_eq!((outcome.loss.rescale, outcome.loss.preemption), (18.0 * 10.0 + 3.0 * 20.0, 2.0 * 10.0));
    assert_eq!(outcome.rescales, 2, "n3 never was a member");
}

#[test]
fn a_lead_that_is_lost_comes_back_while_the_others_train() {
    let costs = RescaleCosts { up_secs: 3.0, down_secs: 2.0, start_secs: 18.0 };
    let checkpoints = CheckpointCosts { save_secs: 1.0, interval_secs: 600.0, grace_secs: 2.0 };
    let done = |lost: NodeIx, warm_secs: f64| {
        let curve = std::sync::Arc::new(ScalingCurve::parse("1:10,64:640").unwrap());
        let mut job = SimJob::new(JobId(1), "x", curve, (1, 64), 0).with_warmup(warm_secs);
        let mut loss = Default::default();
        job.rescale_to(vec![0, 1, 2, 3], ChangeCause::Rescale, &costs, 0, &mut loss);
        job.advance_to(500.0, &checkpoints, &mut loss);
        job.lose_nodes(&[lost].into(), true, &costs, &checkpoints, 500, &mut loss);
        job.advance_to(1000.0, &checkpoints, &mut loss);
        job.done
    };
    let before = (500.0 - 18.0) * 40.0;
    assert_eq!(done(3, 10.0), before + (1000.0 - 502.0) * 30.0, "a wing");
    // One more node waits for the lead until 518; then all three continue.
    assert_eq!(done(0, 10.0), before + (518.0 - 502.0) * 20.0 + (1000.0 - 521.0) * 30.0, "the lead");
    assert_eq!(done(0, 0.0), before + (1000.0 - 518.0) * 30.0, "the lead of a job that restarts");
}

#[test]
fn without_time_to_save_the_work_since_the_last_checkpoint_is_lost() {
    let mut setup = setup(&[(0, 2000, "n1"), (0, 1000, "n2")], 1);
    let before = simulate(&setup, "fcfs-max");
    setup.checkpoints.save_secs = 10.0;
    let after = simulate(&setup, "fcfs-max");
    // The last checkpoint before 1000 was one interval after the start.
    let lost = before.samples - after.samples;
    assert!((lost - 400.0 * 20.0).abs() <= 20.0 * 20.0, "{lost}");
    assert!((after.loss.preemption - before.loss.preemption - lost).abs() < 1e-6);
    // The bound always has time to save.
    assert_eq!(simulate(&setup, "bound").samples, 2000.0 * 10.0 + 1000.0 * 10.0);
}

#[test]
fn checkpoints_keep_their_interval_whatever_other_events_happen() {
    let lost = |events: &[f64]| {
        let curve = std::sync::Arc::new(ScalingCurve::parse("1:10,64:640").unwrap());
        let mut job = SimJob::new(JobId(1), "x", curve, (1, 64), 0);
        let checkpoints = CheckpointCosts { save_secs: 10.0, interval_secs: 600.0, grace_secs: 2.0 };
        let mut loss = Default::default();
        job.rescale_to(vec![0, 1], ChangeCause::Rescale, &COSTS, 0, &mut loss);
        events.iter().chain(&[1000.0]).for_each(|at| job.advance_to(*at, &checkpoints, &mut loss));
        job.lose_nodes(&[1].into(), false, &COSTS, &checkpoints, 1000, &mut loss);
        loss.preemption
    };
    // The job runs from 18 on, and saves at 618.
    assert_eq!(lost(&[]), 382.0 * 20.0);
    for events in [[18.0, 400.0], [617.0, 618.0], [10.0, 999.0]] {
        assert!((lost(&events) - 382.0 * 20.0).abs() < 1e-6, "{events:?}");
    }
}

#[test]
fn malletrain_measures_nothing_below_the_smallest_size() {
    let names = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
    let intervals: Vec<(i64, i64, &str)> =
        names.iter().enumerate().map(|(i, name)| (0, if i < 6 { 10 } else { 100 }, *name)).collect();
    let mut setup = setup(&intervals, 1);
    let curve = NamedCurve { name: "linear".to_owned(), curve: ScalingCurve::parse("1:10,64:640").unwrap() };
    setup.supply = JobSupply::endless_jobs(1, &[curve], (4, 64), SampleWorth::Sample).unwrap();
    let outcome = simulate(&setup, "malletrain");
    assert_eq!(outcome.jobs.iter().map(|j| j.node_secs).sum::<f64>(), 4.0 * 10.0);
}

#[test]
fn the_published_accounting_charges_the_old_rate_and_no_start() {
    let mut setup = setup(&[(0, 2000, "n1"), (0, 1000, "n2")], 1);
    setup.accounting = ChangeAccounting::OldRate;
    let outcome = simulate(&setup, "freetrain");
    assert_eq!((outcome.loss.rescale, outcome.loss.preemption), (0.0, 12.0 * 20.0));
}

#[test]
fn the_same_setup_has_the_same_outcome_and_no_policy_beats_the_bound() {
    let many: Vec<(i64, i64, String)> = (0..12i64)
        .flat_map(|n| {
            (0..8i64).map(move |k| (k * 1500 + n * 70, k * 1500 + n * 70 + 300 + n * k * 10, format!("n{n}")))
        })
        .collect();
    let many: Vec<(i64, i64, &str)> = many.iter().map(|(s, e, n)| (*s, *e, n.as_str())).collect();
    let setup = setup(&many, 3);
    let bound = simulate(&setup, "bound");
    for policy in ["infill", "infill-known", "infill-oracle", "malletrain", "freetrain-linear"] {
        let outcome = simulate(&setup, policy);
        assert!(outcome.work > 0.0 && outcome.work < bound.work, "{policy}: {} {}", outcome.work, bound.work);
        assert_eq!(outcome.idle_node_secs, bound.idle_node_secs);
        assert_eq!(outcome, simulate(&setup, policy), "{policy}");
    }
}
