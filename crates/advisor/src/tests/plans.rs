//! Programs with several execution plans on several types of nodes.

use std::collections::BTreeMap;

use super::one_second;
use crate::{JobAdvisor, JobInput, NodeCapacity, PlanOffer};
use infill_model::{
    AllowedSizes, BatchMode, DeclaredPlan, ExecPlan, Gap, GapSet, JobId, NodeName, NodeType, PlanNeeds,
    ProfileKey, RateSource, RescaleCosts, ScalingCurve, UnixTime, WindowEnd, config::AdvisorConfig,
    malleable::RateCurve,
};

const COSTS: RescaleCosts = RescaleCosts { up_secs: 5.0, down_secs: 5.0, start_secs: 8.0 };
const JOB: JobId = JobId(1);

fn key(plan: &str, node_type: &str) -> ProfileKey {
    ProfileKey {
        user: "alice".to_owned(),
        name: "train".to_owned(),
        node_type: NodeType::new(node_type),
        exec_plan: ExecPlan(plan.to_owned()),
        batch: BatchMode::Auto,
    }
}

fn plan(name: &str, sizes: Option<&str>, node_types: &[&str], shards: bool) -> DeclaredPlan {
    DeclaredPlan {
        name: ExecPlan(name.to_owned()),
        sizes: sizes.map(|text| AllowedSizes::parse(text).unwrap()),
        node_types: node_types.iter().map(|t| (*t).to_owned()).collect(),
        shards,
        strategy: None,
        needs: PlanNeeds::default(),
    }
}

/// A job, and its true rate with each plan on each type.
struct Simulation {
    advisor: JobAdvisor,
    input: JobInput,
    truth: BTreeMap<ProfileKey, ScalingCurve>,
    clock: i64,
    generation: u64,
    /// The configurations that the advisor brought it to.
    tried: Vec<String>,
}

impl Simulation {
    /// The rates from lines of `PLAN TYPE CURVE`. The job begins with the first, on four nodes, and there are
    /// four nodes of each type.
    fn new(truth: &[&str], plans: Vec<DeclaredPlan>) -> Simulation {
        let rows: Vec<(ProfileKey, ScalingCurve)> = truth
            .iter()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (key(words[0], words[1]), ScalingCurve::parse(words[2]).unwrap())
            })
            .collect();
        let input = JobInput {
            job: JOB,
            key: rows[0].0.clone(),
            sizes: AllowedSizes::parse("1-4").unwrap(),
            plans,
            model: None,
            layers: None,
            gpus_per_node: None,
            declared_curve: None,
            running_nodes: Some(4),
            costs: COSTS,
            swap_secs: None,
        };
        let advisor = JobAdvisor::new(AdvisorConfig::default());
        Simulation {
            advisor,
            input,
            truth: rows.into_iter().collect(),
            clock: 0,
            generation: 1,
            tried: Vec::new(),
        }
    }

    /// Simulates one second: the job reports, and is brought to the configuration that the advisor wants to
    /// try.
    fn run_second(&mut self) {
        self.clock += 1;
        let node = NodeName::new("n1");
        let nodes = self.input.running_nodes.unwrap();
        let now = UnixTime(self.clock);
        match self.truth.get(&self.input.key) {
            Some(curve) => {
                let samples = curve.rate(nodes);
                let progress = one_second(self.generation, nodes, samples, &node);
                let _ = self.advisor.record_progress(JOB, &self.input.key, &progress, now);
            }
            None => self.advisor.record_out_of_memory(&self.input.key, nodes, now),
        }
        let gap = |node_type: &str, n: u32| Gap {
            node: NodeName::new(format!("{node_type}-{n}")),
            node_type: NodeType::new(node_type),
            holder: (self.input.key.node_type.as_str() == node_type && n <= nodes).then_some(JOB),
            share: None,
            since: UnixTime(0),
            end: WindowEnd::Unknown,
            vacate_by: None,
            usable_until: UnixTime(1_000_000),
            expected_secs: 1e6,
        };
        let gaps = ["new", "old"].into_iter().flat_map(|t| (1..=4).map(move |n| gap(t, n))).collect();
        let capacity = NodeCapacity::from_gaps(&GapSet { gaps, ..GapSet::default() });
        self.advisor.run_round(std::slice::from_ref(&self.input), capacity, true, now);
        if let Some(aim) = self.advisor.aim_of(JOB).cloned()
            && (&aim.key, aim.nodes) != (&self.input.key, nodes)
        {
            self.tried.push(aim.to_string());
            self.generation += 1;
            self.input.key = aim.key;
            self.input.running_nodes = Some(aim.nodes);
            self.clock += 8;
        }
    }

    fn rates(&self) -> Vec<RateCurve> {
        self.advisor.rate_curves(&self.input, &[NodeType::new("new"), NodeType::new("old")])
    }

    /// The fastest configuration by the advisor's rates, as `PLAN TYPE NODES`.
    fn best(&self) -> String {
        let all = self.rates().into_iter().flat_map(|r| (1..=4).map(move |n| (r.rate(n), n, r.clone())));
        let (_, nodes, rate) = all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        format!("{} {} {nodes}", rate.exec_plan.0, rate.node_type.unwrap())
    }
}

