//! The curve of one way to run a job: rates at some sizes, and their joint uncertainty.

use nalgebra::DMatrix;

use super::scaling::{ScalingModel, SizeEstimate};
use infill_model::SizePoint;

/// The curve of a job with one plan on one type of nodes.
#[derive(Clone, Debug)]
pub(super) struct PlanCurve {
    /// Ascending, at least one.
    sizes: Vec<u32>,
    log_rates: Vec<f64>,
    covariance: DMatrix<f64>,
    /// The measurements with this plan on this type.
    points: Vec<SizePoint>,
}

impl PlanCurve {
    /// A curve from ascending sizes, the logarithms of their rates, and the covariance of these. `None`
    /// without a size, or where a number is not finite.
    pub(super) fn new(
        sizes: Vec<u32>,
        log_rates: Vec<f64>,
        covariance: DMatrix<f64>,
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let finite = log_rates.iter().chain(covariance.iter()).all(|x| x.is_finite());
        (finite && !sizes.is_empty()).then_some(PlanCurve { sizes, log_rates, covariance, points })
    }

    /// The mean of two curves at each size, weighted by their precision (the inverse of the variance). It is
    /// as uncertain as the more precise one, because both rest on the same measurements.
    pub(super) fn combine_with(&self, other: &PlanCurve) -> PlanCurve {
        let mut both = self.clone();
        let mut narrower = vec![1.0; self.sizes.len()];
        for (i, nodes) in self.sizes.iter().enumerate() {
            let Ok(j) = other.sizes.binary_search(nodes) else { continue };
            let own = self.covariance[(i, i)].max(1e-9);
            let theirs = other.covariance[(j, j)].max(1e-9);
            both.log_rates[i] = (self.log_rates[i] * theirs + other.log_rates[j] * own) / (own + theirs);
            narrower[i] = (own.min(theirs) / own).sqrt();
        }
        both.covariance = DMatrix::from_fn(narrower.len(), narrower.len(), |i, j| {
            narrower[i] * narrower[j] * self.covariance[(i, j)]
        });
        both
    }

    /// Whether the curve has this size.
    pub(super) fn has_size(&self, nodes: u32) -> bool {
        self.sizes.binary_search(&nodes).is_ok()
    }

    /// The same curve with these measurements.
    pub(super) fn with_points(&self, points: Vec<SizePoint>) -> PlanCurve {
        PlanCurve { points, ..self.clone() }
    }

    /// The measurements with this plan on this type.
    pub(super) fn points(&self) -> &[SizePoint] {
        &self.points
    }

    /// The index of a size, or of the nearest size where the curve does not have it.
    fn nearest_index(&self, nodes: u32) -> usize {
        let above = self.sizes.partition_point(|n| *n < nodes).min(self.sizes.len() - 1);
        let nearer = above > 0 && nodes.abs_diff(self.sizes[above - 1]) < nodes.abs_diff(self.sizes[above]);
        if nearer { above - 1 } else { above }
    }
}

impl ScalingModel for PlanCurve {
    fn estimate_at(&self, nodes: u32) -> SizeEstimate {
        let index = self.nearest_index(nodes);
        let variance = self.covariance[(index, index)];
        SizeEstimate { rate: self.log_rates[index].exp(), error: variance.max(0.0).sqrt() }
    }

    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        let indices: Vec<usize> = sizes.iter().map(|n| self.nearest_index(*n)).collect();
        DMatrix::from_fn(indices.len(), indices.len(), |i, j| self.covariance[(indices[i], indices[j])])
    }
}
