//! Programs whose layers were profiled: what is expected of them before they ran, and after they did once.

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

/// Samples a second by another formula than the estimate's: computing takes a tenth more than the layers
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
        declared: None,
        running: Some(1),
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

fn round(library: &mut JobAdvisor, input: &JobInput) {
    let room = NodeCapacity::from_types([PROFILED, OTHER].map(|t| (NodeType::new(t), 8)));
    library.run_round(std::slice::from_ref(input), room, false, NOW);
}

/// A library that knows one measurement, on one node.
fn measured_once(input: &JobInput) -> JobAdvisor {
    let mut library = JobAdvisor::new(AdvisorConfig::default());
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
    assert!(library.load_profiles(vec![profile], NOW).is_empty());
    library.set_collectives(site());
    library
}

#[test]
fn a_profile_of_layers_tells_of_every_size_before_anything_ran() {
    let input = input(Some(layers()), Vec::new());
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    library.set_collectives(site());
    round(&mut library, &input);
    let at = |t: &str, n: u32| library.estimate_size(&input, None, &NodeType::new(t), n).unwrap();
    for nodes in 1..=8 {
        let told = at(PROFILED, nodes);
        assert!((told.rate / truth(nodes) - 1.0).abs() < 0.15, "{nodes}: {told:?}, {}", truth(nodes));
        let (low, high) = told.interval_90();
        assert!(low < truth(nodes) && truth(nodes) < high && told.error > 0.15, "{nodes}: {told:?}");
    }
    let profiled = at(PROFILED, 1);
    let other = at(OTHER, 1);
    assert!(other.error > 1.5 * profiled.error, "nobody knows how fast the other type is: {other:?}");
    let rates = library.rate_curves(&input, &[NodeType::new(OTHER)]);
    assert!(rates.iter().any(|r| r.node_type == Some(NodeType::new(PROFILED)) && r.rate(8) > 0.0));
}

#[test]
fn an_estimate_is_better_than_nothing_after_the_first_measurement_too() {
    let wrong = |layers: Option<LayerProfile>| {
        let input = input(layers, Vec::new());
        let mut library = measured_once(&input);
        round(&mut library, &input);
        (2..=8)
            .map(|n: u32| {
                let told = library.estimate_size(&input, None, &NodeType::new(PROFILED), n).unwrap();
                (told.rate / truth(n) - 1.0).abs()
            })
            .sum::<f64>()
            / 7.0
    };
    let with = wrong(Some(layers()));
    let without = wrong(None);
    assert!(with < 0.12 && with < 0.3 * without, "{with} wrong with a profile, {without} without");
}

#[test]
fn each_plan_is_estimated_and_the_model_of_all_plans_weighs_that() {
    let plain = ParallelStrategy::default();
    let plans = vec![plan("ddp", plain), plan("tp4", ParallelStrategy { tp: 4, ..plain })];
    let input = input(Some(layers()), plans);
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    library.set_collectives(site());
    round(&mut library, &input);
    let offers = library.plan_offers(&input, 2);
    assert_eq!(offers.len(), 2);
    for offer in &offers {
        assert_eq!(offer.source, Some(RateSource::Estimated), "{offer:?}");
        assert!(!offer.is_measured && offer.rate.is_ok());
    }
    // Exchanging what layers pass on costs more than exchanging gradients once.
    assert_eq!(offers[0].plan.0, "ddp");
    let of = |library: &JobAdvisor, layers: &JobInput| {
        library.estimate_size(layers, Some(&layers.plans[1]), &NodeType::new(PROFILED), 2).unwrap()
    };
    let estimated = of(&library, &input);
    let mut once = measured_once(&input);
    round(&mut once, &input);
    let bare = JobInput { layers: None, ..input.clone() };
    let mut alone = measured_once(&bare);
    round(&mut alone, &bare);
    let both = of(&once, &input);
    let terms = of(&alone, &bare);
    let apart = |a: f64, b: f64| (a / b).ln().abs();
    assert!(apart(both.rate, estimated.rate) < apart(terms.rate, estimated.rate), "{both:?}, {terms:?}");
    assert!(both.error <= terms.error, "{both:?}, {terms:?}");
}

#[test]
fn what_no_table_tells_is_not_estimated_from_collectives() {
    let input = input(Some(layers()), Vec::new());
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    round(&mut library, &input);
    let one = JobInput { gpus_per_node: Some(1), key: key("default", "gpu:h100:1/cpu24"), ..input.clone() };
    assert!(
        library.rate_curves(&input, &[]).is_empty(),
        "four GPUs exchange gradients, and nobody knows how fast"
    );
    round(&mut library, &one);
    let told = library.estimate_size(&one, None, &one.key.node_type, 1).unwrap();
    assert!((told.rate - 4.0 / 0.12).abs() < 1e-6, "one GPU needs no exchange: {told:?}");
}
