//! What is believed of one way to run a job: rates at some sizes, and how sure they are together.

use nalgebra::DMatrix;

use super::scaling::{ScalingModel, SizeEstimate};
use infill_model::SizePoint;

/// What is believed of a job with one plan on one type of nodes.
#[derive(Clone, Debug)]
pub(super) struct PlanCurve {
    /// Ascending, at least one.
    sizes: Vec<u32>,
    log_rates: Vec<f64>,
    covariance: DMatrix<f64>,
    /// What was measured with this plan on this type.
    points: Vec<SizePoint>,
}

impl PlanCurve {
    /// `None` without a size, or where numbers overflowed. `sizes`: ascending; logarithms of rates and their
    /// covariance in the same order.
    pub(super) fn new(
        sizes: Vec<u32>,
        log_rates: Vec<f64>,
        covariance: DMatrix<f64>,
        points: Vec<SizePoint>,
    ) -> Option<PlanCurve> {
        let finite = log_rates.iter().chain(covariance.iter()).all(|x| x.is_finite());
        (finite && !sizes.is_empty()).then_some(PlanCurve { sizes, log_rates, covariance, points })
    }

    /// What this and another curve say together: of each size the mean of both by how sure they are, and as
    /// sure as the surer one, for they rest on the same measurements.
    pub(super) fn combine_with(&self, other: &PlanCurve) -> PlanCurve {
        let mut both = self.clone();
        let mut narrower = vec![1.0; self.sizes.len()];
        for (i, nodes) in self.sizes.iter().enumerate() {
            let Ok(j) = other.sizes.binary_search(nodes) else { continue };
            let own = self.covariance[(i, i)].max(1e-9);
            let its = other.covariance[(j, j)].max(1e-9);
            both.log_rates[i] = (self.log_rates[i] * its + other.log_rates[j] * own) / (own + its);
            narrower[i] = (own.min(its) / own).sqrt();
        }
        both.covariance = DMatrix::from_fn(narrower.len(), narrower.len(), |i, j| {
            narrower[i] * narrower[j] * self.covariance[(i, j)]
        });
        both
    }

    /// Whether it has this size.
    pub(super) fn has_size(&self, nodes: u32) -> bool {
        self.sizes.binary_search(&nodes).is_ok()
    }

    /// The same beside what was measured.
    pub(super) fn with_points(&self, points: Vec<SizePoint>) -> PlanCurve {
        PlanCurve { points, ..self.clone() }
    }

    /// What was measured with this plan on this type.
    pub(super) fn points(&self) -> &[SizePoint] {
        &self.points
    }

    /// The place of a size; of the nearest where it is none of them.
    fn nearest_index(&self, nodes: u32) -> usize {
        let above = self.sizes.partition_point(|n| *n < nodes).min(self.sizes.len() - 1);
        let nearer = above > 0 && nodes.abs_diff(self.sizes[above - 1]) < nodes.abs_diff(self.sizes[above]);
        if nearer { above - 1 } else { above }
    }
}

impl ScalingModel for PlanCurve {
    fn estimate_at(&self, nodes: u32) -> SizeEstimate {
        let at = self.nearest_index(nodes);
        SizeEstimate { rate: self.log_rates[at].exp(), error: self.covariance[(at, at)].max(0.0).sqrt() }
    }

    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        let at: Vec<usize> = sizes.iter().map(|n| self.nearest_index(*n)).collect();
        DMatrix::from_fn(at.len(), at.len(), |i, j| self.covariance[(at[i], at[j])])
    }
}
