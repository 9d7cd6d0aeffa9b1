//! Writes the program of a decision space.

use super::milp::Milp;
use super::{constraints, objective, variables};
use crate::plan::{search::prices::Useful, space::decision::Space};

/// Writes the program of a space, over the options that are `useful`.
pub(crate) fn write(space: &Space<'_>, useful: &Useful) -> (Milp, variables::Index) {
    let mut milp = Milp::default();
    let index = variables::add(space, useful, &mut milp);
    constraints::add(space, &index, &mut milp);
    objective::set(space, &index, &mut milp);
    (milp, index)
}
