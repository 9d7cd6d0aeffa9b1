//! The variables of the program and what they mean; translation of schedules to assignments and back.
//!
//! - `z[j][s][o]`, binary: job j uses option o in step s.
//! - `v[j][s][o][k]`, s ≥ 1, between 0 and 1: job j goes over to option o in step s by a change of kind k.
//!   Given whole z, the cheapest allowed kind is chosen and is whole too.

use super::milp::{Assignment, Milp, MilpVariable};
use crate::plan::{
    search::multipliers::UsefulOptions,
    space::decision::{DecisionSpace, Schedule},
};
use infill_model::ChangeKind;

/// A kind of change to an option that costs the same from all options in `from`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChangeVariable {
    /// Weighted samples that it costs.
    pub cost: f64,
    /// Options that it leads from.
    pub from: Vec<usize>,
    /// Its variable.
    pub variable: usize,
}

/// Where each variable is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VariableIndex {
    /// `z[job][step][option]`; `None` where the program need not consider it.
    pub z: Vec<Vec<Vec<Option<usize>>>>,
    /// `kinds[job][step][option]`, dearest last; empty in the first step.
    pub kinds: Vec<Vec<Vec<Vec<ChangeVariable>>>>,
}

/// Adds all variables, with their gains (see `objective`).
pub(crate) fn add_variables(
    space: &DecisionSpace<'_>,
    useful: &UsefulOptions,
    milp: &mut Milp,
) -> VariableIndex {
    let mut index = VariableIndex::default();
    for (job, useful) in useful.iter().enumerate() {
        let mut z = Vec::new();
        let mut kinds = Vec::new();
        for (step, allowed) in useful.iter().enumerate() {
            z.push(
                allowed.iter().map(|allowed| allowed.then(|| milp.add_variable(binary_variable()))).collect(),
            );
            let before = step.checked_sub(1).and_then(|s| useful.get(s));
            let mut kinds_of_step = Vec::with_capacity(allowed.len());
            for (option, allowed) in allowed.iter().enumerate() {
                kinds_of_step.push(match before {
                    Some(before) if *allowed => add_kinds(space, milp, job, before, option),
                    _ => Vec::new(),
                });
            }
            kinds.push(kinds_of_step);
        }
        index.z.push(z);
        index.kinds.push(kinds);
    }
    index
}

fn binary_variable() -> MilpVariable {
    MilpVariable { lower: 0.0, upper: 1.0, integer: true, gain: 0.0 }
}

fn unit_variable() -> MilpVariable {
    MilpVariable { lower: 0.0, upper: 1.0, integer: false, gain: 0.0 }
}

/// The kinds of change to an option, cheapest first; kinds of equal cost are one.
fn add_kinds(
    space: &DecisionSpace<'_>,
    milp: &mut Milp,
    job: usize,
    before: &[bool],
    to: usize,
) -> Vec<ChangeVariable> {
    let options = &space.jobs[job].options;
    if options[to].nodes == 0 {
        return Vec::new();
    }
    let mut kinds: Vec<ChangeVariable> = Vec::new();
    for from in (0..options.len()).filter(|from| before.get(*from) == Some(&true)) {
        let change = options[from].change_to(&options[to], from == to);
        if change == ChangeKind::None {
            continue;
        }
        let cost = space.jobs[job].change_cost(from, to);
        match kinds.iter_mut().find(|k| k.cost == cost) {
            Some(kind) => kind.from.push(from),
            None => kinds.push(ChangeVariable { cost, from: vec![from], variable: 0 }),
        }
    }
    kinds.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    for kind in &mut kinds {
        kind.variable = milp.add_variable(unit_variable());
    }
    kinds
}

/// The assignment that a schedule means.
pub(crate) fn encode_schedule(
    space: &DecisionSpace<'_>,
    index: &VariableIndex,
    milp: &Milp,
    schedule: &Schedule,
) -> Assignment {
    let mut values = vec![0.0; milp.variables.len()];
    let mut set = |variable: usize| {
        if let Some(value) = values.get_mut(variable) {
            *value = 1.0;
        }
    };
    for (job, path) in schedule.iter().enumerate().take(space.jobs.len()) {
        for (step, option) in path.iter().enumerate() {
            if let Some(z) = index.z[job][step][*option] {
                set(z);
            }
            let Some(before) = step.checked_sub(1).and_then(|s| path.get(s)) else { continue };
            let kinds = &index.kinds[job][step][*option];
            if let Some(kind) = kinds.iter().find(|k| k.from.contains(before)) {
                set(kind.variable);
            }
        }
    }
    values
}

/// The schedule that an assignment means; `None` if some job has no option, or two, in some step.
pub(crate) fn decode_assignment(index: &VariableIndex, values: &[f64]) -> Option<Schedule> {
    let is_set = |z: &Option<usize>| z.and_then(|z| values.get(z)).is_some_and(|value| *value > 0.5);
    let option = |options: &Vec<Option<usize>>| {
        let mut set = (0..options.len()).filter(|o| is_set(&options[*o]));
        set.next().filter(|_| set.next().is_none())
    };
    index.z.iter().map(|steps| steps.iter().map(option).collect()).collect()
}
