//! What history and forest say together.

use super::distribution::Lengths;

/// Atoms of what a forest says, beside the history's [`ATOMS`](super::history::ATOMS): their numbers are
/// weights. The history is better at hitting what recurs, the forest at telling long jobs from short ones.
const ATOMS_OF_FOREST: usize = 11;

/// The mixture, with by how much each tree says that its median misses.
pub(super) fn pooled(mixture: &Lengths, missed: Option<&[f64]>) -> Lengths {
    let middle = mixture.quantile(0.5);
    let grown = missed.and_then(|missed| {
        let all = missed.iter().map(|missed| (middle + missed, 1.0)).collect();
        Lengths::of_weighted(all, ATOMS_OF_FOREST)
    });
    grown.map_or_else(|| mixture.clone(), |grown| grown.pooled(mixture))
}
