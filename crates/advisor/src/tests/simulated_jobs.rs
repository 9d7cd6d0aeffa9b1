//! The advisor beside simulated jobs that report once a second.

use std::collections::BTreeMap;

use super::one_second;
use crate::ScalingModel as _;
use crate::{CrossingSlowdown, JobAdvisor, JobInput, NodeCapacity, ProgressOutcome};
use infill_model::{
    AllowedSizes, BatchMode, ExecPlan, GenerationStartup, JobId, LiveChange, LiveCosts, NodeName, NodeType,
    ProfileFilter, ProfileKey, ProgressReport, RescaleCosts, RescaleMode, ScalingCurve, UnixTime,
    config::AdvisorConfig,
};

const COSTS: RescaleCosts = RescaleCosts { up_secs: 2.0, down_secs: 2.0, start_secs: 2.0 };
const LIVE_COSTS: LiveCosts = LiveCosts { up_secs: 0.5, down_secs: 0.25 };

fn key(user: &str) -> ProfileKey {
    ProfileKey {
        user: user.to_owned(),
        name: "train".to_owned(),
        node_type: NodeType::new("cpu2"),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

/// A cluster of 8 nodes. It brings every job to the size that the advisor wants to try, and otherwise to the
/// fastest.
struct Simulation {
    advisor: JobAdvisor,
    clock: i64,
    truth: ScalingCurve,
    jobs: BTreeMap<JobId, (u64, u32)>,
}

impl Simulation {
    fn new(truth: &str, jobs: u32) -> Simulation {
        let jobs = (1..=jobs).map(|id| (JobId(id), (1, 8))).collect();
        Simulation {
            advisor: JobAdvisor::new(AdvisorConfig::default()),
            clock: 0,
            truth: ScalingCurve::parse(truth).unwrap(),
            jobs,
        }
    }

    fn input(&self, job: JobId, running: Option<u32>) -> JobInput {
        let sizes = AllowedSizes::parse("1-8").unwrap();
        JobInput {
            job,
            key: key("alice"),
            sizes,
            plans: Vec::new(),
            model: None,
            layers: None,
            gpus_per_node: None,
            declared_curve: None,
            running_nodes: running,
            costs: COSTS,
            swap_secs: None,
        }
    }

    fn report(&mut self, job: JobId, factor: f64, secs: f64) -> ProgressOutcome {
        let (generation, nodes) = self.jobs[&job];
        let samples = self.truth.rate(nodes) * factor * secs;
        let node = NodeName::new("n1");
        let report = one_second(generation, nodes, samples, &node);
        let progress = ProgressReport { secs, ..report };
        self.advisor.record_progress(job, &key("alice"), &progress, UnixTime(self.clock))
    }

    /// Simulates one second: all jobs report, then a round runs.
    fn run_second(&mut self, factor: f64) {
        self.clock += 1;
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            let _ = self.report(job, factor, 1.0);
        }
        let inputs: Vec<JobInput> =
            self.jobs.iter().map(|(job, (_, n))| self.input(*job, Some(*n))).collect();
        let capacity = NodeCapacity::from_one_type(key("").node_type, 8, 8);
        self.advisor.run_round(&inputs, capacity, true, UnixTime(self.clock));
        for (job, (generation, nodes)) in &mut self.jobs {
            let wanted = self.advisor.probe_size(*job).unwrap_or(8);
            if wanted != *nodes {
                *generation += 1;
                *nodes = wanted;
            }
        }
    }

    fn at(&self, nodes: u32) -> f64 {
        let input = self.input(JobId(1), None);
        self.advisor.fitted_curve(&input, &key("").node_type).unwrap().estimate_at(nodes).rate
    }
}

#[test]
fn one_job_tries_a_few_sizes_and_then_rests() {
    let mut simulation = Simulation::new("1:10,2:19,4:34,8:50", 1);
    (0..120).for_each(|_| simulation.run_second(1.0));
    let profile = simulation.advisor.profile(&key("alice")).unwrap().clone();
    assert!((2..=3).contains(&profile.probes) && profile.probe_secs <= 90.0, "{profile:?}");
    assert_eq!(profile.jobs, 1);
    for n in 1..=8 {
        assert!((simulation.at(n) / simulation.truth.rate(n) - 1.0).abs() < 0.1, "{n}: {}", simulation.at(n));
    }
    assert!(
        simulation.advisor.describe_job(JobId(1)).contains("no probe"),
        "{}",
        simulation.advisor.describe_job(JobId(1))
    );
    // The same job again: the advisor knows it, and tries nothing.
    simulation.jobs = BTreeMap::from([(JobId(2), (1, 8))]);
    (0..60).for_each(|_| simulation.run_second(1.0));
    assert_eq!(simulation.advisor.profile(&key("alice")).unwrap().probes, profile.probes);
}

#[test]
fn many_trials_of_one_script_share_their_probes() {
    let mut simulation = Simulation::new("1:10,2:19,4:34,8:50", 20);
    (0..200).for_each(|_| simulation.run_second(1.0));
    let profile = simulation.advisor.profile(&key("alice")).unwrap();
    assert!(profile.probes <= 3, "{profile:?}");
    assert!(profile.points.len() >= 3, "{profile:?}");
    assert_eq!(profile.jobs, 20);
}

#[test]
fn a_drift_is_followed_within_half_a_minute_of_measurements() {
    let mut simulation = Simulation::new("1:10,2:19,4:34,8:50", 1);
    (0..120).for_each(|_| simulation.run_second(1.0));
    let before = simulation.at(8);
    (0..30).for_each(|_| simulation.run_second(0.5));
    assert!((simulation.at(8) / before - 0.5).abs() < 0.025, "{} after {before}", simulation.at(8));
    // The sizes that were not measured since are assumed to have changed by the same factor, with some
    // uncertainty.
    assert!((simulation.at(2) / simulation.truth.rate(2) - 0.5).abs() < 0.1, "{}", simulation.at(2));
}

#[test]
fn a_stall_does_not_move_the_curve() {
    for slow_seconds in [0, 10] {
        let mut simulation = Simulation::new("1:10,2:19,4:34,8:50", 1);
        (0..120).for_each(|_| simulation.run_second(1.0));
        let before: Vec<f64> = (1..=8).map(|n| simulation.at(n)).collect();
        // One step that took ten seconds more, or ten seconds with next to no work.
        let _ = simulation.report(JobId(1), 0.1, 11.0);
        (0..slow_seconds).for_each(|_| simulation.run_second(0.02));
        (0..60).for_each(|_| simulation.run_second(1.0));
        for (n, old) in (1..=8).zip(before) {
            assert!(
                (simulation.at(n) / old - 1.0).abs() < 0.02,
                "{n} nodes: {} after {old}",
                simulation.at(n)
            );
        }
    }
}

#[test]
fn rescale_costs_are_told_apart_by_kind_and_split() {
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    let node = NodeName::new("n1");
    let mut clock = 0;
    let mut run = |generation, nodes, startup: GenerationStartup| {
        let base = one_second(generation, nodes, 20.0, &node);
        let first = ProgressReport { startup: Some(startup), ..base };
        let _ = advisor.record_progress(JobId(1), &key("alice"), &first, UnixTime(clock));
        for _ in 0..20 {
            clock += 1;
            let _ = advisor.record_progress(JobId(1), &key("alice"), &base, UnixTime(clock));
        }
    };
    let startup = |stop_secs: Option<f64>, start_secs| {
        let saved_secs = stop_secs.map(|s| s - 0.5);
        GenerationStartup { saved_secs, stop_secs, idle_secs: 0.25, start_secs, samples: 20.0, counts: true }
    };
    run(1, 4, startup(None, 6.0));
    run(2, 8, startup(Some(2.0), 4.0));
    run(3, 2, startup(Some(1.5), 3.0));
    let costs = advisor.profile(&key("alice")).unwrap().costs;
    // One second of each start was useful: its samples take one second at 20 samples a second.
    assert_eq!((costs.start.start_secs, costs.start.exit_secs), (5.25, 0.0));
    assert_eq!((costs.up.checkpoint_secs, costs.up.exit_secs, costs.up.start_secs), (1.5, 0.5, 3.25));
    assert_eq!((costs.down.total_secs(), costs.down.count), (3.75, 1));
    let believed = advisor.rescale_costs(&key("alice"), &(COSTS, LIVE_COSTS), RescaleMode::Restart);
    assert_eq!((believed.up_secs, believed.down_secs, believed.start_secs), (5.25, 3.75, 5.25));
    let change = LiveChange { from: 2, to: 1, secs: 0.125 };
    advisor.record_live_change(&key("alice"), &change, UnixTime(0));
    let alive = advisor.rescale_costs(&key("alice"), &(COSTS, LIVE_COSTS), RescaleMode::Live);
    assert_eq!((alive.up_secs, alive.down_secs, alive.start_secs), (0.125, 0.125, 5.25));
    assert_eq!(advisor.rescale_costs(&key("alice"), &(COSTS, LIVE_COSTS), RescaleMode::Restart), believed);
}

#[test]
fn similar_programs_help_and_other_users_only_if_allowed() {
    let mut simulation = Simulation::new("1:10,2:19,4:34,8:50", 1);
    (0..120).for_each(|_| simulation.run_second(1.0));
    let profile = simulation.advisor.profile(&key("alice")).unwrap().clone();
    let input = |user: &str, node_type: &str| {
        let key = ProfileKey { node_type: NodeType::new(node_type), ..key(user) };
        JobInput { key, ..simulation.input(JobId(9), None) }
    };
    let fitted = |advisor: &JobAdvisor, s: &JobInput| advisor.fitted_curve(s, &s.key.node_type);
    let other_type = fitted(&simulation.advisor, &input("alice", "gpu4")).unwrap();
    let own = simulation.advisor.fitted_curve(&input("alice", "cpu2"), &key("").node_type).unwrap();
    let own = own.estimate_at(8);
    let other = other_type.estimate_at(8);
    assert!(
        (other.rate / own.rate - 1.0).abs() < 0.2 && other.error > 2.0 * own.error,
        "{other:?} for {own:?}"
    );
    assert!(fitted(&simulation.advisor, &input("bob", "cpu2")).is_none());
    let mut open = JobAdvisor::new(AdvisorConfig { share_profiles: true, ..AdvisorConfig::default() });
    assert!(open.load_profiles(vec![profile], UnixTime(0)).is_empty());
    assert!(fitted(&open, &input("bob", "cpu2")).unwrap().estimate_at(4).error > 0.05);
    assert_eq!(open.last_profile_of("alice", ""), Some(&key("alice")));
    open.forget_profiles(&ProfileFilter { user: Some("alice".to_owned()), ..ProfileFilter::default() });
    assert!(fitted(&open, &input("bob", "cpu2")).is_none());
}

#[test]
fn a_declared_curve_is_scaled_to_the_measured_rate() {
    let mut simulation = Simulation::new("1:10,2:19,4:34,8:50", 1);
    (0..5).for_each(|_| simulation.run_second(1.0));
    let declared_curve = Some(ScalingCurve::parse("1:1,2:1.9,4:3.4,8:5").unwrap());
    let input = JobInput { declared_curve, ..simulation.input(JobId(1), None) };
    let rate_at_4 = |simulation: &Simulation| {
        simulation.advisor.fitted_curve(&input, &key("").node_type).unwrap().estimate_at(4).rate
    };
    assert!((rate_at_4(&simulation) / 3.4 - 1.0).abs() < 0.05);
    (0..12).for_each(|_| simulation.run_second(1.0));
    assert!((rate_at_4(&simulation) / 34.0 - 1.0).abs() < 0.05, "{}", rate_at_4(&simulation));
}

#[test]
fn changes_are_stored_once_and_again_after_a_failure() {
    let mut simulation = Simulation::new("1:10,8:50", 1);
    (0..20).for_each(|_| simulation.run_second(1.0));
    let unsaved = simulation.advisor.take_unsaved();
    assert_eq!(unsaved.len(), 1);
    assert!(simulation.advisor.take_unsaved().is_empty());
    simulation.advisor.mark_unsaved(&unsaved);
    assert_eq!(simulation.advisor.take_unsaved().len(), 1);
}

#[test]
fn the_cost_of_crossing_hosts_is_learned_where_parts_of_nodes_are_lent() {
    let learned = |node: &str, exec_plan: &str| {
        let mut advisor = JobAdvisor::new(AdvisorConfig::default());
        let node = NodeName::new(node);
        let mut clock = 0;
        let key = ProfileKey { exec_plan: ExecPlan(exec_plan.to_owned()), ..key("alice") };
        for (generation, hosts, samples) in [(1, 1, 20.0), (2, 2, 10.0)] {
            for _ in 0..90 {
                clock += 1;
                let report = one_second(generation, 2, samples, &node);
                let progress = ProgressReport { hosts, ..report };
                let _ = advisor.record_progress(JobId(1), &key, &progress, UnixTime(clock));
            }
        }
        (advisor.crossing_slowdown(&key), advisor.profile(&key).unwrap().points[0])
    };
    let (slowdown, point) = learned("n1:0", "default");
    assert!((1.8..2.05).contains(&slowdown.hosts) && slowdown.switches == 1.0, "{slowdown:?}");
    assert!((19.5..20.5).contains(&point.rate), "the rate is the one on one host: {point:?}");
    assert_eq!(learned("n1", "default").0, CrossingSlowdown::NONE, "whole nodes have hosts of their own");
    assert_eq!(
        learned("n1:0", "pipe").0,
        CrossingSlowdown::NONE,
        "the model of execution plans knows about hosts"
    );
}
