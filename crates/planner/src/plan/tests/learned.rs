//! Plans from curves that the advisor learned, evaluated by the true ones.

use super::worlds::*;
use infill_advisor::curve_trial::CurveTrial;
use infill_model::{CurvePoint, config::AdvisorConfig};

/// Nearly linear, saturating, with a step after four nodes, superlinear at first, falling after four.
const TRUTHS: [&str; 5] = [
    "1:10,2:19.7,3:29.2,4:38.5,5:47.6,6:56.5,7:65.2,8:73.7",
    "1:10,2:17.4,3:23.1,4:27.6,5:31.2,6:34.3,7:36.8,8:39",
    "1:10,2:19.5,3:28.6,4:37.2,5:40,6:47.5,7:54.8,8:62",
    "1:10,2:21.4,3:31.5,4:41.3,5:50.8,6:60,7:68.8,8:77.4",
    "1:10,2:18.6,3:25,4:28,5:26.5,6:25,7:23.5,8:22",
];

/// Samples a second of all jobs under a plan, by these curves.
fn made(plan: &Plan, curves: &[ScalingCurve]) -> f64 {
    curves
        .iter()
        .enumerate()
        .map(|(i, curve)| {
            plan.job_plan(JobId(i as u32 + 1)).map_or(0.0, |p| curve.rate(p.nodes.len() as u32))
        })
        .sum()
}

#[test]
fn a_plan_by_learned_curves_is_nearly_as_good_as_a_plan_by_the_true_ones() {
    let truths = TRUTHS.map(|t| ScalingCurve::parse(t).unwrap());
    let learned = truths.each_ref().map(|truth| {
        let table = truth.points().to_vec();
        let costs = RescaleCosts { up_secs: 2.0, down_secs: 2.0, start_secs: 2.0 };
        let settings = AdvisorConfig::default();
        let verdict = CurveTrial { table, noise: 0.05, seed: 1, costs, settings }.run().unwrap();
        let points = verdict.curve.iter().map(|r| CurvePoint { nodes: r.nodes, rate: r.predicted });
        ScalingCurve::new(points.collect()).unwrap()
    });
    for nodes in [3, 5, 8, 13, 21, 34] {
        let gaps: Vec<String> = (1..=nodes).map(|n| format!("n{n}:1800")).collect();
        let plan_by = |curves: &[ScalingCurve]| {
            let jobs: Vec<String> =
                curves.iter().enumerate().map(|(i, c)| format!("{} 1-8 {c}", i + 1)).collect();
            let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
            solve(&World::new(&gaps.join(" "), &jobs)).0
        };
        let best = made(&plan_by(&truths), &truths);
        let ours = made(&plan_by(&learned), &truths);
        assert!(ours >= 0.97 * best, "{nodes} nodes: {ours} for {best}");
    }
}
