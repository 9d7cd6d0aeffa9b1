//! Simulations of small closed machines.

use std::collections::BTreeMap;

use super::{ClosedOutcome, ClosedPolicyName, ClosedSetup, SpeedTable, run_closed};
use infill_model::{ClosedJob, ExecPlan, NodeType, SpeedRow};

/// Parses lines of `MODEL TYPE PLAN GPUS+GPUS SECS`: seconds of a step on these numbers of GPUs per node.
fn rows(lines: &str) -> Vec<SpeedRow> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let gpus_by_node = words[3].split('+').map(|g| g.parse().unwrap()).collect();
        SpeedRow {
            model: words[0].to_owned(),
            node_type: Some(NodeType::new(words[1])),
            plan: ExecPlan(words[2].to_owned()),
            parallelism: None,
            batch: 10.0,
            gpus_by_node,
            step_secs: words[4].parse().unwrap(),
        }
    };
    lines.trim().lines().map(row).collect()
}

/// Parses lines of `NAME SUBMITTED MODEL GPUS PLAN STEPS`.
fn jobs(lines: &str) -> Vec<ClosedJob> {
    let job = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        ClosedJob {
            name: words[0].to_owned(),
            submit_secs: words[1].parse().unwrap(),
            model: words[2].to_owned(),
            gpus: words[3].parse().unwrap(),
            node_type: None,
            plan: Some(ExecPlan(words[4].to_owned())),
            steps: words[5].parse().unwrap(),
        }
    };
    lines.trim().lines().map(job).collect()
}

fn setup(machine: &str, speeds: &str, workload: &str) -> ClosedSetup {
    let machine: super::ClosedMachine = machine.parse().unwrap();
    ClosedSetup {
        speeds: SpeedTable::new(rows(speeds), &machine),
        machine,
        jobs: jobs(workload),
        config: infill_model::config::Config::default(),
        facts: BTreeMap::new(),
        estimates: Vec::new(),
        restart_secs: 10.0,
        work: 1.0,
        speed_up: 1.0,
        knows_lengths: true,
        most_secs: None,
        noise: 0.02,
        seed: 1,
    }
}

fn outcome(setup: &ClosedSetup, policy: ClosedPolicyName) -> ClosedOutcome {
    run_closed(setup, policy.build_policy(setup), &mut |_| ())
}

/// When each job started and ended, in whole seconds, by name.
fn lives(outcome: &ClosedOutcome) -> String {
    let mut jobs: Vec<_> = outcome.jobs.iter().collect();
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs.iter().map(|j| format!("{} {:.0}-{:.0}", j.name, j.started, j.ended)).collect::<Vec<_>>().join(", ")
}

/// A model that is twice as fast on two GPUs of one node, and somewhat faster with the other plan.
const ONE_MODEL: &str = "m a p 1 1.0\nm a p 2 0.5\nm a q 1 0.8\nm a q 2 0.4\nm a p 1+1 0.9";

#[test]
fn static_policies_run_jobs_as_they_were_submitted() {
    let workload = "a 0 m 2 p 100\nb 5 m 2 p 10\nc 6 m 1 p 10";
    let setup = setup("1x3:a", ONE_MODEL, workload);
    // 10 s to start, then 50 s; b does not fit beside a, c does.
    assert_eq!(lives(&outcome(&setup, ClosedPolicyName::Static)), "a 0-60, b 60-75, c 6-26");
    // No job overtakes b, and all have the better plan.
    let in_order = outcome(&setup, ClosedPolicyName::Fcfs);
    assert_eq!(lives(&in_order), "a 0-50, b 50-64, c 50-68");
    assert_eq!((in_order.restarts, in_order.samples), (0, 1200.0));
    assert!((in_order.jct_mean() - (50.0 + 59.0 + 62.0) / 3.0).abs() < 1e-6);
    assert_eq!((in_order.jct_at(0.5), in_order.jct_at(0.99)), (59.0, 62.0));
}

#[test]
fn a_model_runs_only_where_it_was_measured() {
    // Two jobs of one GPU leave one free on each node: two GPUs on two nodes were measured at 0.9 s.
    let workload = "a 0 m 1 p 1000\nb 0 m 1 p 1000\nc 1 m 2 p 10";
    let spread = setup("2x2:a", ONE_MODEL, workload);
    assert!(outcome(&spread, ClosedPolicyName::Static).jobs.iter().any(|j| j.name == "c"));
    let close_only =
        setup("2x2:a", "m a p 1 1.0\nm a p 2 0.5", "a 0 m 2 p 100\nb 0 m 2 p 100\nc 0 m 2 p 100");
    for policy in ClosedPolicyName::ALL {
        let outcome = outcome(&close_only, policy);
        assert_eq!(outcome.jobs.len(), 3, "{policy}: {}", lives(&outcome));
    }
}

