//! The best path of one job through the steps, when what the others leave is given: a dynamic program over options.

use super::space::Space;

/// The best path of a job within `left`, with its score; `first` pins the option of the first step. `None` when nothing
/// fits, not even to hold nothing.
pub fn best(space: &Space<'_>, job: usize, left: &[i64], first: Option<usize>) -> Option<(Vec<usize>, f64)> {
    let steps = space.steps.len();
    let fits = |step: usize| -> Vec<usize> {
        let all = 0..space.jobs[job].options.len();
        all.filter(|o| step > 0 || first.is_none_or(|f| f == *o))
            .filter(|o| space.fits(left, job, *o, step))
            .collect()
    };
    // reached: for each option that fits in the step, the best score so far and the option before it.
    let mut reached: Vec<Vec<(usize, f64, usize)>> = Vec::with_capacity(steps);
    for step in 0..steps {
        let here = fits(step);
        let layer = match reached.last() {
            None => here.into_iter().map(|o| (o, space.first_gain(job, o), 0)).collect(),
            Some(before) => here.into_iter().filter_map(|o| arrive(space, job, before, o, step)).collect(),
        };
        reached.push(layer);
    }
    let last = reached.last()?;
    let mut at = (0..last.len()).reduce(|a, b| if last[b].1 > last[a].1 { b } else { a })?;
    let score = last[at].1;
    let mut path = Vec::with_capacity(steps);
    for layer in reached.iter().rev() {
        let (option, _, before) = layer[at];
        path.push(option);
        at = before;
    }
    path.reverse();
    Some((path, score))
}

/// The best way to arrive at an option: its score and the position of the option before it.
fn arrive(
    space: &Space<'_>,
    job: usize,
    before: &[(usize, f64, usize)],
    option: usize,
    step: usize,
) -> Option<(usize, f64, usize)> {
    let scores = before.iter().map(|(from, score, _)| score - space.change_cost(job, *from, option));
    let (at, score) = scores.enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    Some((option, score + space.later_gain(job, option, step), at))
}
