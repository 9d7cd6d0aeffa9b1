//! What history and forest say together.

use super::distribution::LengthDistribution;

/// Atoms of what a forest says, beside the history's [`HISTORY_ATOMS`](super::history::HISTORY_ATOMS): their
/// numbers are weights. The history is better at hitting what recurs, the forest at telling long jobs from
/// short ones.
const FOREST_ATOMS: usize = 11;

/// The mixture, with by how much each tree says that its median misses.
pub(super) fn pool_with_forest(mixture: &LengthDistribution, missed: Option<&[f64]>) -> LengthDistribution {
    let middle = mixture.quantile(0.5);
    let grown = missed.and_then(|missed| {
        let all = missed.iter().map(|missed| (middle + missed, 1.0)).collect();
        LengthDistribution::from_weighted(all, FOREST_ATOMS)
    });
    grown.map_or_else(|| mixture.clone(), |grown| grown.pool_with(mixture))
}
