//! What is believed of a job in one way to run it, wherever the belief comes from.

use nalgebra::DMatrix;

use super::plan_curve::PlanCurve;
use super::scaling::{FittedCurve, ScalingModel, SizeEstimate};
use infill_model::{CurvePoint, ScalingCurve, SizePoint};

/// A curve with its uncertainty.
#[derive(Clone, Debug)]
pub(super) enum BelievedScaling {
    /// By what was measured of this way to run, or of ones alike.
    Fitted(FittedCurve),
    /// By the model of all plans and types of the program.
    Planned(PlanCurve),
    /// By what the program did on other types and what programs have in common, or by estimates.
    Alike(PlanCurve),
}

impl BelievedScaling {
    /// What was measured of this way to run, or of ones alike.
    pub(super) fn points(&self) -> &[SizePoint] {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.points(),
            BelievedScaling::Planned(curve) | BelievedScaling::Alike(curve) => curve.points(),
        }
    }

    /// Whether it says anything of so many nodes.
    pub(super) fn covers_size(&self, nodes: u32) -> bool {
        match self {
            BelievedScaling::Fitted(_) | BelievedScaling::Planned(_) => true,
            BelievedScaling::Alike(curve) => curve.has_size(nodes),
        }
    }

    /// The curve at these sizes, up to the largest, each rate times what `counted` makes of its doubt.
    pub(super) fn to_scaling_curve(
        &self,
        sizes: &[u32],
        counted: impl Fn(u32, SizeEstimate) -> f64,
    ) -> Option<ScalingCurve> {
        ScalingCurve::new(
            sizes
                .iter()
                .map(|n: &u32| CurvePoint { nodes: *n, rate: counted(*n, self.estimate_at(*n)) })
                .collect(),
        )
        .ok()
    }
}

impl ScalingModel for BelievedScaling {
    fn estimate_at(&self, nodes: u32) -> SizeEstimate {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.estimate_at(nodes),
            BelievedScaling::Planned(curve) | BelievedScaling::Alike(curve) => curve.estimate_at(nodes),
        }
    }

    fn error_covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.error_covariance(sizes),
            BelievedScaling::Planned(curve) | BelievedScaling::Alike(curve) => curve.error_covariance(sizes),
        }
    }
}

/// A plan that was never tried, as a probe of it is weighed.
///
/// What its terms are in doubt by is what tables tell of plans of its kind. Besides, this implementation may
/// be faster or slower than its kind, at all sizes alike. Plans are not counted on for less because of that:
/// the doubt only makes it worth a probe.
pub(super) struct UntriedPlan<'a>(pub(super) &'a BelievedScaling);

/// Standard deviation of the logarithm of that. Of held-out programs the worst are predicted 8 to 12 % wrong
/// (`infill advise --held-out`).
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