#[test]
fn a_few_probes_find_the_best_of_plans_and_types_whose_curves_cross() {
    let plans =
        || vec![plan("a", None, &[], false), plan("b", None, &[], false), plan("c", None, &["new"], false)];
    let mut simulation = Simulation::new(
        &[
            "a old 1:10,2:18,3:24,4:28",
            "a new 1:12,2:20,3:25,4:28",
            "b old 1:5,2:12,3:22,4:34",
            "b new 1:8,2:18,3:30,4:45",
            "c new 1:15,2:24,3:30,4:33",
        ],
        plans(),
    );
    (0..600).for_each(|_| simulation.run_second());
    assert_eq!(simulation.best(), "b new 4");
    let best = "4 nodes of new with plan b".to_owned();
    assert!(simulation.tried.iter().take(4).any(|tried| *tried == best), "soon: {:?}", simulation.tried);
    let probe_secs =
        |plan: &&str, t: &str| simulation.advisor.profile(&key(plan, t)).map_or(0.0, |p| p.probe_secs);
    let probed: f64 =
        ["a", "b", "c"].iter().map(|plan| probe_secs(plan, "old") + probe_secs(plan, "new")).sum();
    assert!(probed <= 120.0, "{probed} s: {:?}", simulation.tried);
    assert!(simulation.advisor.aim_of(JOB).is_none(), "it has finished");
}

#[test]
fn another_plan_is_not_tried_where_the_change_costs_more_than_its_result_is_worth() {
    let tried = |swap_secs: Option<f64>| {
        let plans = vec![plan("a", None, &["old"], false), plan("b", None, &["old"], false)];
        let mut simulation =
            Simulation::new(&["a old 1:10,2:18,3:24,4:28", "b old 1:12,2:20,3:25,4:30"], plans);
        simulation.input.swap_secs = swap_secs;
        (0..300).for_each(|_| simulation.run_second());
        simulation.tried
    };
    let is_of_b = |tried: &String| tried.ends_with("plan b");
    let cheap = tried(None);
    assert!(cheap.iter().any(is_of_b), "{cheap:?}");
    let costly = tried(Some(3600.0));
    assert!(!costly.iter().any(is_of_b), "{costly:?}");
    assert!(!costly.is_empty(), "another size of its own plan still costs little");
}

