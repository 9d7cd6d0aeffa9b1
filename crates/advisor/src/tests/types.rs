//! Jobs on types of GPUs where they never ran, without execution plans.

use crate::{JobAdvisor, JobInput, NodeCapacity, PredictedRate, SizeEstimate};
use infill_model::{
    AllowedSizes, BatchMode, ExecPlan, JobId, NodeType, Profile, ProfileKey, RescaleCosts, SizePoint, Spread,
    UnixTime, config::AdvisorConfig,
};

const OLD: &str = "gpu:v100:4/cpu64";
const NEW: &str = "gpu:h100:4/cpu96";
const NOW: UnixTime = UnixTime(1000);

fn key(user: &str, name: &str, node_type: &str) -> ProfileKey {
    ProfileKey {
        user: user.to_owned(),
        name: name.to_owned(),
        node_type: NodeType::new(node_type),
        exec_plan: ExecPlan::default(),
        batch: BatchMode::Auto,
    }
}

/// Samples a second of a program that makes `level` on one old node. New ones are three times as fast, but
/// lose that with more nodes, because the network is the same.
fn rate(level: f64, node_type: &str, nodes: u32) -> f64 {
    let n = f64::from(nodes);
    let compute = if node_type == NEW { 1.0 / 3.0 } else { 1.0 };
    level / (compute / n + 0.04 * (n - 1.0) / n)
}

fn profile(key: ProfileKey, sizes: &[u32], level: f64) -> Profile {
    let points = sizes.iter().map(|nodes| SizePoint {
        nodes: *nodes,
        rate: rate(level, key.node_type.as_str(), *nodes),
        error: 0.01,
        secs: 60.0,
        step_samples: None,
        hosts: None,
        spread: Spread::Near,
        over_hosts: Spread::Near,
        at: NOW,
    });
    Profile { points: points.collect(), updated_at: NOW, ..Profile::new(key.clone()) }
}

fn input(name: &str) -> JobInput {
    JobInput {
        job: JobId(1),
        key: key("alice", name, OLD),
        sizes: AllowedSizes::parse("1-8").unwrap(),
        plans: Vec::new(),
        model: None,
        layers: None,
        gpus_per_node: Some(4),
        declared_curve: None,
        running_nodes: Some(1),
        costs: RescaleCosts { up_secs: 5.0, down_secs: 5.0, start_secs: 8.0 },
        swap_secs: None,
    }
}

fn advisor(profiles: Vec<Profile>) -> JobAdvisor {
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    assert!(advisor.load_profiles(profiles, NOW).is_empty());
    advisor
}

fn run_round(advisor: &mut JobAdvisor, input: &JobInput) {
    let capacity = NodeCapacity::from_types([OLD, NEW].map(|t| (NodeType::new(t), 8)));
    advisor.run_round(std::slice::from_ref(input), capacity, false, NOW);
}

fn estimate_at(advisor: &JobAdvisor, input: &JobInput, node_type: &str, nodes: u32) -> Option<SizeEstimate> {
    advisor.estimate_size(input, None, &NodeType::new(node_type), nodes)
}

/// Other users' programs on both types, at several sizes.
fn profiles_of_others(factor: f64) -> Vec<Profile> {
    let programs =
        [("bob", "vit", 70.0), ("carol", "gpt", 3.0), ("dave", "unet", 900.0), ("erin", "moe", 12.0)];
    let both = programs.iter().flat_map(|(user, name, level)| {
        [OLD, NEW].map(|t| profile(key(user, name, t), &[1, 2, 4, 8], level * factor))
    });
    both.collect()
}

#[test]
fn other_programs_on_two_types_predict_the_type_and_the_size() {
    let own = || profile(key("alice", "lm", OLD), &[1, 2, 4, 8], 20.0);
    let input = input("lm");
    let mut alone = advisor(vec![own()]);
    let mut among = advisor(profiles_of_others(1.0).into_iter().chain([own()]).collect());
    run_round(&mut alone, &input);
    run_round(&mut among, &input);
    for nodes in [1, 2, 4, 8] {
        let truth = rate(20.0, NEW, nodes);
        let estimate = estimate_at(&among, &input, NEW, nodes).unwrap();
        assert!((estimate.rate / truth - 1.0).abs() < 0.2, "{nodes}: {estimate:?} of {truth}");
        let (low, high) = estimate.interval_90();
        assert!(low < truth && truth < high, "{nodes}: {estimate:?} of {truth}");
        let strange = estimate_at(&alone, &input, NEW, nodes).unwrap();
        assert!(strange.error > 1.3 * estimate.error, "{nodes}: {strange:?}, {estimate:?}");
        assert!((estimate.rate / truth).ln().abs() < 0.5 * (strange.rate / truth).ln().abs(), "{strange:?}");
        // Measured rates count where there are any.
        let measured = estimate_at(&among, &input, OLD, nodes).unwrap();
        assert!((measured.rate / rate(20.0, OLD, nodes) - 1.0).abs() < 0.03, "{measured:?}");
    }
    let rates = among.rate_curves(&input, &[NodeType::new(NEW)]);
    let on_new = rates.iter().find(|r| r.node_type == Some(NodeType::new(NEW))).unwrap();
    assert!((on_new.rate(2) / rate(20.0, NEW, 2) - 1.0).abs() < 0.2, "the planner counts on it");
}

