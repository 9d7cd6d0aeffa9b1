//! The best path of one job through the steps: a dynamic program over its options.
//!
//! What a step earns may be lowered by prices on what it uses, one for each limit; what does not fit earns −∞.

use super::space::Space;

/// What each option of a job earns in each step, without the changes; −∞ where it is not allowed.
pub type Earnings = Vec<Vec<f64>>;

/// Earnings of a job under `prices` (none: all free).
pub fn earnings(space: &Space<'_>, job: usize, prices: Option<&[f64]>) -> Earnings {
    let options = space.jobs[job].options.len();
    let earns = |step: usize, option: usize| {
        if !space.is_allowed(job, option, step) {
            return f64::NEG_INFINITY;
        }
        let gain = match step {
            0 => space.first_gain(job, option),
            _ => space.later_gain(job, option, step),
        };
        let uses = &space.jobs[job].uses[option][step];
        let paid = prices.map_or(0.0, |p| uses.iter().map(|(limit, n)| p[*limit] * f64::from(*n)).sum());
        gain - paid
    };
    (0..space.steps.len()).map(|step| (0..options).map(|o| earns(step, o)).collect()).collect()
}

/// Forbids what does not fit into `left`.
pub fn restrict(space: &Space<'_>, job: usize, left: &[i64], earnings: &mut Earnings) {
    for (step, row) in earnings.iter_mut().enumerate() {
        for (option, earns) in row.iter_mut().enumerate() {
            let uses = &space.jobs[job].uses[option][step];
            if uses.iter().any(|(limit, n)| left[*limit] < i64::from(*n)) {
                *earns = f64::NEG_INFINITY;
            }
        }
    }
}

/// Forbids all options but one in the first step.
pub fn pin(earnings: &mut Earnings, option: usize) {
    for (other, earns) in earnings.iter_mut().take(1).flatten().enumerate() {
        if other != option {
            *earns = f64::NEG_INFINITY;
        }
    }
}

/// The best path, with its score; `None` when there is none, not even to hold nothing.
pub fn best(space: &Space<'_>, job: usize, earnings: &Earnings) -> Option<(Vec<usize>, f64)> {
    let ahead = to_the_end(space, job, earnings);
    let first = ahead.first()?;
    let mut at = (0..first.len()).reduce(|a, b| if first[b] > first[a] { b } else { a })?;
    let score = first[at];
    if score == f64::NEG_INFINITY {
        return None;
    }
    let mut path = vec![at];
    for row in ahead.iter().skip(1) {
        let worth = |to: usize| row[to] - space.jobs[job].change_cost(at, to);
        at = (0..row.len()).reduce(|a, b| if worth(b) > worth(a) { b } else { a })?;
        path.push(at);
    }
    Some((path, score))
}

/// For each step and option, the score of the best path that uses this option in this step.
pub fn through(space: &Space<'_>, job: usize, earnings: &Earnings) -> Vec<Vec<f64>> {
    let mut through = to_the_end(space, job, earnings);
    let mut behind: Option<Vec<f64>> = None;
    for (row, earns) in through.iter_mut().zip(earnings) {
        let arrive = match &behind {
            None => vec![0.0; earns.len()],
            Some(before) => step_from(space, job, before, earns),
        };
        row.iter_mut().zip(&arrive).for_each(|(score, a)| *score += a);
        behind = Some(arrive.iter().zip(earns).map(|(a, e)| a + e).collect());
    }
    through
}

/// For each option of the next step, the best score so far less the change to it.
fn step_from(space: &Space<'_>, job: usize, before: &[f64], earns: &[f64]) -> Vec<f64> {
    let space = &space.jobs[job];
    let froms: Vec<usize> = (0..before.len()).filter(|o| before[*o] > f64::NEG_INFINITY).collect();
    let arrive = |to: usize| {
        let scores = froms.iter().map(|from| before[*from] - space.change_cost(*from, to));
        scores.fold(f64::NEG_INFINITY, f64::max)
    };
    (0..earns.len()).map(|to| if earns[to] > f64::NEG_INFINITY { arrive(to) } else { 0.0 }).collect()
}

/// For each step and option, the best score from there to the end.
fn to_the_end(space: &Space<'_>, job: usize, earnings: &Earnings) -> Vec<Vec<f64>> {
    let space = &space.jobs[job];
    let mut ahead: Vec<Vec<f64>> = Vec::with_capacity(earnings.len());
    for row in earnings.iter().rev() {
        let Some(next) = ahead.last() else {
            ahead.push(row.clone());
            continue;
        };
        let tos: Vec<usize> = (0..next.len()).filter(|o| next[*o] > f64::NEG_INFINITY).collect();
        let onward = |from: usize| {
            let scores = tos.iter().map(|to| next[*to] - space.change_cost(from, *to));
            scores.fold(f64::NEG_INFINITY, f64::max)
        };
        let earn = |(from, earns): (usize, &f64)| {
            if *earns > f64::NEG_INFINITY { earns + onward(from) } else { *earns }
        };
        let here = row.iter().enumerate().map(earn).collect();
        ahead.push(here);
    }
    ahead.reverse();
    ahead
}
