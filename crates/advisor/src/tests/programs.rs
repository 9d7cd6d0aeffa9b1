//! Programs that tell what their plans do: what was measured of one plan or type tells of the others.

use crate::{JobAdvisor, JobInput, NodeCapacity, PlanObstacle};
use infill_model::{
    AllowedSizes, BatchMode, DeclaredPlan, ExecPlan, Gap, GapSet, JobId, ModelFacts, NodeName, NodeType,
    ParallelStrategy, PlanNeeds, ProfileKey, ProgressReport, RateSource, RescaleCosts, UnixTime, WindowEnd,
    config::AdvisorConfig, malleable::RateCurve,
};

const COSTS: RescaleCosts = RescaleCosts { up_secs: 5.0, down_secs: 5.0, start_secs: 8.0 };
const OLD: &str = "gpu:old-16gb:4/cpu64";
const NEW: &str = "gpu:new-80gb:4/cpu64";
const GPUS: u32 = 4;
const BATCH: f64 = 64.0;

fn key(user: &str, plan: &str, node_type: &str) -> ProfileKey {
    ProfileKey {
        user: user.to_owned(),
        name: "train".to_owned(),
        node_type: NodeType::new(node_type),
        exec_plan: ExecPlan(plan.to_owned()),
        batch: BatchMode::Global,
    }
}

fn plan(name: &str, strategy: ParallelStrategy) -> DeclaredPlan {
    let sizes = None;
    let node_types = Vec::new();
    let shards = strategy.zero > 0 || strategy.divides_model();
    let name = ExecPlan(name.to_owned());
    let strategy = Some(strategy);
    let needs = PlanNeeds::default();
    DeclaredPlan { name, sizes, node_types, shards, strategy, needs }
}

fn plans() -> Vec<DeclaredPlan> {
    let plain = ParallelStrategy::default();
    vec![
        plan("ddp", plain),
        plan("gc", ParallelStrategy { checkpointing: true, ..plain }),
        plan("zero", ParallelStrategy { zero: 2, ..plain }),
        plan("offload", ParallelStrategy { zero: 2, offload: true, ..plain }),
    ]
}

/// GPT-2 of 355 million parameters.
fn model() -> ModelFacts {
    ModelFacts {
        layers: Some(24),
        hidden: Some(1024),
        sequence: Some(1024),
        global_batch: Some(BATCH as u32),
        ..ModelFacts::from_params(355.0)
    }
}

fn input(plans: Vec<DeclaredPlan>, model: Option<ModelFacts>) -> JobInput {
    JobInput {
        job: JobId(1),
        key: key("alice", "ddp", OLD),
        sizes: AllowedSizes::parse("1-8").unwrap(),
        plans,
        model,
        layers: None,
        gpus_per_node: Some(GPUS),
        declared: None,
        running: Some(1),
        costs: COSTS,
        swap_secs: None,
    }
}

/// Seconds of a step on so many nodes: another formula than the advisor's.
fn secs(plan: &str, node_type: &str, nodes: u32) -> f64 {
    let gpus = f64::from(nodes * GPUS);
    let compute = if plan == "gc" { 10.5 } else { 8.0 } / gpus;
    let network = if nodes > 1 { 0.16 } else { 0.05 } * (1.0 - 1.0 / gpus);
    let optimize = match plan {
        "zero" => 0.05 / gpus,
        "offload" => 0.12 + 0.3 / gpus,
        _ => 0.03,
    };
    compute * if node_type == NEW { 0.5 } else { 1.0 } + network + optimize
}

/// Lets a library see a program run for a while.
fn see(library: &mut JobAdvisor, key: &ProfileKey, nodes: u32, from: i64) {
    let node = NodeName::new("n1");
    let samples = BATCH / secs(&key.exec_plan.0, key.node_type.as_str(), nodes);
    let generation = from as u64;
    let hosts = nodes;
    let secs = 1.0;
    let crosses = false;
    let step = None;
    let opening = None;
    for second in 1..=20 {
        let node = &node;
        let progress =
            ProgressReport { generation, nodes, hosts, crosses, node, samples, secs, step, opening };
        let _ = library.record_progress(JobId(1), key, &progress, UnixTime(from + second));
    }
    let _ = library.finish_generation(JobId(1), UnixTime(from + 21));
}

