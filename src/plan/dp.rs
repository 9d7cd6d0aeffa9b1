//! A plan without a solver: a dynamic program over jobs for the first step, then each job's best path in turn.
//!
//! With one step, one node type and no scarce budget the dynamic program is exact: a multiple-choice knapsack over
//! nodes. Otherwise it is a good start: it is the plan in hand before the solver is asked, the solver's first
//! incumbent, and what a round falls back to.

use super::path;
use super::space::{Resource, Schedule, Space};

/// Largest number of states of the knapsack (free nodes of each type, changes left). Beyond, the paths alone decide.
const MAX_STATES: usize = 20_000;

/// Largest number of operations of the knapsack: about a tenth of a second.
const MAX_OPERATIONS: usize = 20_000_000;

/// Rounds of improvement after which we stop even if another might still gain.
const MAX_SWEEPS: usize = 6;

/// Relative gain below which two schedules count as equal: rounding errors are smaller, tie bonuses larger.
pub const SAME_SCORE: f64 = 1e-11;

/// The best schedule that we find without a solver, polished. It is always feasible.
pub fn solve(space: &Space<'_>) -> Schedule {
    let keep = polish(space, keep_all(space));
    let Some(choice) = knapsack(space) else { return keep };
    let packed = polish(space, lay_paths(space, &choice));
    if better(space, &packed, &keep) { packed } else { keep }
}

/// Whether `a` is feasible and scores higher than `b` beyond rounding errors.
pub fn better(space: &Space<'_>, a: &Schedule, b: &Schedule) -> bool {
    let (a_score, b_score) = (space.score(a), space.score(b));
    space.is_feasible(a) && a_score > b_score + SAME_SCORE * b_score.abs().max(1.0)
}

/// The schedule in which each job keeps what it has for as long as that lasts; what must change makes the best of what
/// is left.
pub fn keep_all(space: &Space<'_>) -> Schedule {
    let keeps = |job: usize| space.jobs[job].options.iter().position(|o| o.keeps && o.now);
    let choice: Vec<Option<usize>> = (0..space.jobs.len()).map(keeps).collect();
    lay_paths(space, &choice)
}

/// Gives each job in turn its best path that begins with its chosen option: those without freedom first, then those whose
/// option earns most for each node.
fn lay_paths(space: &Space<'_>, choice: &[Option<usize>]) -> Schedule {
    let density = |job: usize| match choice[job] {
        Some(o) => space.first_gain(job, o) / f64::from(space.jobs[job].options[o].nodes.max(1)),
        None => f64::NEG_INFINITY,
    };
    let freedom = |job: usize| space.jobs[job].options.iter().filter(|o| o.now).count() > 1;
    let mut order: Vec<usize> = (0..space.jobs.len()).collect();
    order.sort_by(|a, b| {
        freedom(*a).cmp(&freedom(*b)).then(density(*b).total_cmp(&density(*a))).then(a.cmp(b))
    });
    let mut schedule = rest(space);
    let mut left = space.left(&schedule);
    for job in order {
        space.take(&mut left, job, &schedule[job], -1);
        let pinned = choice[job].and_then(|o| path::best(space, job, &left, Some(o)));
        if let Some((path, _)) = pinned.or_else(|| path::best(space, job, &left, None)) {
            schedule[job] = path;
        }
        space.take(&mut left, job, &schedule[job], 1);
    }
    schedule
}

/// The schedule to start from: jobs keep what they hold through the first step and then nothing; others hold nothing.
/// It uses no budget, so that taking a job out and putting it back is always possible.
fn rest(space: &Space<'_>) -> Schedule {
    let steps = space.steps.len();
    let path = |job: usize| {
        let keeps = space.jobs[job].options.iter().position(|o| o.keeps && o.now).unwrap_or(0);
        (0..steps).map(|step| if step == 0 { keeps } else { 0 }).collect()
    };
    (0..space.jobs.len()).map(path).collect()
}

/// Improves a feasible schedule, one job at a time, until nothing gains.
pub fn polish(space: &Space<'_>, mut schedule: Schedule) -> Schedule {
    let mut left = space.left(&schedule);
    for _ in 0..MAX_SWEEPS {
        let mut gained = false;
        for job in 0..space.jobs.len() {
            let old = space.path_score(job, &schedule[job]);
            space.take(&mut left, job, &schedule[job], -1);
            if let Some((path, score)) = path::best(space, job, &left, None)
                && score > old + SAME_SCORE * old.abs().max(1.0)
            {
                schedule[job] = path;
                gained = true;
            }
            space.take(&mut left, job, &schedule[job], 1);
        }
        gained |= seniors_first(space, &mut schedule);
        left = space.left(&schedule);
        if !gained {
            break;
        }
    }
    schedule
}

