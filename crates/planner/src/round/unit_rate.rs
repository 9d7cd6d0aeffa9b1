//! The rate of a job on one node, samples a second. Jobs count their samples in different units, so the
//! weight of a sample is the inverse of this rate.

use std::collections::BTreeMap;

use super::curves;
use infill_model::{AllowedSizes, GapSet, NodeType, malleable::RateCurve};

/// Samples a second and node at the job's smallest size with its fastest plan, averaged over the present
/// nodes on which it can run. It does not depend on where the job is. Otherwise jobs on slow nodes would
/// count for more, and two jobs would change places forever.
pub(super) fn mean_unit_rate(
    rates: &[RateCurve],
    sizes: &AllowedSizes,
    supply: &BTreeMap<&NodeType, u32>,
) -> f64 {
    let mut sum = 0.0;
    let mut count = 0.0;
    for (node_type, nodes) in supply {
        if let Some(unit) = unit_rate_on(rates, sizes, node_type) {
            sum += f64::from(*nodes) * unit;
            count += f64::from(*nodes);
        }
    }
    if count > 0.0 { sum / count } else { fastest_unit_rate(rates, sizes) }
}

/// Samples a second and node of the fastest plan on a type. Rates for this type take precedence over those
/// for all types.
fn unit_rate_on(rates: &[RateCurve], sizes: &AllowedSizes, node_type: &NodeType) -> Option<f64> {
    let for_type = rates.iter().filter(|rate| rate.node_type.as_ref() == Some(node_type));
    let for_all = rates.iter().filter(|rate| rate.node_type.is_none());
    let for_type = for_type.map(|rate| curves::unit_rate(&rate.curve, sizes)).reduce(f64::max);
    for_type.or_else(|| for_all.map(|rate| curves::unit_rate(&rate.curve, sizes)).reduce(f64::max))
}

/// Samples a second and node at the smallest size on the fastest type, whatever nodes are present. Lengths of
/// jobs are counted by it.
pub(super) fn fastest_unit_rate(rates: &[RateCurve], sizes: &AllowedSizes) -> f64 {
    rates.iter().map(|r| curves::unit_rate(&r.curve, sizes)).fold(0.0, f64::max)
}

/// The number of nodes or places of each type.
pub(super) fn count_by_type(gaps: &GapSet) -> BTreeMap<&NodeType, u32> {
    let mut counts = BTreeMap::new();
    gaps.gaps.iter().for_each(|gap| *counts.entry(&gap.node_type).or_insert(0) += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::super::tests::rates::rates;
    use super::*;

    #[test]
    fn the_unit_rate_depends_neither_on_the_type_that_a_job_is_on_nor_on_its_plan() {
        let sizes = AllowedSizes::Range { min: 1, max: 4 };
        let [fast, slow, other] = ["fast", "slow", "other"].map(NodeType::new);
        let supply = BTreeMap::from([(&fast, 1), (&slow, 3)]);
        let units = ["fast=8 slow=2 any=2", "slow=2 fast=8", "any=2 slow=2 fast=8 fast=7"];
        assert_eq!(units.map(|text| mean_unit_rate(&rates(text), &sizes, &supply)), [3.5; 3]);
        assert_eq!(mean_unit_rate(&rates("fast=8 slow=2"), &sizes, &BTreeMap::from([(&slow, 3)])), 2.0);
        assert_eq!(
            mean_unit_rate(&rates("fast=8 slow=2"), &sizes, &BTreeMap::from([(&other, 3)])),
            8.0,
            "nowhere"
        );
        assert_eq!(mean_unit_rate(&rates("any=5"), &sizes, &BTreeMap::from([(&other, 3)])), 5.0);
        assert_eq!(mean_unit_rate(&[], &sizes, &supply), 0.0);
        assert_eq!(fastest_unit_rate(&rates("slow=2 fast=8"), &sizes), 8.0);
    }
}