fn room() -> NodeCapacity {
    let gap = |(node_type, n): (&str, u32)| Gap {
        node: NodeName::new(format!("{n}-{node_type}")),
        node_type: NodeType::new(node_type),
        holder: None,
        share: None,
        since: UnixTime(0),
        end: WindowEnd::Unknown,
        vacate_by: None,
        usable_until: UnixTime(1_000_000),
        expected_secs: 1e6,
    };
    let all = [NEW, OLD].into_iter().flat_map(|t| (1..=8).map(move |n| (t, n)));
    NodeCapacity::from_gaps(&GapSet { gaps: all.map(gap).collect(), ..GapSet::default() })
}

fn rates(library: &mut JobAdvisor, input: &JobInput) -> Vec<RateCurve> {
    library.run_round(std::slice::from_ref(input), room(), false, UnixTime(10_000));
    library.rate_curves(input, &[NodeType::new(NEW), NodeType::new(OLD)])
}

fn rate(rates: &[RateCurve], plan: &str, node_type: &str, nodes: u32) -> f64 {
    rates
        .iter()
        .find(|r: &&RateCurve| r.exec_plan.0 == plan && r.node_type == Some(NodeType::new(node_type)))
        .map_or(0.0, |r| r.rate(nodes))
}

#[test]
fn what_a_model_predicts_is_told_with_its_interval_and_from_what() {
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    for (i, (plan, nodes)) in [("ddp", 1), ("ddp", 4), ("zero", 2)].into_iter().enumerate() {
        see(&mut library, &key("alice", plan, OLD), nodes, 100 * (i as i64 + 1));
    }
    let on = |library: &mut JobAdvisor, node_type: &str| {
        let input = JobInput { key: key("alice", "ddp", node_type), ..input(plans(), Some(model())) };
        let _ = rates(library, &input);
        let offers = library.plan_offers(&input, 2).into_iter().map(|offer| {
            let Some((low, high)) = offer.interval else {
                assert_eq!(offer.rate, Err(PlanObstacle::TooLarge), "{offer:?}");
                return (offer.plan.0, None, false);
            };
            let truth = BATCH / secs(&offer.plan.0, node_type, 2);
            (offer.plan.0, offer.source, low < truth && truth < high)
        });
        let mut offers: Vec<_> = offers.collect();
        offers.sort();
        offers
    };
    let of = |plan: &str, source: RateSource| (plan.to_owned(), Some(source), true);
    let [ddp, gc, offload, zero] = on(&mut library, OLD).try_into().unwrap();
    assert_eq!((ddp, zero), (of("ddp", RateSource::OtherSizes), of("zero", RateSource::Measured)));
    assert_eq!((gc, offload), (of("gc", RateSource::OtherPlans), ("offload".to_owned(), None, false)));
    let elsewhere = on(&mut library, NEW);
    assert!(elsewhere.iter().all(|(_, source, _)| *source == Some(RateSource::OtherTypes)), "{elsewhere:?}");
}

#[test]
fn what_was_measured_of_one_plan_tells_of_the_others() {
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    for (i, (plan, nodes)) in [("ddp", 1), ("ddp", 4), ("zero", 2)].into_iter().enumerate() {
        see(&mut library, &key("alice", plan, OLD), nodes, 100 * (i as i64 + 1));
    }
    let wrong = |rates: &[RateCurve], plan: &str, nodes: u32| {
        rate(rates, plan, OLD, nodes) * secs(plan, OLD, nodes) / BATCH - 1.0
    };
    let model = Some(ModelFacts { sequence: None, ..model() });
    let told = rates(&mut library, &input(plans(), model));
    // Tried plans are believed as they are; the others a little less than what is expected of them.
    for nodes in [2, 6, 8] {
        assert!(wrong(&told, "ddp", nodes).abs() < 0.1, "ddp {nodes}: {}", wrong(&told, "ddp", nodes));
        assert!(wrong(&told, "zero", nodes).abs() < 0.1, "zero {nodes}: {}", wrong(&told, "zero", nodes));
        let untried = wrong(&told, "gc", nodes);
        assert!((-0.3..0.05).contains(&untried), "gc {nodes}: {untried}");
    }
}

