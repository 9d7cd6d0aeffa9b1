//! Translation of our program into good_lp's terms.

use good_lp::variable::UnsolvedProblem;
use good_lp::{Expression, ProblemVariables, SolverModel, Variable, constraint, variable};

use crate::plan::program::milp::Milp;

/// The variables and the objective.
pub(super) fn problem(milp: &Milp) -> (UnsolvedProblem, Vec<Variable>) {
    let mut variables = ProblemVariables::new();
    let mut objective = Expression::with_capacity(milp.variables.len());
    let mut all = Vec::with_capacity(milp.variables.len());
    for v in &milp.variables {
        let definition = variable().clamp(v.lower, v.upper);
        let added = variables.add(if v.integer { definition.integer() } else { definition });
        objective.add_mul(v.gain, added);
        all.push(added);
    }
    (variables.maximise(objective), all)
}

/// Adds the rows. good_lp has no two-sided row: an equality is one, other pairs of bounds are two.
pub(super) fn add_rows<M: SolverModel>(model: &mut M, milp: &Milp, variables: &[Variable]) {
    for row in &milp.rows {
        let mut sum = Expression::with_capacity(row.terms.len());
        for (v, factor) in &row.terms {
            if let Some(v) = variables.get(*v) {
                sum.add_mul(*factor, *v);
            }
        }
        if row.lower == row.upper {
            model.add_constraint(constraint!(sum == row.upper));
            continue;
        }
        if row.upper.is_finite() {
            model.add_constraint(constraint!(sum.clone() <= row.upper));
        }
        if row.lower.is_finite() {
            model.add_constraint(constraint!(sum >= row.lower));
        }
    }
}
