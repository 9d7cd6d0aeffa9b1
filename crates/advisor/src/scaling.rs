//! From measured sizes to a curve with its uncertainty at every size.
//!
//! Models are sums of few terms ([`super::step_models::fit_models`]) with non-negative weights, fitted by
//! relative least squares. All models of up to three terms are fitted and averaged by their evidence (an
//! information criterion), because three or four measured sizes seldom tell which is right. Where the models
//! differ, the curve is uncertain. A Gaussian process over log₂ n is added for what no model explains: it
//! carries the curve through the measured sizes, and lets the uncertainty grow with the distance from them.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::basis::term_values;
use super::step_models::{MIN_FIT_ERROR, StepModel, fit_models, mean_log_rate};
use infill_model::{AllowedSizes, BatchMode, CurvePoint, ScalingCurve, SizePoint};

/// Standard deviation of what no model explains.
const ROUGHNESS_SD: f64 = 0.12;

/// Doublings of the size over which what no model explains is alike.
const REACH_DOUBLINGS: f64 = 1.0;

/// Below the smallest measured size the rate is at most this multiple of that size's rate.
const MAX_FACTOR_BELOW: f64 = 4.0;

/// Half-width of a 90 % interval in standard deviations.
const Z90: f64 = 1.644_853_626_951_472_2;

/// Most sizes that a fit takes in. The least exact are left out.
const MAX_POINTS: usize = 64;

/// The estimated rate of a job at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeEstimate {
    /// Samples a second.
    pub rate: f64,
    /// Relative standard error.
    pub error: f64,
}

impl SizeEstimate {
    /// The interval that holds the true rate with 90 %.
    pub fn interval_90(&self) -> (f64, f64) {
        (self.rate * (-Z90 * self.error).exp(), self.rate * (Z90 * self.error).exp())
    }
}

/// A model of how a job scales.
pub trait ScalingModel {
    /// The estimate for a size, at least 1.
    fn estimate_at(&self, nodes: u32) -> SizeEstimate;

    /// Covariances of the relative errors at these sizes.
    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64>;
}

/// A fitted curve. It rests on at least one point of evidence, so that all its values are finite and
/// positive. A point may be measured, declared, or taken from similar programs.
#[derive(Clone, Debug)]
pub struct FittedCurve {
    points: Vec<SizePoint>,
    models: Vec<StepModel>,
    /// Cholesky factor of the covariance of the points.
    covariance_factor: Cholesky<f64, Dyn>,
    /// The inverse of that covariance times the residuals.
    pull: DVector<f64>,
}

impl FittedCurve {
    /// Fits points of evidence. `largest` is the largest size of interest, up to which the prior reaches.
    /// `None` when no point is usable.
    pub fn new(points: &[SizePoint], mode: BatchMode, largest: u32) -> Option<Self> {
        let points = usable_points(points);
        if points.is_empty() {
            return None;
        }
        let models = fit_models(&points, mode, largest);
        let sizes: Vec<f64> = points.iter().map(|p| f64::from(p.nodes)).collect();
        let residuals = points.iter().map(|p| p.rate.ln() - mean_log_rate(&models, f64::from(p.nodes)));
        let residuals = DVector::from_iterator(points.len(), residuals);
        let covariance = DMatrix::from_fn(points.len(), points.len(), |i, j| {
            let noise = if i == j { points[i].error.max(MIN_FIT_ERROR).powi(2) } else { 0.0 };
            size_kernel(sizes[i], sizes[j]) + noise
        });
        let covariance_factor = Cholesky::new(covariance)?;
        let pull = covariance_factor.solve(&residuals);
        Some(FittedCurve { points, models, covariance_factor, pull })
    }

    /// The points of evidence on which it rests, ascending by size.
    pub fn points(&self) -> &[SizePoint] {
        &self.points
    }

    /// The curve at these sizes, up to the largest (see [`sizes_of_interest`]).
    pub fn to_scaling_curve(&self, sizes: &[u32]) -> Option<ScalingCurve> {
        let points = sizes.iter().map(|n| CurvePoint { nodes: *n, rate: self.estimate_at(*n).rate });
        ScalingCurve::new(points.collect()).ok()
    }

    /// The formula with the most evidence, for people: node-seconds a sample.
    pub fn best_formula(&self) -> String {
        let best = self.models.iter().max_by(|a, b| a.evidence.total_cmp(&b.evidence));
        best.map_or(String::new(), StepModel::to_formula)
    }

    /// How much each measured size says about this one.
    fn kernel_row(&self, nodes: f64) -> DVector<f64> {
        DVector::from_iterator(
            self.points.len(),
            self.points.iter().map(|p| size_kernel(nodes, f64::from(p.nodes))),
        )
    }