#[test]
fn what_others_measured_on_two_types_tells_of_a_type_where_a_program_never_was() {
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    for user in ["bob", "carol", "dave"] {
        for (i, (node_type, nodes)) in [(OLD, 1), (OLD, 2), (NEW, 1), (NEW, 2)].into_iter().enumerate() {
            see(&mut library, &key(user, "ddp", node_type), nodes, 100 * (i as i64 + 1));
        }
    }
    let alone = |library: &mut JobAdvisor| {
        for (i, nodes) in [1, 2, 4].into_iter().enumerate() {
            see(library, &key("alice", "ddp", OLD), nodes, 1000 + 100 * i as i64);
        }
        let told = rates(library, &input(plans(), None));
        rate(&told, "ddp", NEW, 2) * secs("ddp", NEW, 2) / BATCH
    };
    let told = alone(&mut library);
    let strange = alone(&mut JobAdvisor::new(AdvisorConfig::default()));
    assert!((0.45..1.05).contains(&told), "{told}, counted on with caution");
    assert!(strange < 0.65 * told, "{strange}: nobody knows how much faster these are, against {told}");
}

#[test]
fn what_does_not_fit_into_memory_is_neither_offered_nor_tried() {
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    see(&mut library, &key("alice", "gc", OLD), 4, 100);
    let told = rates(&mut library, &input(plans(), Some(model())));
    let offered = |plan: &str, node_type: &str| -> Vec<u32> {
        (1..=8).filter(|n| rate(&told, plan, node_type, *n) > 0.0).collect()
    };
    assert_eq!(offered("ddp", NEW), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(offered("ddp", OLD), [5, 6, 7, 8], "up to 3.2 samples a GPU need less than 16 GiB");
    assert_eq!(offered("gc", OLD), [2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn what_was_measured_rules_whatever_the_terms_say() {
    let plain = ParallelStrategy::default();
    let at = |plan: DeclaredPlan, nodes: &str| DeclaredPlan {
        sizes: Some(AllowedSizes::parse(nodes).unwrap()),
        ..plan
    };
    let plans = vec![
        at(plan("tp2-gc", ParallelStrategy { tp: 2, checkpointing: true, ..plain }), "4"),
        at(plan("zero1", ParallelStrategy { zero: 1, ..plain }), "3"),
        at(plan("fsdp", ParallelStrategy { zero: 3, ..plain }), "2"),
        at(plan("ddp-ga4", ParallelStrategy { accumulate: 4, ..plain }), "1"),
    ];
    // A tiny model whose steps take what a sleep takes.
    let model = ModelFacts {
        layers: Some(3),
        hidden: Some(32),
        sequence: Some(32),
        global_batch: Some(24),
        ..ModelFacts::from_params(0.05)
    };
    let mut library = JobAdvisor::new(AdvisorConfig::default());
    let input = JobInput {
        gpus_per_node: Some(1),
        sizes: AllowedSizes::parse("1-4").unwrap(),
        ..input(plans, Some(model))
    };
    for (i, (plan, nodes)) in
        [("tp2-gc", 4), ("zero1", 3), ("fsdp", 2), ("ddp-ga4", 1)].into_iter().enumerate()
    {
        let key = key("alice", plan, OLD);
        let from = 100 * (i as i64 + 1);
        let samples = 24.0 * f64::from(nodes) / 3.2;
        let node = NodeName::new("n1");
        let generation = from as u64;
        let hosts = nodes;
        let secs = 1.0;
        let crosses = false;
        let step = None;
        let opening = None;
        for second in 1..=8 {
            let node = &node;
            let progress =
                ProgressReport { generation, nodes, hosts, crosses, node, samples, secs, step, opening };
            let _ = library.record_progress(JobId(1), &key, &progress, UnixTime(from + second));
        }
        let _ = library.finish_generation(JobId(1), UnixTime(from + 9));
        let told = rates(&mut library, &input);
        for (plan, nodes) in
            [("tp2-gc", 4), ("zero1", 3), ("fsdp", 2), ("ddp-ga4", 1)].into_iter().take(i + 1)
        {
            let wrong = rate(&told, plan, OLD, nodes) / (24.0 * f64::from(nodes) / 3.2);
            assert!((wrong - 1.0).abs() < 0.05, "{plan} after {}: {wrong}", i + 1);
        }
        // Terms may hope for ten times as much: that is for a probe to find out.
        for (plan, nodes) in [("zero1", 3), ("fsdp", 2), ("ddp-ga4", 1)] {
            let a_node = rate(&told, plan, OLD, nodes) / f64::from(nodes);
            assert!(a_node < 1.05 * 24.0 / 3.2, "{plan} after {}: {a_node} a node", i + 1);
        }
    }
}