/// Where a waiting job could have exactly the path of one that entered the queue later and starts now, they change
/// places if that costs nothing.
fn seniors_first(space: &Space<'_>, schedule: &mut Schedule) -> bool {
    let waits = |job: usize| space.jobs[job].job.held.is_empty();
    let mut by_age: Vec<usize> = (0..space.jobs.len()).filter(|job| waits(*job)).collect();
    by_age.sort_by_key(|job| (space.jobs[*job].job.submitted_at, space.jobs[*job].job.id));
    let mut changed = false;
    for (i, old) in by_age.iter().enumerate() {
        for young in &by_age[i + 1..] {
            if schedule[*old].iter().any(|o| *o != 0) || schedule[*young].iter().all(|o| *o == 0) {
                continue;
            }
            let Some(path) = same_path(space, *young, &schedule[*young], *old) else { continue };
            let mut other = schedule.clone();
            other[*young] = schedule[*old].clone();
            other[*old] = path;
            if space.is_feasible(&other) && space.score(&other) >= space.score(schedule) {
                *schedule = other;
                changed = true;
            }
        }
    }
    changed
}

/// The path of another job that takes the same nodes in each step.
fn same_path(space: &Space<'_>, of: usize, path: &[usize], to: usize) -> Option<Vec<usize>> {
    let same = |option: &usize| {
        let spec = &space.jobs[of].options[*option];
        let alike = |o: &super::options::Spec| (o.nodes, o.node_type) == (spec.nodes, spec.node_type);
        space.jobs[to].options.iter().position(|o| o.family == spec.family && alike(o))
    };
    path.iter().map(same).collect()
}

/// The best option of each job in the first step, each valued by the best path that begins with it, within the nodes of
/// each type and the budget of changes. `None` when there are too many states.
fn knapsack(space: &Space<'_>) -> Option<Vec<Option<usize>>> {
    let limits: Vec<usize> = (0..space.limits.len()).filter(|l| matters(space, *l)).collect();
    let mut states: usize = 1;
    let mut strides = Vec::new();
    for limit in &limits {
        strides.push(states);
        states = states.checked_mul(space.limits[*limit].most as usize + 1)?;
    }
    let operations: usize = space.jobs.iter().map(|j| j.options.len()).sum();
    if states > MAX_STATES || states.saturating_mul(operations) > MAX_OPERATIONS {
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
        let at = index(&state, &strides);
        let option = chosen[job][at]? as usize;
        for (slot, limit) in limits.iter().enumerate() {
            state[slot] -= amount(space, job, option, *limit) as usize;
        }
        choice[job] = Some(option);
    }
    Some(choice)
}

/// Whether the knapsack tells states of this limit apart: nodes in the first step, and the budget if it can bind.
fn matters(space: &Space<'_>, limit: usize) -> bool {
    let limit = &space.limits[limit];
    match limit.of {
        Resource::Nodes(_) => limit.step == 0 && limit.most > 0,
        Resource::Changes => (limit.most as usize) < space.jobs.len(),
        Resource::StartNodes(_) | Resource::Allowed(_) => false,
    }
}

/// An option of the first step: value of the best path that begins with it, and what it takes of each limit.
struct Choice {
    option: u32,
    value: f64,
    takes: Vec<usize>,
}

fn first_values(space: &Space<'_>, job: usize, all: &[i64], limits: &[usize]) -> Vec<Choice> {
    let value = |option: usize| {
        let (_, value) = path::best(space, job, all, Some(option))?;
        let takes = limits.iter().map(|l| amount(space, job, option, *l) as usize).collect();
        Some(Choice { option: option as u32, value, takes })
    };
    (0..space.jobs[job].options.len()).filter_map(value).collect()
}

/// What an option uses of a limit in the first step.
fn amount(space: &Space<'_>, job: usize, option: usize, limit: usize) -> u32 {
    let uses = &space.jobs[job].uses[option][0];
    uses.iter().find(|(l, _)| *l == limit).map_or(0, |(_, n)| *n)
}

fn index(state: &[usize], strides: &[usize]) -> usize {
    state.iter().zip(strides).map(|(s, stride)| s * stride).sum()
}

/// One stage of the knapsack: for each state (what is left of each limit) the best value with this job, and its option.
fn add_job(
    before: &[f64],
    values: &[Choice],
    limits: &[usize],
    strides: &[usize],
    space: &Space<'_>,
) -> (Vec<f64>, Vec<Option<u32>>) {
    let mut best = vec![f64::NEG_INFINITY; before.len()];
    let mut choice = vec![None; before.len()];
    for (at, (best, choice)) in best.iter_mut().zip(&mut choice).enumerate() {
        let has = |slot: usize| at / strides[slot] % (space.limits[limits[slot]].most as usize + 1);
        for value in values {
            if value.takes.iter().enumerate().any(|(slot, n)| *n > has(slot)) {
                continue;
            }
            let sum = value.value + before[at - index(&value.takes, strides)];
            if sum > *best {
                (*best, *choice) = (sum, Some(value.option));
            }
        }
    }
    (best, choice)
}
