//! Fits of curves, and trials.

use proptest::prelude::*;

use crate::curve_trial::CurveTrial;
use crate::probe_value::probe_candidates;
use crate::{FittedCurve, ProbeContext, ScalingModel as _, best_probe, sizes_of_interest};
use infill_model::{
    AllowedSizes, BatchMode, CurvePoint, RescaleCosts, SizePoint, UnixTime, config::AdvisorConfig,
};
use infill_testkit::effort;

const COSTS: RescaleCosts = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 };

fn point(nodes: u32, rate: f64, error: f64) -> SizePoint {
    SizePoint {
        nodes,
        rate,
        error,
        secs: 10.0,
        step_samples: None,
        hosts: None,
        spread: infill_model::Spread::Near,
        over_hosts: infill_model::Spread::Near,
        at: UnixTime(0),
    }
}

fn trial(rates: &[(u32, f64)], noise: f64, seed: u64) -> CurveTrial {
    let table = rates.iter().map(|(nodes, rate)| CurvePoint { nodes: *nodes, rate: *rate }).collect();
    CurveTrial { table, noise, seed, costs: COSTS, settings: AdvisorConfig::default() }
}

/// Step times of common kinds: compute, ring, latency, stragglers; with a batch for each node and with one
/// global batch.
fn families() -> Vec<(&'static str, Vec<(u32, f64)>)> {
    let sizes = [1, 2, 4, 8, 16, 32, 64];
    let table = |rate: &dyn Fn(f64) -> f64| sizes.iter().map(|n| (*n, rate(f64::from(*n)))).collect();
    vec![
        ("linear", table(&|n| 100.0 * n)),
        ("ring, a batch a node", table(&|n| 100.0 * n / (1.0 + 0.6 * (n - 1.0) / n))),
        ("stragglers", table(&|n| 100.0 * n / (1.0 + 0.02 * (n - 1.0)))),
        ("latency", table(&|n| 100.0 * n / (1.0 + 0.15 * n.log2()))),
        ("one batch, with a peak", table(&|n| 100.0 / (1.0 / n + 0.05 + 0.004 * (n - 1.0)))),
        ("superlinear", table(&|n| 100.0 * n / (0.8 + 0.2 / n))),
    ]
}

#[test]
fn common_curves_are_predicted_from_four_sizes() {
    for (name, table) in families() {
        for seed in 0..5 {
            let result = trial(&table, 0.05, seed).run().unwrap();
            assert!(result.mape < 0.04, "{name}, seed {seed}: {result:?}");
            let most = AdvisorConfig::default();
            assert!(result.probes.len() <= most.max_probes as usize, "{name}: {result:?}");
            assert!(result.probe_secs <= most.max_probe_secs, "{name}: {result:?}");
        }
    }
}

#[test]
fn measured_sizes_outweigh_every_model() {
    // A drop behind a switch, and a jump that no model has.
    let points = [point(1, 10.0, 0.01), point(4, 38.0, 0.01), point(5, 25.0, 0.01), point(8, 60.0, 0.01)];
    let fitted = FittedCurve::new(&points, BatchMode::Auto, 8).unwrap();
    for p in &points {
        let got = fitted.estimate_at(p.nodes);
        assert!((got.rate / p.rate - 1.0).abs() < 0.03, "{} nodes: {got:?}", p.nodes);
        assert!(got.error < 0.02, "{} nodes: {got:?}", p.nodes);
    }
    assert!(fitted.estimate_at(3).error > fitted.estimate_at(4).error);
    assert!(!fitted.best_formula().is_empty());
}

#[test]
fn a_declared_batch_mode_excludes_terms() {
    let points = [point(1, 10.0, 0.01), point(8, 40.0, 0.01)];
    let modes = [BatchMode::Auto, BatchMode::PerNode, BatchMode::Global];
    let at_64 = modes.map(|m| FittedCurve::new(&points, m, 64).unwrap().estimate_at(64).rate);
    // A fixed batch a node never gets slower with nodes in the ring; one batch for all saturates.
    assert!(at_64[1] > at_64[2], "{at_64:?}");
    assert!(at_64[2] <= at_64[0] && at_64[0] <= 1.05 * at_64[1], "{at_64:?}");
}

