//! Writes the program of a decision space.

use super::milp::Milp;
use super::{constraints, objective, variables};
use crate::plan::{search::multipliers::UsefulOptions, space::decision::DecisionSpace};

/// Writes the program of a space, over the options that are `useful`.
pub(crate) fn write_program(
    space: &DecisionSpace<'_>,
    useful: &UsefulOptions,
) -> (Milp, variables::VariableIndex) {
    let mut milp = Milp::default();
    let index = variables::add_variables(space, useful, &mut milp);
    constraints::add_constraints(space, &index, &mut milp);
    objective::set_objective(space, &index, &mut milp);
    (milp, index)
}
