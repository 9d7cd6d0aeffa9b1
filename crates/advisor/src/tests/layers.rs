//! Programs with profiled layers: what is expected of them before they ran, and after one measurement.

use std::sync::Arc;

use crate::{JobAdvisor, JobInput, NodeCapacity};
use infill_model::{
    AllowedSizes, BatchMode, CollectiveOp, CollectiveRow, DeclaredPlan, ExecPlan, JobId, LayerProfile,
    ModelFacts, NodeType, ParallelStrategy, PlanNeeds, Profile, ProfileKey, ProfiledLayer, RateSource,
    RescaleCosts, SiteCollectives, SizePoint, Spread, TypeCollectives, UnixTime, config::AdvisorConfig,
};

const PROFILED: &str = "gpu:h100:4/cpu96";
const OTHER: &str = "gpu:v100:4/cpu64";
const NOW: UnixTime = UnixTime(1000);
const BATCH: u32 = 64;

/// Twelve layers of 10 ms for four samples.
fn layers() -> LayerProfile {
    let layer = ProfiledLayer {
        forward_secs: 0.0035,
        backward_secs: 0.0065,
        parameters: 10_000_000,
        activation_bytes: 8 << 20,
    };
    let device = "NVIDIA H100 80GB HBM3".to_owned();
    LayerProfile { version: 1, device, batch: 4, element_bytes: 4, layers: vec![layer; 12] }
}

fn site() -> SiteCollectives {
    let row = |mib: u64, ranks, nodes, secs| {
        let op = CollectiveOp::AllReduce;
        CollectiveRow { op, bytes: mib << 20, ranks, nodes, secs }
    };
    let rows = vec![row(1, 4, 1, 1e-4), row(64, 4, 1, 2e-3), row(1, 8, 2, 4e-4), row(64, 8, 2, 1.2e-2)];
    let mut site = SiteCollectives::default();
    site.import_table(TypeCollectives { node_type: "h100".to_owned(), imported_at: NOW, rows }).unwrap();
    site
}

/// Samples a second, by another formula than the estimate's. Computing takes a tenth more than the layers
/// alone did, and a part of the exchange hides behind it.
fn truth(nodes: u32) -> f64 {
    let n = f64::from(nodes);
    let exchange = if nodes == 1 { 0.012 } else { 0.09 * (1.0 - 0.25 / n) };
    f64::from(BATCH) / (0.528 / n + exchange)
}

fn key(plan: &str, node_type: &str) -> ProfileKey {
    ProfileKey {
        user: "alice".to_owned(),
        name: "lm".to_owned(),
        node_type: NodeType::new(node_type),
        exec_plan: ExecPlan(plan.to_owned()),
        batch: BatchMode::Global,
    }
}

fn input(layers: Option<LayerProfile>, plans: Vec<DeclaredPlan>) -> JobInput {
    let first = plans.first().map_or_else(|| ExecPlan::default().0, |plan| plan.name.0.clone());
    JobInput {
        job: JobId(1),
        key: key(&first, PROFILED),
        sizes: AllowedSizes::parse("1-8").unwrap(),
        plans,
        model: Some(ModelFacts { global_batch: Some(BATCH), ..ModelFacts::from_params(120.0) }),
        layers: layers.map(Arc::new),
        gpus_per_node: Some(4),
        declared_curve: None,
        running_nodes: Some(1),
        costs: RescaleCosts { up_secs: 5.0, down_secs: 5.0, start_secs: 8.0 },
        swap_secs: None,
    }
}

fn plan(name: &str, strategy: ParallelStrategy) -> DeclaredPlan {
    DeclaredPlan {
        name: ExecPlan(name.to_owned()),
        sizes: None,
        node_types: Vec::new(),
        shards: strategy.divides_model(),
        strategy: Some(strategy),
        needs: PlanNeeds::default(),
    }
}

fn run_round(advisor: &mut JobAdvisor, input: &JobInput) {
    let capacity = NodeCapacity::from_types([PROFILED, OTHER].map(|t| (NodeType::new(t), 8)));
    advisor.run_round(std::slice::from_ref(input), capacity, false, NOW);
}

/// An advisor with one measurement, on one node.
fn measured_once(input: &JobInput) -> JobAdvisor {
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    let point = SizePoint {
        nodes: 1,
        rate: truth(1),
        error: 0.01,
        secs: 60.0,
        step_samples: Some(f64::from(BATCH)),
        hosts: None,
        spread: Spread::Near,
        over_hosts: Spread::Near,
        at: NOW,
    };
    let profile = Profile { points: vec![point], updated_at: NOW, ..Profile::new(input.key.clone()) };
    assert!(advisor.load_profiles(vec![profile], NOW).is_empty());
    advisor.set_collectives(site());
    advisor
}

