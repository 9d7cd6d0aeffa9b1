//! From measured sizes to a curve with its uncertainty at every size.
//!
//! Models are sums of few terms ([`super::fit_models`]) with non-negative weights, fitted by relative least
//! squares. All of up to three terms are fitted and averaged by their evidence (an information
//! criterion), because three or four measured sizes seldom tell which is right; where the models differ,
//! nothing is known. On top comes a Gaussian process over log₂ n for what no model explains: it carries the
//! curve through the measured sizes, and lets the doubt grow with the distance from them.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::basis::term_values;
use super::step_models::{LEAST_ERROR, StepModel, fit_models, mean_log_rate};
use infill_model::{AllowedSizes, BatchMode, CurvePoint, ScalingCurve, SizePoint};

/// Standard deviation of what no model explains.
const ROUGHNESS_SD: f64 = 0.12;

/// Over how many doublings of the size that is alike.
const REACH_DOUBLINGS: f64 = 1.0;

/// Below the smallest measured size the rate is at most so many times that of the smallest.
const MAX_FACTOR_BELOW: f64 = 4.0;

/// Half-width of a 90 % interval in standard deviations.
const Z90: f64 = 1.644_853_626_951_472_2;

/// Most sizes that a fit takes in; the least exact are left out.
const MOST_POINTS: usize = 64;

/// What is believed of one size.
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

/// How a job scales, as far as it is believed.
pub trait ScalingModel {
    /// What is believed of a size, at least 1.
    fn estimate_at(&self, nodes: u32) -> SizeEstimate;

    /// Covariances of the relative errors of these sizes.
    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64>;
}

/// A fitted curve. Made of at least one measured size, so that all its values are finite and positive.
#[derive(Clone, Debug)]
pub struct FittedCurve {
    points: Vec<SizePoint>,
    models: Vec<StepModel>,
    /// Covariance of what was measured, decomposed.
    measured: Cholesky<f64, Dyn>,
    /// Its inverse times the residuals.
    pull: DVector<f64>,
}

impl FittedCurve {
    /// Fits what was measured. `largest` is the largest size of interest: as far as that the prior speaks.
    /// `None` when nothing usable was measured.
    pub fn new(points: &[SizePoint], mode: BatchMode, largest: u32) -> Option<Self> {
        let points = usable_points(points);
        if points.is_empty() {
            return None;
        }
        let models = fit_models(&points, mode, largest);
        let sizes: Vec<f64> = points.iter().map(|p| f64::from(p.nodes)).collect();
        let mean = |nodes: f64| mean_log_rate(&models, nodes);
        let residuals = points.iter().map(|p| p.rate.ln() - mean(f64::from(p.nodes)));
        let residuals = DVector::from_iterator(points.len(), residuals);
        let noise = |i: usize| points[i].error.max(LEAST_ERROR).powi(2);
        let covariance = DMatrix::from_fn(points.len(), points.len(), |i, j| {
            size_kernel(sizes[i], sizes[j]) + if i == j { noise(i) } else { 0.0 }
        });
        let measured = Cholesky::new(covariance)?;
        let pull = measured.solve(&residuals);
        Some(FittedCurve { points, models, measured, pull })
    }

    /// The measured sizes that it rests on, ascending.
    pub fn points(&self) -> &[SizePoint] {
        &self.points
    }

    /// The curve at these sizes, up to the largest (see [`sizes_of_interest`]).
    pub fn to_scaling_curve(&self, sizes: &[u32]) -> Option<ScalingCurve> {
        ScalingCurve::new(
            sizes.iter().map(|n: &u32| CurvePoint { nodes: *n, rate: self.estimate_at(*n).rate }).collect(),
        )
        .ok()
    }

    /// The formula that has the most evidence, for people: node-seconds a sample.
    pub fn best_formula(&self) -> String {
        let best = self.models.iter().max_by(|a, b| a.evidence.total_cmp(&b.evidence));
        best.map_or(String::new(), StepModel::to_formula)
    }

    /// How much each measured size tells of this one.
    fn kernel_row(&self, nodes: f64) -> DVector<f64> {
        DVector::from_iterator(
            self.points.len(),
            self.points.iter().map(|p| size_kernel(nodes, f64::from(p.nodes))),
        )
    }

    /// How far the models differ from their mean: covariances between sizes.
    fn model_covariance(&self, sizes: &[f64]) -> DMatrix<f64> {
        let apart: Vec<Vec<f64>> = sizes
            .iter()
            .map(|n| {
                let t = term_values(*n);
                let mean = mean_log_rate(&self.models, *n);
                self.models.iter().map(|m| m.log_rate(*n, &t) - mean).collect()
            })
            .collect();
        DMatrix::from_fn(sizes.len(), sizes.len(), |i, j| {
            self.models.iter().enumerate().map(|(k, m)| m.evidence * apart[i][k] * apart[j][k]).sum()
        })
    }

    /// More is never promised than what is proportional to the largest measured size, nor below the smallest
    /// more than [`MAX_FACTOR_BELOW`] times its rate.
    fn bound_rate(&self, nodes: u32, rate: f64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return rate };
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
        // (K + D)⁻¹ k for each size once: the rest are scalar products.
        let solved: Vec<DVector<f64>> = reaches.iter().map(|r| self.measured.solve(r)).collect();
        let left = |i: usize, j: usize| size_kernel(n[i], n[j]) - reaches[i].dot(&solved[j]);
        let share: Vec<f64> =
            (0..n.len()).map(|i| (left(i, i) / ROUGHNESS_SD.powi(2)).clamp(0.0, 1.0).sqrt()).collect();
        let spread = self.model_covariance(&n);
        DMatrix::from_fn(n.len(), n.len(), |i, j| left(i, j) + share[i] * share[j] * spread[(i, j)])
    }
}

/// The sizes that a curve is laid out at: all small ones, then in steps of an eighth, with what was measured.
/// A short list of sizes is meant as it stands.
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

/// Sorted by size, without what no rate can be.
fn usable_points(points: &[SizePoint]) -> Vec<SizePoint> {
    let mut points: Vec<SizePoint> = points
        .iter()
        .filter(|p: &&SizePoint| p.nodes > 0 && p.rate.is_normal() && p.rate > 0.0 && p.error.is_finite())
        .copied()
        .collect();
    points.sort_by(|a, b| a.nodes.cmp(&b.nodes).then(a.error.total_cmp(&b.error)));
    points.dedup_by_key(|p| p.nodes);
    if points.len() > MOST_POINTS {
        points.sort_by(|a, b| a.error.total_cmp(&b.error));
        points.truncate(MOST_POINTS);
        points.sort_by_key(|p| p.nodes);
    }
    points
}

fn size_kernel(a: f64, b: f64) -> f64 {
    ROUGHNESS_SD.powi(2) * (-(a.log2() - b.log2()).abs() / REACH_DOUBLINGS).exp()
}