#[test]
fn all_policies_end_all_jobs_and_the_same_seed_has_the_same_outcome() {
    let speeds = "m a p 1 1.0\nm a p 2 0.55\nm a p 4 0.3\nm b p 1 0.5\nm b p 2 0.3\nn a p 1 9.0\nn a p 2 4.6\nn b p 2 1.0";
    let workload: String = (0..12)
        .map(|i| format!("j{i} {} {} {} p {}\n", i * 20, ["m", "n"][i % 2], 1 + i % 2, 30 + 40 * (i % 3)))
        .collect();
    let setup = setup("2x4:a,2x2:b", speeds, &workload);
    for policy in ClosedPolicyName::ALL {
        let first = outcome(&setup, policy);
        let second = outcome(&setup, policy);
        assert_eq!((first.jobs.len(), first.submitted), (12, 12), "{policy}");
        assert!(first.gpu_use > 0.0 && first.gpu_use <= 1.0, "{policy}: {}", first.gpu_use);
        assert_eq!(first, second, "{policy}");
    }
}

#[test]
fn infill_lets_short_jobs_pass_and_chooses_plans() {
    let workload = "long 0 m 2 p 4000\nshort 100 m 2 p 200\nother 101 m 2 p 200";
    let setup = setup("1x2:a", ONE_MODEL, workload);
    let ours = outcome(&setup, ClosedPolicyName::InfillKnown);
    let theirs = outcome(&setup, ClosedPolicyName::Static);
    assert!(ours.jct_mean() < 0.5 * theirs.jct_mean(), "{} against {}", lives(&ours), lives(&theirs));
    // 4,000 steps of 0.4 s with the better plan, and the others' 80 s each, and starts.
    assert!(ours.makespan_secs < 1600.0 + 160.0 + 6.0 * 10.0, "{}", lives(&ours));
}

#[test]
fn infill_uses_what_it_learned_from_earlier_jobs() {
    let speeds = "m a p 1 1.0\nm a p 2 0.5\nm a p 4 0.25\nn a p 1 1.0\nn a p 2 0.9\nn a p 4 0.8";
    let workload: String =
        (0..20).map(|i| format!("j{i} {} {} 2 p 300\n", i * 60, ["m", "n"][i % 2])).collect();
    let setup = setup("1x8:a", speeds, &workload);
    let known = outcome(&setup, ClosedPolicyName::InfillKnown).jct_mean();
    let learned = outcome(&setup, ClosedPolicyName::Infill).jct_mean();
    assert!(learned < 1.3 * known, "{learned} against {known}");
}

#[test]
fn a_simulation_ends_at_its_limit_and_when_no_job_can_run() {
    let mut setup = setup("1x2:a", ONE_MODEL, "a 0 m 2 q 100\nb 0 m 2 q 1000");
    setup.most_secs = Some(100.0);
    let outcome = outcome(&setup, ClosedPolicyName::Static);
    assert_eq!((lives(&outcome).as_str(), outcome.makespan_secs, outcome.submitted), ("a 0-50", 100.0, 2));
    // b makes steps of 0.4 s for 40 s.
    assert!((outcome.samples - 10.0 * (100.0 + 100.0)).abs() < 1e-6);
    assert!((outcome.gpu_use - 1.0).abs() < 1e-9);
}

#[test]
fn a_spread_job_is_relocated_when_that_is_possible_and_known_to_be_faster() {
    // Two GPUs on two nodes are slow. a and b leave one GPU free on each node, and end later.
    let speeds = "m a p 2 0.5\nm a p 1+1 2.0\nn a p 2 1.0";
    let workload = "a 0 n 2 p 200\nb 0 n 2 p 200\nc 1 m 2 p 2000";
    let setup = setup("2x3:a", speeds, workload);
    let known = outcome(&setup, ClosedPolicyName::InfillKnown);
    let ended =
        |outcome: &ClosedOutcome| outcome.jobs.iter().find(|job| job.name == "c").map(|job| job.ended);
    // 200 s with 2 s a step, a restart, and the rest with 0.5 s.
    assert!(ended(&known).is_some_and(|ended| ended < 1_400.0), "{}", lives(&known));
    assert_eq!(known.restarts, 1);
    // Without a measurement on one node, infill has no reason to move the job.
    let learned = outcome(&setup, ClosedPolicyName::Infill);
    assert_eq!((ended(&learned), learned.restarts), (Some(4_011.0), 0), "{}", lives(&learned));
}
