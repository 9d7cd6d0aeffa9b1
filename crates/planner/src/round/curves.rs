//! The throughput curves that the planner gets: how far claims are believed, the prior for jobs without
//! measurements, and how waiting and probing raise a curve.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use infill_model::config::PlannerConfig;
use infill_model::{AllowedSizes, CurvePoint, RescaleCosts, ScalingCurve};

/// Exponent of the prior curve. Few programs scale in proportion. With an exponent of 1, two such jobs would
/// have the same value however they share the nodes, and the first would keep them all. 0.9 is 81 % of
/// proportional at 8 nodes, as data-parallel training of large models has it.
const PRIOR_EXPONENT: f64 = 0.9;

/// Superlinear speedups exist (caches, memory), but not by more than this factor.
const MAX_SUPERLINEAR: f64 = 2.0;

/// Measured rates are believed up to this multiple of proportional ones.
pub(super) const MAX_MEASURED: f64 = 4.0;

/// Credible samples a second and node of any program. Other numbers are not measurements.
const CREDIBLE_RATES: RangeInclusive<f64> = 1e-9..=1e12;

/// A probed size is shown to the planner as faster than any other by at least this share.
const PROBE_MARGIN: f64 = 0.05;

/// The smallest size of a job that has its turn counts this many times more than a node of any other job.
const TURN_BONUS: f64 = 10.0;

/// The largest factor for a turn, whatever the user's shares are.
const MAX_TURN_BONUS: f64 = 1e6;

/// The curve within what is believed of a user's own claim, so that no user outbids others with a number.
/// `None` where its numbers are not credible rates.
pub(crate) fn capped_declared_curve(curve: &ScalingCurve, sizes: &AllowedSizes) -> Option<ScalingCurve> {
    if curve.is_linear() {
        return Some(curve.clone());
    }
    CREDIBLE_RATES
        .contains(&unit_rate(curve, sizes))
        .then(|| capped_measured_curve(curve, sizes, MAX_SUPERLINEAR))
}

/// The curve with each size limited to `most` times what is proportional to the smallest: a program may
/// report any number.
pub(super) fn capped_measured_curve(curve: &ScalingCurve, sizes: &AllowedSizes, most: f64) -> ScalingCurve {
    let unit = unit_rate(curve, sizes);
    ScalingCurve::new(
        curve
            .points()
            .iter()
            .map(|p| CurvePoint { rate: p.rate.min(most * unit * f64::from(p.nodes)), ..*p })
            .collect(),
    )
    .unwrap_or_else(|_| curve.clone())
}

/// Samples a second and node at the smallest size.
pub(super) fn unit_rate(curve: &ScalingCurve, sizes: &AllowedSizes) -> f64 {
    let least = sizes.min().max(1);
    curve.rate(least) / f64::from(least)
}

/// The curve of a job without measurements: nodes to the power [`PRIOR_EXPONENT`].
pub(super) fn prior_curve(sizes: &AllowedSizes) -> ScalingCurve {
    let doubled = std::iter::successors(Some(sizes.min()), |n| n.checked_mul(2).filter(|n| *n < sizes.max()));
    let sizes: BTreeSet<u32> = doubled.chain([sizes.max()]).collect();
    ScalingCurve::new(
        sizes
            .into_iter()
            .map(|nodes: u32| CurvePoint { nodes, rate: f64::from(nodes).powf(PRIOR_EXPONENT) })
            .collect(),
    )
    .unwrap_or_else(|_| ScalingCurve::linear())
}

/// How many times more the smallest size of a job that has its turn counts. `outweighs` says how many times
/// more a node-second of another job may count.
pub(super) fn turn_bonus(outweighs: f64) -> f64 {
    (TURN_BONUS * outweighs.max(1.0)).min(MAX_TURN_BONUS)
}

/// The curve with `bonus` samples a second more at every size.
pub(super) fn with_bonus(curve: &ScalingCurve, sizes: &AllowedSizes, bonus: f64) -> ScalingCurve {
    let min = sizes.min();
    let max = sizes.max();
    let inner = curve.points().iter().map(|p| p.nodes).filter(|n| (min..max).contains(n));
    let nodes: BTreeSet<u32> = inner.chain([min, max]).collect();
    ScalingCurve::new(
        nodes.into_iter().map(|nodes: u32| CurvePoint { nodes, rate: curve.rate(nodes) + bonus }).collect(),
    )
    .unwrap_or_else(|_| curve.clone())
}

/// The highest rate at any size that the curve names.
pub(super) fn max_rate(curve: &ScalingCurve) -> f64 {
    curve.points().iter().map(|p| p.rate).fold(0.0, f64::max)
}

/// The curve that makes the planner bring a running job to the size that the advisor wants to measure. That
/// size seems a little faster than the `fastest` elsewhere, by what the change costs. The advisor has weighed
/// what is lost during the probe.
pub(super) fn with_probe(
    curve: &ScalingCurve,
    nodes: u32,
    fastest: f64,
    costs: &RescaleCosts,
    config: &PlannerConfig,
) -> ScalingCurve {
    let changes = costs.up_secs.max(costs.down_secs) / config.horizon_secs;
    let wanted = fastest * (1.0 + PROBE_MARGIN + config.hysteresis + 2.0 * changes);
    let others = curve.points().iter().filter(|p| p.nodes != nodes).copied();
    let points = others.chain([CurvePoint { nodes, rate: wanted }]).collect();
    ScalingCurve::new(points).unwrap_or_else(|_| curve.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bonus_is_the_same_at_every_size() {
        let sizes = AllowedSizes::parse("2-8").unwrap();
        for curve in
            [ScalingCurve::linear(), ScalingCurve::parse("1:10,2:18,4:30").unwrap(), prior_curve(&sizes)]
        {
            let raised = with_bonus(&curve, &sizes, 0.5 * curve.rate(2));
            for n in 2..=8 {
                let want = curve.rate(n) + 0.5 * curve.rate(2);
                assert!((raised.rate(n) - want).abs() < 1e-9, "{curve} at {n}");
            }
        }
        assert_eq!(
            (turn_bonus(0.5), turn_bonus(4.0), turn_bonus(f64::INFINITY)),
            (10.0, 40.0, MAX_TURN_BONUS)
        );
    }

    #[test]
    fn a_claim_is_believed_within_bounds() {
        let sizes = AllowedSizes::parse("1-8").unwrap();
        let claim = |text: &str| {
            capped_declared_curve(&ScalingCurve::parse(text).unwrap(), &sizes).map(|c| c.to_string())
        };
        assert_eq!(claim("1:10,2:25").as_deref(), Some("1:10,2:25"));
        assert_eq!(claim("1:1,2:1000000").as_deref(), Some("1:1,2:4"));
        assert_eq!(claim("1:1e-300,2:1e300"), None);
    }

    #[test]
    fn the_prior_is_concave_at_the_allowed_sizes() {
        assert_eq!(prior_curve(&AllowedSizes::parse("3").unwrap()).points().len(), 1);
        let curve = prior_curve(&AllowedSizes::parse("1-8").unwrap());
        assert!((curve.rate(8) - 6.498).abs() < 1e-3);
        assert!(curve.rate(8) - curve.rate(4) < curve.rate(4));
    }
}
