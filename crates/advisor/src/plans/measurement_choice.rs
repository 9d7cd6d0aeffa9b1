//! Which (plan, placement) to measure next: the one that says most about all others.

use infill_model::PlanMeasurement;
use nalgebra::DMatrix;

/// The first measurement: few GPUs, and a plan without special features.
pub(super) fn first_measurement(runs: &[PlanMeasurement]) -> Option<usize> {
    (0..runs.len()).min_by_key(|i| {
        let run = &runs[*i];
        let strategy = run.parallelism.strategy;
        (
            run.gpus(),
            strategy.offload,
            strategy.checkpointing,
            strategy.zero > 0,
            strategy.divides_model(),
            run.nodes(),
        )
    })
}

/// The row whose measurement, with this noise, is expected to reduce the sum of all rows' variances most;
/// `None` when no row is `allowed`.
pub(super) fn next_measurement(
    covariance: &DMatrix<f64>,
    noise: f64,
    allowed: impl Fn(usize) -> bool,
) -> Option<usize> {
    let gains = (0..covariance.ncols()).filter(|i| allowed(*i)).map(|i| {
        let gain = covariance.column(i).norm_squared() / (covariance[(i, i)] + noise.powi(2));
        (gain, i)
    });
    gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map(|(_, i)| i)
}