#[test]
fn sizes_that_a_job_lists_are_all_of_interest() {
    let interesting = |text: &str| sizes_of_interest(&AllowedSizes::parse(text).unwrap(), &[]);
    assert_eq!(interesting("6,32,40,47,64"), [6, 32, 40, 47, 64]);
    assert_eq!(interesting("30-48"), [30, 31, 32, 36, 40, 45, 48]);
}

#[test]
fn without_measurements_there_is_no_curve() {
    assert!(FittedCurve::new(&[], BatchMode::Auto, 8).is_none());
    assert!(FittedCurve::new(&[point(0, 1.0, 0.1), point(1, f64::NAN, 0.1)], BatchMode::Auto, 8).is_none());
    assert_eq!(trial(&[], 0.05, 1).run(), None);
}

#[test]
fn a_known_size_is_not_worth_a_probe_and_an_uncertain_one_is() {
    let points = [point(1, 10.0, 0.006), point(8, 50.0, 0.006)];
    let fitted = FittedCurve::new(&points, BatchMode::Auto, 8).unwrap();
    let context = ProbeContext {
        sizes: (1..=8).collect(),
        probe_sizes: (1..8).collect(),
        supplies: (1..=8).map(|n| (n, 0.125)).collect(),
        present: 8,
        rivals: Vec::new(),
        elsewhere: None,
        horizon_secs: 86_400.0,
        probe_secs: 15.0,
        costs: COSTS,
    };
    let value = |n: u32| probe_candidates(&fitted, &context).into_iter().find(|c| c.nodes == n).unwrap();
    assert!(value(1).gain < 0.1 * value(3).gain, "{:?} {:?}", value(1), value(3));
    assert!((2..=5).contains(&best_probe(&fitted, &context).unwrap().nodes));
    // A result that is of use for a moment only is not worth a rescale.
    assert_eq!(best_probe(&fitted, &ProbeContext { horizon_secs: 10.0, ..context }), None);
}

#[test]
fn a_trial_keeps_the_bounds_of_the_site() {
    let table = [(1, 10.0), (2, 19.0), (4, 33.0), (8, 50.0), (16, 60.0), (32, 65.0)];
    let probes = |settings: AdvisorConfig| {
        let result = CurveTrial { settings, ..trial(&table, 0.05, 1) }.run().unwrap();
        result.probes.len()
    };
    let site = AdvisorConfig::default();
    assert_eq!(probes(AdvisorConfig { max_probes: 1, ..site.clone() }), 1);
    assert_eq!(probes(AdvisorConfig { probe: false, ..site.clone() }), 0);
    // A second probe might last longer than the rest of the budget.
    assert_eq!(probes(AdvisorConfig { max_probe_secs: 20.0, ..site.clone() }), 1);
    assert!(probes(site) > 1);
}

#[test]
fn the_trial_of_a_job_that_is_mostly_noise_ends() {
    let table = [(1, 10.0), (2, 19.0), (4, 33.0)];
    assert!(trial(&table, 1.0, 3).run().unwrap().probes.len() <= 3);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let table = [(1, 10.0), (2, 19.0), (4, 33.0), (8, 50.0)];
    let run = |seed| serde_json::to_string(&trial(&table, 0.05, seed).run().unwrap()).unwrap();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

proptest! {
    #![proptest_config(effort::property(256))]

    #[test]
    fn rates_are_positive_and_bounded_for_all_measurements(
        measured in prop::collection::vec((1_u32..200, 1e-6_f64..1e9, 0.0_f64..1.0), 1..9),
        largest in 1_u32..5000,
    ) {
        let points: Vec<SizePoint> = measured.iter().map(|(n, r, e)| point(*n, *r, *e)).collect();
        let fitted = FittedCurve::new(&points, BatchMode::Auto, largest).unwrap();
        let last = *fitted.points().last().unwrap();
        for nodes in [1, 2, 3, 7, 50, 199, 1000, largest] {
            let got = fitted.estimate_at(nodes);
            prop_assert!(got.rate.is_finite() && got.rate > 0.0, "{nodes}: {got:?}");
            prop_assert!(got.error.is_finite() && got.error >= 0.0, "{nodes}: {got:?}");
            let (low, high) = got.interval_90();
            prop_assert!(low > 0.0 && low <= high && high.is_finite());
            if nodes > last.nodes {
                let proportional = last.rate * f64::from(nodes) / f64::from(last.nodes);
                prop_assert!(got.rate <= proportional * (1.0 + 1e-9), "{nodes}: {got:?}");
            }
        }
    }
}
