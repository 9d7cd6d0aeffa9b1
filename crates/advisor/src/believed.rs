//! What is believed of a job in one way to run it, wherever the belief comes from.

use nalgebra::DMatrix;

use super::plan_curve::PlanCurve;
use super::scaling::{Estimate, Fitted, Scaling};
use infill_model::{CurvePoint, ScalingCurve, SizePoint};

/// A curve with its uncertainty.
#[derive(Clone, Debug)]
pub(super) enum BelievedScaling {
    /// By what was measured of this way to run, or of ones alike.
    Fitted(Fitted),
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
    pub(super) fn tells_of(&self, nodes: u32) -> bool {
        match self {
            BelievedScaling::Fitted(_) | BelievedScaling::Planned(_) => true,
            BelievedScaling::Alike(curve) => curve.has(nodes),
        }
    }

    /// The curve at these sizes, up to the largest, each rate times what `counted` makes of its doubt.
    pub(super) fn curve(
        &self,
        sizes: &[u32],
        counted: impl Fn(u32, Estimate) -> f64,
    ) -> Option<ScalingCurve> {
        let point = |n: &u32| CurvePoint { nodes: *n, rate: counted(*n, self.at(*n)) };
        ScalingCurve::new(sizes.iter().map(point).collect()).ok()
    }
}

impl Scaling for BelievedScaling {
    fn at(&self, nodes: u32) -> Estimate {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.at(nodes),
            BelievedScaling::Planned(curve) | BelievedScaling::Alike(curve) => curve.at(nodes),
        }
    }

    fn covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        match self {
            BelievedScaling::Fitted(fitted) => fitted.covariance(sizes),
            BelievedScaling::Planned(curve) | BelievedScaling::Alike(curve) => curve.covariance(sizes),
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

impl Scaling for UntriedPlan<'_> {
    fn at(&self, nodes: u32) -> Estimate {
        let estimate = self.0.at(nodes);
        Estimate { error: estimate.error.hypot(IMPLEMENTATION_SD), ..estimate }
    }

    fn covariance(&self, sizes: &[u32]) -> DMatrix<f64> {
        self.0.covariance(sizes).add_scalar(IMPLEMENTATION_SD.powi(2))
    }
}
