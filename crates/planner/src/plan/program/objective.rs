//! The objective of the program: weighted samples in each step, less what changes cost.

use super::milp::Milp;
use super::variables::VariableIndex;
use crate::plan::space::decision::DecisionSpace;

/// Sets the gain of each variable, so that the gain of an assignment is the score of its schedule.
pub(crate) fn set_objective(space: &DecisionSpace<'_>, index: &VariableIndex, milp: &mut Milp) {
    for (job, steps) in index.z.iter().enumerate() {
        for (step, options) in steps.iter().enumerate() {
            for (option, variable) in options.iter().enumerate() {
                let gain = match step {
                    0 => space.first_gain(job, option),
                    _ => space.later_gain(job, option, step),
                };
                if let Some(variable) = variable {
                    milp.variables[*variable].gain = gain;
                }
                for kind in &index.kinds[job][step][option] {
                    milp.variables[kind.variable].gain = -kind.cost;
                }
            }
        }
    }
}
