//! What one node of a job's is worth: its samples a second there. Jobs count their samples in different
//! units.

use std::collections::BTreeMap;

use super::curves;
use infill_model::{AllowedSizes, GapSet, NodeType, malleable::RateCurve};

/// Samples a second and node at its smallest size, of several plans with the fastest: on the mean of the
/// nodes that there are now and on which it can run. It is the same wherever the job is: else whoever is on
/// slow nodes would count for more, and two jobs would change places for ever.
pub(super) fn mean_unit_rate(
    rates: &[RateCurve],
    sizes: &AllowedSizes,
    supply: &BTreeMap<&NodeType, u32>,
) -> f64 {
    let of = |node_type: Option<&NodeType>| {
        let suiting = rates.iter().filter(|rate| rate.node_type.as_ref() == node_type);
        suiting.map(|rate| curves::unit_rate(&rate.curve, sizes)).reduce(f64::max)
    };
    // What is known of the type itself counts before what is for all.
    let on = |node_type: &NodeType| of(Some(node_type)).or_else(|| of(None));
    let there = supply.iter().filter_map(|(node_type, count)| Some((on(node_type)?, f64::from(*count))));
    let (sum, count) = there.fold((0.0, 0.0), |(sum, all), (unit, count)| (sum + count * unit, all + count));
    if count > 0.0 { sum / count } else { fastest_unit_rate(rates, sizes) }
}

/// The same on the fastest type: whatever nodes there are, lengths of jobs are told by it.
pub(super) fn fastest_unit_rate(rates: &[RateCurve], sizes: &AllowedSizes) -> f64 {
    rates.iter().map(|r| curves::unit_rate(&r.curve, sizes)).fold(0.0, f64::max)
}

/// How many nodes, or places of such, there are of each type.
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
    fn neither_the_type_that_a_job_is_on_nor_its_plan_changes_what_its_samples_count() {
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