#[test]
fn a_plan_that_does_not_fit_is_tried_once_and_not_offered() {
    let mut simulation = Simulation::new(
        &["a old 1:10,2:19,4:35", "a new 1:10,2:19,4:35"],
        vec![plan("a", None, &[], false), plan("b", None, &[], false)],
    );
    (0..400).for_each(|_| simulation.run_second());
    let of_b = simulation.tried.iter().filter(|t| t.contains("plan b")).count();
    assert!((1..=2).contains(&of_b), "once on each type: {:?}", simulation.tried);
    let unfit = |t: &str| simulation.advisor.profile(&key("b", t)).is_some_and(|p| !p.unfit.is_empty());
    for rate in simulation.rates().iter().filter(|r| r.exec_plan.0 == "b") {
        let node_type = rate.node_type.clone().unwrap();
        assert!(!unfit(node_type.as_str()), "{rate:?}");
    }
    // A plan that divides its model may fit on twice as many nodes.
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    advisor.record_out_of_memory(&key("b", "old"), 2, UnixTime(1));
    let input = JobInput {
        plans: vec![plan("b", None, &[], true)],
        key: key("b", "old"),
        ..simulation.input.clone()
    };
    assert!(advisor.rate_curves(&input, &[]).is_empty(), "nothing is known of it");
}

#[test]
fn a_plan_is_offered_where_it_can_run_and_counted_on_when_it_was_tried() {
    let plans = vec![plan("a", Some("1-2"), &[], false), plan("b", Some("4"), &["old"], true)];
    let mut simulation = Simulation::new(&["a old 1:10,2:20"], plans);
    simulation.input.running_nodes = Some(2);
    let node = NodeName::new("n1");
    for second in 1..=20 {
        let progress = one_second(1, 2, 20.0, &node);
        let _ = simulation.advisor.record_progress(JOB, &key("a", "old"), &progress, UnixTime(second));
    }
    let rates = simulation.rates();
    let rate = |plan: &str, t: &str, n: u32| {
        rates
            .iter()
            .find(|r| r.exec_plan.0 == plan && r.node_type == Some(NodeType::new(t)))
            .map(|r| r.rate(n))
    };
    assert!((rate("a", "old", 2).unwrap() / 20.0 - 1.0).abs() < 0.05);
    assert_eq!(
        (rate("a", "old", 4), rate("b", "old", 2)),
        (Some(0.0), Some(0.0)),
        "sizes that the plans cannot have"
    );
    assert_eq!(rate("b", "new", 4), None, "a type on which it cannot run");
    let counted = rate("b", "old", 4).unwrap();
    assert!((15.0..30.0).contains(&counted), "less than plan a would make there: {counted}");
}

#[test]
fn the_rate_of_each_plan_on_the_present_nodes_is_reported() {
    let plans = vec![
        plan("a", None, &[], false),
        plan("b", None, &[], false),
        plan("c", None, &["new"], false),
        plan("d", Some("4"), &[], false),
        plan("e", None, &[], false),
    ];
    let mut simulation = Simulation::new(&["a old 1:10,2:20", "e old 1:20,2:40"], plans);
    simulation.input.running_nodes = Some(2);
    let offers = |simulation: &Simulation| simulation.advisor.plan_offers(&simulation.input, 2);
    assert!(offers(&simulation).iter().all(|o| !o.is_measured && o.rate.is_err()), "nothing is known");
    let node = NodeName::new("n1");
    for (generation, plan, samples) in [(1, "a", 20.0), (2, "e", 40.0)] {
        for second in 1..=20 {
            let now = 100 * generation + second;
            let progress = one_second(generation, 2, samples, &node);
            let _ =
                simulation.advisor.record_progress(JOB, &key(plan, "old"), &progress, UnixTime(now as i64));
        }
    }
    simulation.advisor.record_out_of_memory(&key("b", "old"), 1, UnixTime(500));
    let describe = |offer: &PlanOffer| {
        let rate = offer.rate.map_or_else(|obstacle| obstacle.to_string(), |rate| format!("{rate:.0}"));
        format!("{} {rate} {}", offer.plan.0, offer.is_measured)
    };
    let mut descriptions: Vec<String> = offers(&simulation).iter().map(describe).collect();
    assert_eq!(descriptions[..2], ["e 40 true", "a 20 true"], "the best first");
    descriptions.sort();
    assert_eq!(descriptions[1], "b does not fit into memory: it ran out of it on 1 node false");
    assert_eq!(descriptions[2], "c is not for nodes of this type false");
    assert_eq!(descriptions[3], "d cannot run on this number of nodes false");
}

