//! The pooled prediction of history and forest.

use super::distribution::LengthDistribution;

/// Atoms of a forest's prediction, beside the history's
/// [`HISTORY_ATOMS`](super::length_history::HISTORY_ATOMS). Their numbers are weights. The history predicts
/// recurring jobs better, and the forest tells long jobs from short ones better.
const FOREST_ATOMS: usize = 11;

/// Pools the mixture of the history with a forest's prediction: for each tree, by how much the logarithm of
/// the length differs from the mixture's median.
pub(super) fn pool_with_forest(
    mixture: &LengthDistribution,
    differences: Option<&[f64]>,
) -> LengthDistribution {
    let median = mixture.quantile(0.5);
    let forest = differences.and_then(|differences| {
        let all = differences.iter().map(|difference| (median + difference, 1.0)).collect();
        LengthDistribution::from_weighted(all, FOREST_ATOMS)
    });
    forest.map_or_else(|| mixture.clone(), |forest| forest.pool_with(mixture))
}