    /// How far the models differ from their mean, as covariances between sizes.
    fn model_covariance(&self, sizes: &[f64]) -> DMatrix<f64> {
        let differences: Vec<Vec<f64>> = sizes
            .iter()
            .map(|n| {
                let t = term_values(*n);
                let mean = mean_log_rate(&self.models, *n);
                self.models.iter().map(|m| m.log_rate(*n, &t) - mean).collect()
            })
            .collect();
        DMatrix::from_fn(sizes.len(), sizes.len(), |i, j| {
            let models = self.models.iter().enumerate();
            models.map(|(k, m)| m.evidence * differences[i][k] * differences[j][k]).sum()
        })
    }

    /// Bounds a rate. Above the largest measured size it is at most proportional to that size's rate, and
    /// below the smallest at most [`MAX_FACTOR_BELOW`] times that size's rate.
    fn bound_rate(&self, nodes: u32, rate: f64) -> f64 {
        let Some(first) = self.points.first() else { return rate };
        let Some(last) = self.points.last() else { return rate };
        if nodes > last.nodes {
            rate.min(last.rate * f64::from(nodes) / f64::from(last.nodes))
        } else if nodes < first.nodes {
            rate.min(first.rate * MAX_FACTOR_BELOW)
        } else {
            rate
        }
    }
}

impl ScalingModel for FittedCurve {
    fn estimate_at(&self, nodes: u32) -> SizeEstimate {
        let n = f64::from(nodes.max(1));
        let reach = self.kernel_row(n);
        let log = mean_log_rate(&self.models, n) + reach.dot(&self.pull);
        SizeEstimate {
            rate: self.bound_rate(nodes.max(1), log.exp()),
            error: self.error_covariance(&[nodes.max(1)])[(0, 0)].max(0.0).sqrt(),
        }
    }

    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        let n: Vec<f64> = sizes.iter().map(|n| f64::from(*n)).collect();
        let reaches: Vec<DVector<f64>> = n.iter().map(|n| self.kernel_row(*n)).collect();
        // (K + D)⁻¹ k is solved once for each size, so that the rest are scalar products.
        let solved: Vec<DVector<f64>> = reaches.iter().map(|r| self.covariance_factor.solve(r)).collect();
        let remaining =
            DMatrix::from_fn(n.len(), n.len(), |i, j| size_kernel(n[i], n[j]) - reaches[i].dot(&solved[j]));
        let share: Vec<f64> =
            (0..n.len()).map(|i| (remaining[(i, i)] / ROUGHNESS_SD.powi(2)).clamp(0.0, 1.0).sqrt()).collect();
        let spread = self.model_covariance(&n);
        DMatrix::from_fn(n.len(), n.len(), |i, j| remaining[(i, j)] + share[i] * share[j] * spread[(i, j)])
    }
}

/// The sizes at which a curve is computed: all small ones, then in steps of an eighth, and the measured ones.
/// Short lists of allowed sizes are used whole.
pub fn sizes_of_interest(sizes: &AllowedSizes, measured: &[SizePoint]) -> Vec<u32> {
    const ALL_UP_TO: u32 = 32;
    const SHORT_LIST: usize = 64;
    let listed = match sizes {
        AllowedSizes::Set(listed) if listed.len() <= SHORT_LIST => listed.as_slice(),
        _ => &[],
    };
    let min = sizes.min();
    let max = sizes.max();
    let wide = std::iter::successors(Some(f64::from(ALL_UP_TO)), |n| Some(n * 1.125));
    let mut all: Vec<u32> = (min..=max.min(ALL_UP_TO))
        .chain(wide.map(|n| n as u32).take_while(|n| *n < max).filter(|n| *n >= min))
        .chain(measured.iter().map(|p| p.nodes).filter(|n| (min..=max).contains(n)))
        .chain(listed.iter().copied())
        .chain([min, max])
        .filter(|n| sizes.contains(*n))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The usable points, sorted by size. A usable rate is a normal positive number.
fn usable_points(points: &[SizePoint]) -> Vec<SizePoint> {
    let mut points: Vec<SizePoint> = points
        .iter()
        .filter(|p| p.nodes > 0 && p.rate.is_normal() && p.rate > 0.0 && p.error.is_finite())
        .copied()
        .collect();
    points.sort_by(|a, b| a.nodes.cmp(&b.nodes).then(a.error.total_cmp(&b.error)));
    points.dedup_by_key(|p| p.nodes);
    if points.len() > MAX_POINTS {
        points.sort_by(|a, b| a.error.total_cmp(&b.error));
        points.truncate(MAX_POINTS);
        points.sort_by_key(|p| p.nodes);
    }
    points
}

fn size_kernel(a: f64, b: f64) -> f64 {
    ROUGHNESS_SD.powi(2) * (-(a.log2() - b.log2()).abs() / REACH_DOUBLINGS).exp()
}