#[test]
fn an_offer_names_its_source_and_its_interval() {
    let plans = vec![plan("a", None, &[], false), plan("b", None, &[], false), plan("c", None, &[], false)];
    let mut simulation = Simulation::new(&["a old 1:10,2:19", "b old 1:5,2:11"], plans);
    simulation.input.declared_curve = Some(ScalingCurve::parse("1:10,2:20,4:38").unwrap());
    let node = NodeName::new("n1");
    let source_and_width = |simulation: &Simulation, node_type: &str, name: &str, nodes: u32| {
        let input = JobInput { key: key("a", node_type), ..simulation.input.clone() };
        let offers = simulation.advisor.plan_offers(&input, nodes);
        let offer = offers.into_iter().find(|offer| offer.plan.0 == name).unwrap();
        assert_eq!(offer.rate.is_ok(), offer.interval.is_some());
        let within = offer.rate.ok().zip(offer.interval);
        assert!(within.is_none_or(|(rate, (low, high))| low <= rate && rate <= high), "{offer:?}");
        (offer.source, offer.interval.map_or(0.0, |(low, high)| (high / low).ln()))
    };
    assert_eq!(source_and_width(&simulation, "old", "a", 2).0, Some(RateSource::Declared));
    assert_eq!(source_and_width(&simulation, "old", "b", 2), (None, 0.0));
    for (generation, plan, samples) in [(1, "a", 19.0), (2, "b", 11.0)] {
        for second in 1..=20 {
            let progress = one_second(generation, 2, samples, &node);
            let now = UnixTime((100 * generation + second) as i64);
            let _ = simulation.advisor.record_progress(JOB, &key(plan, "old"), &progress, now);
        }
    }
    let measured = source_and_width(&simulation, "old", "b", 2);
    let other_sizes = source_and_width(&simulation, "old", "b", 4);
    assert_eq!((measured.0, other_sizes.0), (Some(RateSource::Measured), Some(RateSource::OtherSizes)));
    let guess = source_and_width(&simulation, "old", "c", 2);
    let elsewhere = source_and_width(&simulation, "new", "b", 2);
    assert_eq!((guess.0, elsewhere.0), (Some(RateSource::OtherPlans), Some(RateSource::OtherTypes)));
    let widths = [measured.1, other_sizes.1, guess.1, elsewhere.1];
    assert!(widths[0] < 0.1 && widths[1..].iter().all(|width| *width > widths[0]), "{widths:?}");
}

#[test]
fn a_program_that_fits_nowhere_is_offered_as_before() {
    let mut advisor = JobAdvisor::new(AdvisorConfig::default());
    let input = JobInput { plans: Vec::new(), ..Simulation::new(&["default old 1:10"], Vec::new()).input };
    let node = NodeName::new("n1");
    for second in 1..=20 {
        let progress = one_second(1, 4, 40.0, &node);
        let _ = advisor.record_progress(JOB, &input.key, &progress, UnixTime(second));
    }
    let offered = |advisor: &JobAdvisor| {
        let rates = advisor.rate_curves(&input, &[]);
        (1..=4).filter(|n| rates[0].rate(*n) > 0.0).collect::<Vec<u32>>()
    };
    assert_eq!(offered(&advisor), [1, 2, 3, 4]);
    advisor.record_out_of_memory(&input.key, 2, UnixTime(30));
    assert_eq!(offered(&advisor), [3, 4], "fewer nodes have no more memory");
    advisor.record_out_of_memory(&input.key, 4, UnixTime(31));
    assert_eq!(offered(&advisor), [1, 2, 3, 4], "it shall fail with its own error");
}