#[test]
fn predictions_reveal_neither_names_nor_rates_of_others() {
    let input = input("lm");
    let predictions = |others: Vec<Profile>| {
        let own = profile(key("alice", "lm", OLD), &[1, 4], 20.0);
        let mut advisor = advisor(others.into_iter().chain([own]).collect());
        run_round(&mut advisor, &input);
        [1, 2, 4, 8].map(|n| estimate_at(&advisor, &input, NEW, n).unwrap())
    };
    let renamed = |mut profile: Profile| {
        // The order stays. Among others' programs there are now names that begin like the job's own.
        profile.key.name = format!("lm-{}", profile.key.name);
        profile
    };
    let plain = predictions(profiles_of_others(1.0));
    for others in [profiles_of_others(1000.0), profiles_of_others(1.0).into_iter().map(renamed).collect()] {
        for (a, b) in plain.iter().zip(predictions(others)) {
            assert!((a.rate / b.rate - 1.0).abs() < 1e-6 && (a.error - b.error).abs() < 1e-6, "{a:?}, {b:?}");
        }
    }
}

/// Estimates of `lm` that promise `factor` times the true rate.
fn estimates(factor: f64) -> Vec<PredictedRate> {
    let all = [OLD, NEW].into_iter().flat_map(|t| [1, 2, 4, 8].map(|n| (t, n)));
    all.map(|(t, nodes)| PredictedRate {
        exec_plan: ExecPlan::default(),
        node_type: NodeType::new(t),
        nodes,
        rate: factor * rate(20.0, t, nodes),
    })
    .collect()
}

#[test]
fn estimates_are_believed_with_uncertainty_at_first_and_then_corrected_by_measurements() {
    let input = input("lm");
    let mut new = advisor(Vec::new());
    run_round(&mut new, &input);
    assert_eq!(estimate_at(&new, &input, NEW, 2), None, "nothing is known");
    assert!(new.rate_curves(&input, &[]).is_empty());
    new.set_estimates(&input.key, estimates(1.25));
    run_round(&mut new, &input);
    let hoped = estimate_at(&new, &input, NEW, 4).unwrap();
    assert!((hoped.rate / rate(20.0, NEW, 4) - 1.25).abs() < 1e-6 && hoped.error > 0.2, "{hoped:?}");
    let counted = new.rate_curves(&input, &[NodeType::new(NEW)]);
    let on_new = counted.iter().find(|r| r.node_type == Some(NodeType::new(NEW))).unwrap();
    assert!(on_new.rate(4) < 0.9 * hoped.rate, "it never ran, so that less is counted");

    let measured = profile(key("alice", "lm", OLD), &[1], 20.0);
    for unit in [1.0, 1000.0] {
        let mut advisor = advisor(vec![measured.clone()]);
        advisor.set_estimates(&input.key, estimates(1.25 * unit));
        run_round(&mut advisor, &input);
        for (t, n) in [(OLD, 2), (OLD, 8), (NEW, 4)] {
            let estimate = estimate_at(&advisor, &input, t, n).unwrap();
            let error = (estimate.rate / rate(20.0, t, n) - 1.0).abs();
            assert!(error < 0.2, "{n} of {t}, in units of {unit}: {estimate:?}");
            assert!(
                estimate.error < estimate_at(&new, &input, t, n).unwrap().error,
                "{n} of {t}: {estimate:?}"
            );
        }
        let here = estimate_at(&advisor, &input, OLD, 1).unwrap();
        assert!((here.rate / 20.0 - 1.0).abs() < 0.02 && here.error < 0.02, "it was measured: {here:?}");
    }
}

#[test]
fn a_site_with_one_type_uses_each_programs_own_measurements() {
    let input = input("lm");
    let mut advisor = advisor(vec![profile(key("alice", "lm", OLD), &[1, 2], 20.0)]);
    let fitted = advisor.fitted_curve(&input, &NodeType::new(OLD)).unwrap();
    let capacity = NodeCapacity::from_types([(NodeType::new(OLD), 8)]);
    advisor.run_round(std::slice::from_ref(&input), capacity, false, NOW);
    for nodes in 1..=8 {
        use crate::ScalingModel as _;
        assert_eq!(estimate_at(&advisor, &input, OLD, nodes), Some(fitted.estimate_at(nodes)));
    }
}
