//! What is believed of a job in one way to run it, from any source.

use nalgebra::DMatrix;

use super::plan_curve::PlanCurve;
use super::scaling::{FittedCurve, ScalingModel, SizeEstimate};
use infill_model::{CurvePoint, ScalingCurve, SizePoint};

/// A curve with its uncertainty.
#[derive(Clone, Debug)]
pub(super) enum BelievedScaling {
    /// From measurements of this way to run, or of similar ones.
    Fitted(FittedCurve),
    /// From the model of all plans and types of the program.
    FromPlanModel(PlanCurve),
    /// From the program's measurements on other types and what programs have in common, or from estimates.
    FromSimilar(PlanCurve),
}

impl BelievedScaling {
    /// The measurements of this way to run, or of similar ones.
    pub(super) fn points(&self) -> &[SizePoint] {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.points(),
            BelievedScaling::FromPlanModel(curve) | BelievedScaling::FromSimilar(curve) => curve.points(),
        }
    }

    /// Whether the curve has a rate for this number of nodes.
    pub(super) fn covers_size(&self, nodes: u32) -> bool {
        match self {
            BelievedScaling::Fitted(_) | BelievedScaling::FromPlanModel(_) => true,
            BelievedScaling::FromSimilar(curve) => curve.has_size(nodes),
        }
    }

    /// The curve at these sizes, up to the largest. `counted` makes each rate from a size and its estimate.
    pub(super) fn to_scaling_curve(
        &self,
        sizes: &[u32],
        counted: impl Fn(u32, SizeEstimate) -> f64,
    ) -> Option<ScalingCurve> {
        ScalingCurve::new(
            sizes.iter().map(|n| CurvePoint { nodes: *n, rate: counted(*n, self.estimate_at(*n)) }).collect(),
        )
        .ok()
    }
}

impl ScalingModel for BelievedScaling {
    fn estimate_at(&self, nodes: u32) -> SizeEstimate {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.estimate_at(nodes),
            BelievedScaling::FromPlanModel(curve) | BelievedScaling::FromSimilar(curve) => {
                curve.estimate_at(nodes)
            }
        }
    }

    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.error_covariance(sizes),
            BelievedScaling::FromPlanModel(curve) | BelievedScaling::FromSimilar(curve) => {
                curve.error_covariance(sizes)
            }
        }
    }
}

/// An untried plan, as a probe of it is valued.
///
/// The uncertainty of its terms comes from the tables of similar plans. This implementation may also be
/// faster or slower than usual, at all sizes alike. That does not lower the rates with which plans count: the
/// uncertainty only makes a probe worthwhile.
pub(super) struct UntriedPlan<'a>(pub(super) &'a BelievedScaling);

/// Standard deviation of the logarithm of how much faster or slower an implementation is. Predictions of the
/// worst held-out programs are 8 to 12 % wrong (`infill advise --held-out`).
const IMPLEMENTATION_SD: f64 = 0.1;

impl ScalingModel for UntriedPlan<'_> {
    fn estimate_at(&self, nodes: u32) -> SizeEstimate {
        let estimate = self.0.estimate_at(nodes);
        SizeEstimate { error: estimate.error.hypot(IMPLEMENTATION_SD), ..estimate }
    }

    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        self.0.error_covariance(sizes).add_scalar(IMPLEMENTATION_SD.powi(2))
    }
}