#[test]
fn a_profile_of_layers_predicts_every_size_before_anything_ran() {
    let input = input(Some(layers()), Vec::new());
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    advisor.set_collectives(site());
    run_round(&mut advisor, &input);
    let at = |t: &str, n: u32| advisor.estimate_size(&input, None, &NodeType::new(t), n).unwrap();
    for nodes in 1..=8 {
        let estimate = at(PROFILED, nodes);
        assert!((estimate.rate / truth(nodes) - 1.0).abs() < 0.15, "{nodes}: {estimate:?}, {}", truth(nodes));
        let (low, high) = estimate.interval_90();
        assert!(low < truth(nodes) && truth(nodes) < high && estimate.error > 0.15, "{nodes}: {estimate:?}");
    }
    let profiled = at(PROFILED, 1);
    let other = at(OTHER, 1);
    assert!(other.error > 1.5 * profiled.error, "the speed of the other type is unknown: {other:?}");
    let rates = advisor.rate_curves(&input, &[NodeType::new(OTHER)]);
    assert!(rates.iter().any(|r| r.node_type == Some(NodeType::new(PROFILED)) && r.rate(8) > 0.0));
}

#[test]
fn an_estimate_still_helps_after_the_first_measurement() {
    let mean_error = |layers: Option<LayerProfile>| {
        let input = input(layers, Vec::new());
        let mut advisor = measured_once(&input);
        run_round(&mut advisor, &input);
        (2..=8)
            .map(|n: u32| {
                let estimate = advisor.estimate_size(&input, None, &NodeType::new(PROFILED), n).unwrap();
                (estimate.rate / truth(n) - 1.0).abs()
            })
            .sum::<f64>()
            / 7.0
    };
    let with = mean_error(Some(layers()));
    let without = mean_error(None);
    assert!(with < 0.12 && with < 0.3 * without, "errors: {with} with a profile, {without} without");
}

#[test]
fn each_plan_is_estimated_and_the_model_of_all_plans_weighs_that() {
    let plain = ParallelStrategy::default();
    let plans = vec![plan("ddp", plain), plan("tp4", ParallelStrategy { tp: 4, ..plain })];
    let input = input(Some(layers()), plans);
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    advisor.set_collectives(site());
    run_round(&mut advisor, &input);
    let offers = advisor.plan_offers(&input, 2);
    assert_eq!(offers.len(), 2);
    for offer in &offers {
        assert_eq!(offer.source, Some(RateSource::Estimated), "{offer:?}");
        assert!(!offer.is_measured && offer.rate.is_ok());
    }
    // Exchanging activations costs more than exchanging gradients once.
    assert_eq!(offers[0].plan.0, "ddp");
    let of_tp4 = |advisor: &JobAdvisor, layers: &JobInput| {
        advisor.estimate_size(layers, Some(&layers.plans[1]), &NodeType::new(PROFILED), 2).unwrap()
    };
    let estimated = of_tp4(&advisor, &input);
    let mut once = measured_once(&input);
    run_round(&mut once, &input);
    let bare = JobInput { layers: None, ..input.clone() };
    let mut alone = measured_once(&bare);
    run_round(&mut alone, &bare);
    let both = of_tp4(&once, &input);
    let terms = of_tp4(&alone, &bare);
    let difference = |a: f64, b: f64| (a / b).ln().abs();
    assert!(
        difference(both.rate, estimated.rate) < difference(terms.rate, estimated.rate),
        "{both:?}, {terms:?}"
    );
    assert!(both.error <= terms.error, "{both:?}, {terms:?}");
}

#[test]
fn collectives_without_a_table_are_not_estimated() {
    let input = input(Some(layers()), Vec::new());
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    run_round(&mut advisor, &input);
    let one = JobInput { gpus_per_node: Some(1), key: key("default", "gpu:h100:1/cpu24"), ..input.clone() };
    assert!(
        advisor.rate_curves(&input, &[]).is_empty(),
        "four GPUs exchange gradients, and how fast is unknown"
    );
    run_round(&mut advisor, &one);
    let estimate = advisor.estimate_size(&one, None, &one.key.node_type, 1).unwrap();
    assert!((estimate.rate - 4.0 / 0.12).abs() < 1e-6, "one GPU needs no exchange: {estimate:?}");
}
