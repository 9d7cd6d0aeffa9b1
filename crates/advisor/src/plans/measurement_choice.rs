//! Which (plan, placement) to measure next: the one that would teach most of all the others.

use infill_model::PlanMeasurement;
use nalgebra::DMatrix;

/// The first: few GPUs, and a plan that does nothing special.
pub(super) fn first_measurement(runs: &[PlanMeasurement]) -> Option<usize> {
    let simplest = |run: &PlanMeasurement| {
        let s = run.parallelism.strategy;
        (run.gpus(), s.offload, s.checkpointing, s.zero > 0, s.divides_model(), run.nodes())
    };
    (0..runs.len()).min_by_key(|i| simplest(&runs[*i]))
}

/// The row whose measurement, with such noise, is expected to take most from the sum of all rows' variances;
/// `None` when none `may` be measured.
pub(super) fn next_measurement(
    covariance: &DMatrix<f64>,
    noise: f64,
    may: impl Fn(usize) -> bool,
) -> Option<usize> {
    let gain = |i: usize| covariance.column(i).norm_squared() / (covariance[(i, i)] + noise.powi(2));
    let gains = (0..covariance.ncols()).filter(|i| may(*i)).map(|i| (gain(i), i));
    gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map(|(_, i)| i)
}
