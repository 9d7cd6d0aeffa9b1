//! The first step as a multiple-choice knapsack over nodes: exact when there is one step and nothing but
//! nodes of few types and the budget of changes runs short.

use super::path;
use crate::plan::space::{decision::DecisionSpace, resource::LimitedResource};

/// Largest number of states (free nodes of each type, changes left).
const MAX_STATES: usize = 20_000;

/// Largest number of operations where it is exact: some hundredths of a second.
const MAX_OPERATIONS: usize = 20_000_000;

/// Largest number of operations where it is but one start among others: less than a millisecond.
const MAX_OPERATIONS_OF_A_START: usize = 300_000;

/// What the knapsack says.
pub(crate) struct KnapsackResult {
    /// The best option of each job in the first step.
    pub choice: Vec<Option<usize>>,
    /// The optimum over all schedules, where the knapsack is exact: with one step, in which nothing else runs
    /// short.
    pub optimum: Option<f64>,
}

/// The best option of each job in the first step, each valued by the best path that begins with it, within
/// the nodes of each type and the budget of changes. `None` when that takes too long.
pub(crate) fn solve_knapsack(space: &DecisionSpace<'_>) -> Option<KnapsackResult> {
    let limits: Vec<usize> = (0..space.limits.len()).filter(|l| is_knapsack_limit(space, *l)).collect();
    let mut states: usize = 1;
    let mut strides = Vec::new();
    for limit in &limits {
        strides.push(states);
        states = states.checked_mul(space.limits[*limit].most as usize + 1)?;
    }
    let operations: usize = space.jobs.iter().map(|j| j.options.len()).sum();
    let most = if space.steps.len() == 1 { MAX_OPERATIONS } else { MAX_OPERATIONS_OF_A_START };
    if states > MAX_STATES || states.saturating_mul(operations) > most {
        return None;
    }
    let all: Vec<i64> = space.limits.iter().map(|l| i64::from(l.most)).collect();
    let mut best = vec![0.0f64; states];
    let mut chosen: Vec<Vec<Option<u32>>> = Vec::with_capacity(space.jobs.len());
    for job in 0..space.jobs.len() {
        let values = first_values(space, job, &all, &limits);
        let (next, choice) = add_job(&best, &values, &limits, &strides, space);
        best = next;
        chosen.push(choice);
    }
    let mut state: Vec<usize> = limits.iter().map(|l| space.limits[*l].most as usize).collect();
    let mut choice = vec![None; space.jobs.len()];
    for job in (0..space.jobs.len()).rev() {
        let at = state_index(&state, &strides);
        let option = chosen[job][at]? as usize;
        for (slot, limit) in limits.iter().enumerate() {
            state[slot] -= limit_use(space, job, option, *limit) as usize;
        }
        choice[job] = Some(option);
    }
    let whole = space.steps.len() == 1
        && (0..space.limits.len()).all(|l| is_knapsack_limit(space, l) || !can_bind(space, l));
    Some(KnapsackResult { choice, optimum: best.last().copied().filter(|_| whole) })
}

/// Whether the knapsack tells states of this limit apart: nodes in the first step, and the budget if it can
/// bind.
fn is_knapsack_limit(space: &DecisionSpace<'_>, limit: usize) -> bool {
    let limit = &space.limits[limit];
    match limit.resource {
        LimitedResource::Nodes(..) => limit.step == 0 && limit.most > 0,
        LimitedResource::Changes => (limit.most as usize) < space.jobs.len(),
        LimitedResource::StartNodes(..)
        | LimitedResource::Allowed(..)
        | LimitedResource::Cpus(..)
        | LimitedResource::Memory(..) => false,
    }
}

/// Whether a limit could ever be reached.
fn can_bind(space: &DecisionSpace<'_>, limit: usize) -> bool {
    let most = |job: usize| {
        let uses = (0..space.jobs[job].options.len()).map(|option| limit_use(space, job, option, limit));
        uses.max().unwrap_or(0)
    };
    (0..space.jobs.len()).map(most).sum::<i64>() > i64::from(space.limits[limit].most)
}

/// An option of the first step: value of the best path that begins with it, and what it takes of each limit.
struct FirstChoice {
    option: u32,
    value: f64,
    takes: Vec<usize>,
}

fn first_values(space: &DecisionSpace<'_>, job: usize, all: &[i64], limits: &[usize]) -> Vec<FirstChoice> {
    let mut free = path::earnings_table(space, job, None);
    path::forbid_unfitting(space, job, all, &mut free);
    let by_first = path::scores_by_first(space, job, &free);
    let choice = |(option, value): (usize, &f64)| {
        let takes = || limits.iter().map(|l| limit_use(space, job, option, *l) as usize).collect();
        (*value > f64::NEG_INFINITY).then(|| FirstChoice {
            option: option as u32,
            value: *value,
            takes: takes(),
        })
    };
    by_first.iter().enumerate().filter_map(choice).collect()
}

/// What an option uses of a limit in the first step.
fn limit_use(space: &DecisionSpace<'_>, job: usize, option: usize, limit: usize) -> i64 {
    space.option_uses(job, option, 0).find(|(l, _)| *l == limit).map_or(0, |(_, n)| n)
}

fn state_index(state: &[usize], strides: &[usize]) -> usize {
    state.iter().zip(strides).map(|(s, stride)| s * stride).sum()
}

/// One stage of the knapsack: for each state (what is left of each limit) the best value with this job, and
/// its option.
fn add_job(
    before: &[f64],
    values: &[FirstChoice],
    limits: &[usize],
    strides: &[usize],
    space: &DecisionSpace<'_>,
) -> (Vec<f64>, Vec<Option<u32>>) {
    let mut best = vec![f64::NEG_INFINITY; before.len()];
    let mut choice = vec![None; before.len()];
    for (at, (best, choice)) in best.iter_mut().zip(&mut choice).enumerate() {
        let has = |slot: usize| at / strides[slot] % (space.limits[limits[slot]].most as usize + 1);
        for value in values {
            if value.takes.iter().enumerate().any(|(slot, n)| *n > has(slot)) {
                continue;
            }
            let sum = value.value + before[at - state_index(&value.takes, strides)];
            if sum > *best {
                (*best, *choice) = (sum, Some(value.option));
            }
        }
    }
    (best, choice)
}
