//! Prices for what runs short: Lagrangian relaxation of the limits.
//!
//! With a price on each limit the jobs no longer compete: each takes its best path, and the sum of their scores plus what
//! the limits are worth bounds the optimum from above. Prices rise where more is used than there is, and fall where
//! less is (subgradient steps of Polyak's length). Three things come of it: a bound, good starts, and options that
//! provably are in no better schedule, which the program can leave out.

use super::path;
use super::space::{Schedule, Space};
use super::variables::Useful;

/// Iterations. The bound is within a few per mille by then; the solver does the rest.
const ITERATIONS: usize = 60;

/// Iterations without a better bound after which steps are halved.
const PATIENCE: usize = 6;

/// Prices, and what they prove.
#[derive(Clone, Debug)]
pub struct Priced {
    /// Price of one unit of each limit, weighted samples, not negative.
    pub prices: Vec<f64>,
    /// No schedule scores more than this.
    pub bound: f64,
}

/// Looks for prices with a low bound. `known` is the score of some feasible schedule; `visit` sees each iteration's prices
/// and relaxed schedule, and returns the best known score afterwards.
pub fn search(
    space: &Space<'_>,
    known: f64,
    mut visit: impl FnMut(usize, &[f64], &Schedule) -> f64,
) -> Priced {
    let mut prices = vec![0.0; space.limits.len()];
    let mut best = Priced { prices: prices.clone(), bound: f64::INFINITY };
    let (mut known, mut length, mut stale) = (known, 1.0, 0);
    for iteration in 0..ITERATIONS {
        let (schedule, bound) = relax(space, &prices);
        if bound < best.bound {
            best = Priced { prices: prices.clone(), bound };
            stale = 0;
        } else {
            stale += 1;
            if stale % PATIENCE == 0 {
                length /= 2.0;
            }
        }
        known = visit(iteration, &prices, &schedule).max(known);
        let left = space.left(&schedule);
        let norm: f64 = left
            .iter()
            .zip(&prices)
            .filter(|(l, p)| **l < 0 || **p > 0.0)
            .map(|(l, _)| (*l * *l) as f64)
            .sum();
        if norm == 0.0 || best.bound <= known {
            break;
        }
        let step = length * (bound - known).max(0.0) / norm;
        prices
            .iter_mut()
            .zip(&left)
            .for_each(|(price, left)| *price = (*price - step * *left as f64).max(0.0));
    }
    best
}

/// Each job's best path under the prices, and the bound that they prove.
fn relax(space: &Space<'_>, prices: &[f64]) -> (Schedule, f64) {
    let mut bound: f64 = space.limits.iter().zip(prices).map(|(l, price)| f64::from(l.most) * price).sum();
    let mut schedule = Vec::with_capacity(space.jobs.len());
    for job in 0..space.jobs.len() {
        let earnings = path::earnings(space, job, Some(prices));
        let best = path::best(space, job, &earnings);
        let (path, score) = best.unwrap_or_else(|| (vec![0; space.steps.len()], 0.0));
        bound += score;
        schedule.push(path);
    }
    (schedule, bound)
}

/// For each job, step and option whether a schedule that uses it there could score more than `known`. Whatever a path
/// through the option falls short of the job's best path, any schedule with it falls short of the bound.
pub fn useful(space: &Space<'_>, priced: &Priced, known: f64) -> Useful {
    let slack = priced.bound - known;
    let of_job = |job: usize| -> Vec<Vec<bool>> {
        let earnings = path::earnings(space, job, Some(&priced.prices));
        let through = path::through(space, job, &earnings);
        let best = through.first().into_iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        // Rounding errors of sums of this size must not drop an option.
        let slack = slack + 1e-9 * priced.bound.abs().max(1.0);
        through.iter().map(|row| row.iter().map(|score| *score >= best - slack).collect()).collect()
    };
    (0..space.jobs.len()).map(of_job).collect()
}
