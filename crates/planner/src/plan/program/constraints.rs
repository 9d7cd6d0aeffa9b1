//! The rows of the program.

use super::milp::Milp;
use super::variables::VariableIndex;
use crate::plan::space::decision::DecisionSpace;

/// Adds all rows.
pub(crate) fn add_constraints(space: &DecisionSpace<'_>, index: &VariableIndex, milp: &mut Milp) {
    add_option_rows(index, milp);
    add_limit_rows(space, index, milp);
    add_change_rows(index, milp);
}

/// Each job has exactly one option in each step: Σ_o z[j][s][o] = 1.
fn add_option_rows(index: &VariableIndex, milp: &mut Milp) {
    for options in index.z.iter().flatten() {
        milp.add_equality(options.iter().flatten().map(|z| (*z, 1.0)).collect(), 1.0);
    }
}

/// All jobs together keep each limit: Σ_j Σ_o uses[j][o] z[j][s][o] ≤ most.
fn add_limit_rows(space: &DecisionSpace<'_>, index: &VariableIndex, milp: &mut Milp) {
    for (number, limit) in space.limits.iter().enumerate() {
        let mut terms = Vec::new();
        let mut worst = 0.0;
        for (job, z) in index.z.iter().enumerate() {
            let at = &space.limit_at[limit.step];
            let demands = &mut space.jobs[job].demands.iter();
            let Some(demand) = demands.find(|d| at[d.resource] == Some(number)) else { continue };
            let mut most = 0.0f64;
            for (option, variable) in z[limit.step].iter().enumerate() {
                let amount = demand.amounts[option];
                if let (Some(variable), true) = (variable, amount > 0.0) {
                    terms.push((*variable, amount));
                    most = most.max(amount);
                }
            }
            worst += most;
        }
        // A limit that cannot be reached needs no row.
        if worst > f64::from(limit.most) {
            milp.add_at_most(terms, f64::from(limit.most));
        }
    }
}

/// Who uses an option in a step either used it in the step before, or goes over to it by a change of some
/// kind: z[s][o] ≤ z[s−1][o] + Σ_k v[s][o][k]; and each kind but the dearest only leads from its own options:
/// v[s][o][k] ≤ Σ_{from k} z[s−1][from].
fn add_change_rows(index: &VariableIndex, milp: &mut Milp) {
    for (z, kinds) in index.z.iter().zip(&index.kinds) {
        for step in 1..z.len() {
            for (option, kinds) in kinds[step].iter().enumerate() {
                let (Some(here), false) = (z[step][option], kinds.is_empty()) else { continue };
                let mut terms = vec![(here, 1.0)];
                terms.extend(z[step - 1][option].map(|before| (before, -1.0)));
                terms.extend(kinds.iter().map(|k| (k.variable, -1.0)));
                milp.add_at_most(terms, 0.0);
                for kind in kinds.iter().rev().skip(1) {
                    let mut terms = vec![(kind.variable, 1.0)];
                    terms.extend(kind.from.iter().filter_map(|f| z[step - 1][*f]).map(|z| (z, -1.0)));
                    milp.add_at_most(terms, 0.0);
                }
            }
        }
    }
}
