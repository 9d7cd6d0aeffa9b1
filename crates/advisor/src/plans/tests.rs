//! Simulated jobs: what the model learns about plans that were not measured.

use super::plan_trial::{PlanTrial, PlanTrialResult};
use super::step_parameters::PlanPriors;
use infill_model::{ExecPlan, ModelFacts, ParallelStrategy, Parallelism, PlanMeasurement};

const PARAMS_MI: f64 = 300.0;

/// Plans on 1, 2, 4 and 8 GPUs of one node, and on 2 and 4 nodes of 2 and 4. Their times follow other
/// formulas than the terms.
fn table() -> Vec<PlanMeasurement> {
    let plain = ParallelStrategy::default();
    let plans = [
        ("ddp", plain),
        ("zero", ParallelStrategy { zero: 2, ..plain }),
        ("recompute", ParallelStrategy { checkpointing: true, ..plain }),
        ("offload", ParallelStrategy { zero: 2, offload: true, ..plain }),
    ];
    let places: [&[u32]; 8] = [&[1], &[2], &[4], &[8], &[1, 1], &[2, 2], &[4, 4], &[2, 2, 2, 2]];
    let mut runs = Vec::new();
    for (name, strategy) in plans {
        for place in places {
            let gpus: u32 = place.iter().sum();
            let parallelism = Parallelism { dp: gpus, strategy };
            let rate = 32.0 / seconds(parallelism, place);
            let plan = ExecPlan(name.to_owned());
            let gpus_by_node = place.to_vec();
            runs.push(PlanMeasurement {
                plan,
                parallelism,
                global_batch: 32.0,
                gpus_by_node,
                cpus_per_gpu: None,
                rate,
            });
        }
    }
    runs
}

fn seconds(plan: Parallelism, place: &[u32]) -> f64 {
    let gpus = f64::from(plan.dp);
    let compute = if plan.strategy.checkpointing { 0.9 } else { 0.68 } / gpus;
    let network = if place.len() > 1 { 0.13 / f64::from(place[0]).powf(0.6) } else { 0.06 };
    let network = if gpus > 1.0 { network * (1.0 - 1.0 / gpus) } else { 0.0 };
    let optimize = match (plan.strategy.offload, plan.strategy.zero > 0) {
        (true, _) => 0.11 + 0.25 / gpus,
        (false, true) => 0.03 / gpus,
        (false, false) => 0.02,
    };
    compute.max(network) + 0.8 * compute.min(network) + optimize
}

fn trial(measurements: usize, seed: u64) -> PlanTrial {
    let facts = Some(ModelFacts::from_params(PARAMS_MI));
    PlanTrial {
        runs: table(),
        facts,
        noise: 0.05,
        seed,
        measurements,
        priors: PlanPriors::from_public_tables(),
    }
}

fn run(measurements: usize, seed: u64) -> PlanTrialResult {
    trial(measurements, seed).run().unwrap()
}

#[test]
fn a_few_measurements_predict_all_plans() {
    let mapes: Vec<f64> = (1..=10).map(|seed| run(7, seed).mape).collect();
    let mean = mapes.iter().sum::<f64>() / mapes.len() as f64;
    assert!(mean < 0.1, "{mapes:?}");
    let more = (1..=10).map(|seed| run(16, seed).mape).sum::<f64>() / 10.0;
    assert!(more < mean, "{more} after 16 measurements, {mean} after 7");
}

#[test]
fn without_facts_the_model_learns_them() {
    let mean =
        (1..=10).map(|seed| PlanTrial { facts: None, ..trial(7, seed) }.run().unwrap().mape).sum::<f64>()
            / 10.0;
    assert!(mean < 0.15, "{mean}");
}

#[test]
fn some_measurements_are_on_several_nodes_and_none_is_repeated() {
    for measurements in 3..=7 {
        let result = run(measurements, 1);
        assert_eq!(result.probes.len(), measurements);
        assert!(result.probes.iter().filter(|p| p.place.nodes > 1).count() >= 2, "{:?}", result.probes);
        assert_eq!(result.points.iter().filter(|p| p.measured).count(), measurements);
        assert_eq!(result.probes[0].place.gpus, 1);
    }
}

#[test]
fn the_chosen_plan_is_nearly_the_best() {
    let result = run(7, 1);
    let gpus: Vec<u32> = result.chosen.iter().map(|c| c.place.gpus).collect();
    assert_eq!(gpus, [1, 2, 4, 8]);
    let shares: Vec<f64> = result.chosen.iter().map(|c| c.true_share_of_best).collect();
    assert!(shares.iter().all(|s| *s <= 1.0) && shares.iter().sum::<f64>() / 4.0 > 0.95, "{shares:?}");
}

#[test]
fn intervals_hold_the_truth() {
    let points: Vec<_> = (1..=10).flat_map(|seed| run(7, seed).points).filter(|p| !p.measured).collect();
    let inside = points.iter().filter(|p| (p.low..=p.high).contains(&p.truth)).count();
    assert!(inside as f64 >= 0.8 * points.len() as f64, "{inside} of {}", points.len());
}

#[test]
fn a_table_of_one_row_needs_one_measurement() {
    let runs = table()[..1].to_vec();
    let result = PlanTrial { runs, ..trial(7, 1) }.run().unwrap();
    assert_eq!((result.probes.len(), result.mape), (1, 0.0));
    assert!(PlanTrial { runs: Vec::new(), ..trial(7, 1) }.run().is_none());
}

#[test]
fn a_job_of_another_magnitude_is_learned_as_well() {
    let slow = table().into_iter().map(|r| PlanMeasurement { rate: r.rate / 1e4, ..r }).collect();
    let result = PlanTrial { runs: slow, facts: None, ..trial(7, 1) }.run().unwrap();
    assert!(result.mape < 0.2, "{}", result.mape);
}
