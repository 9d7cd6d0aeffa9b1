//! Prices for what runs short: Lagrangian relaxation of the limits.
//!
//! With a price on each limit the jobs no longer compete: each takes its best path, and the sum of their
//! scores plus what the limits are worth bounds the optimum from above. Prices rise where more is used than
//! there is, and fall where less is (subgradient steps of Polyak's length, deflected). Three things come of
//! it: a bound, good starts, and options that provably are in no better schedule, which the program can leave
//! out.

use super::path::{self, BranchGains, PathScratch};
use crate::plan::space::{
    decision::{DecisionSpace, Schedule},
    step_table::StepTable,
};

/// Iterations. The bound is within a tenth of what prices can prove by then, and mostly much nearer.
const ITERATIONS: usize = 100;

/// Most options that all iterations look at: some tenths of a second. Where very many jobs compete, prices
/// are farther off.
const MOST_OPERATIONS: usize = 100_000_000;

/// Fewest iterations.
const FEWEST_ITERATIONS: usize = 10;

/// Iterations without a better bound after which steps are halved.
pub(super) const PATIENCE: usize = 6;

/// The same where workers of many jobs are blocks of places: rows for each size of blocks nest, and prices
/// wander from one to the other before they settle. For few jobs, branches settle it sooner.
const BLOCK_ITERATIONS: usize = 300;
const BLOCK_PATIENCE: usize = 12;

/// Length of steps, as a share of Polyak's, at which the bound hardly moves any more.
const LAST_LENGTH: f64 = 0.02;

/// Length of the first steps, as a share of Polyak's.
const FIRST_LENGTH: f64 = 1.5;

/// Share of the last direction that is kept, so that prices do not oscillate (Camerini, Fratta and
/// Maffioli 1975).
const MOMENTUM: f64 = 0.3;

/// Prices, and what they prove.
#[derive(Clone, Debug)]
pub(crate) struct LagrangianBound {
    /// Price of one unit of each limit, weighted samples, not negative.
    pub prices: Vec<f64>,
    /// No schedule scores more than this.
    pub bound: f64,
}

/// For each job, step and option whether it may be part of a better schedule.
pub(crate) type UsefulOptions = Vec<Vec<Vec<bool>>>;

/// Where a search for prices begins, and how long it may take.
#[derive(Clone, Debug)]
pub(crate) struct MultiplierStart<'a> {
    /// The first prices.
    pub prices: Vec<f64>,
    /// What each job earns.
    pub gains: BranchGains<'a>,
    /// Length of the first steps, as a share of Polyak's.
    pub length: f64,
    /// Most iterations.
    pub iterations: usize,
    /// Iterations without a better bound after which steps are halved.
    pub patience: usize,
    /// A bound that is low enough to stop at, whatever is known.
    pub low_enough: f64,
}

impl MultiplierStart<'_> {
    /// The start in the whole space: all is free.
    pub fn whole_space(space: &DecisionSpace<'_>) -> Self {
        let prices = vec![0.0; space.limits.len()];
        let (iterations, patience) = match space.blocks.are_many() {
            true => (BLOCK_ITERATIONS, BLOCK_PATIENCE),
            false => (ITERATIONS, PATIENCE),
        };
        let iterations = limit_iterations(iterations, count_operations(space));
        MultiplierStart {
            prices,
            gains: None,
            length: FIRST_LENGTH,
            iterations,
            patience,
            low_enough: f64::NEG_INFINITY,
        }
    }
}

/// Lowers a number of iterations to what is allowed where each looks at this many options.
pub(crate) fn limit_iterations(iterations: usize, operations: usize) -> usize {
    iterations.min(MOST_OPERATIONS / operations.max(1)).max(FEWEST_ITERATIONS)
}

/// Options that an iteration of prices looks at, counted again for each resource that the job uses.
pub(super) fn count_operations(space: &DecisionSpace<'_>) -> usize {
    let options = space.jobs.iter().map(|job| job.options.len() * (1 + job.demands.len())).sum::<usize>();
    options * space.steps.len()
}

/// Looks for prices with a low bound. `known` is the score of some feasible schedule; `visit` sees each
/// iteration's prices and relaxed schedule, and returns the best known score afterwards. The bound of a
/// branch is −∞ where some job has no path in it.
pub(crate) fn optimize_multipliers(
    space: &DecisionSpace<'_>,
    start: MultiplierStart<'_>,
    known: f64,
    mut visit: impl FnMut(usize, &[f64], &Schedule) -> f64,
) -> LagrangianBound {
    let MultiplierStart { prices, gains, mut length, iterations, patience, low_enough } = start;
    let mut going = SubgradientDescent::new(space, prices);
    let mut best = LagrangianBound { prices: going.prices.clone(), bound: f64::INFINITY };
    let mut known = known;
    let mut stale = 0;
    let mut schedule = vec![Vec::new(); space.jobs.len()];
    let mut scratch = PathScratch::default();
    for iteration in 0..iterations {
        let bound = solve_relaxation(space, gains, &going.prices, &mut schedule, &mut scratch);
        if bound < best.bound {
            best = LagrangianBound { prices: going.prices.clone(), bound };
            stale = 0;
        } else {
            stale += 1;
            if stale % patience == 0 {
                length /= 2.0;
            }
        }
        if length < LAST_LENGTH || bound == f64::NEG_INFINITY {
            break;
        }
        known = visit(iteration, &going.prices, &schedule).max(known);
        if best.bound <= known.max(low_enough)
            || !going.take_step(&space.limits_left(&schedule), length * (bound - known).max(0.0))
        {
            break;
        }
    }
    best
}

/// Prices on their way. Limits are measured by what there is of them: a change and a node-second are no
/// equals.
struct SubgradientDescent {
    prices: Vec<f64>,
    direction: Vec<f64>,
    units: Vec<f64>,
}

impl SubgradientDescent {
    fn new(space: &DecisionSpace<'_>, prices: Vec<f64>) -> Self {
        let units: Vec<f64> = space.limits.iter().map(|l| f64::from(l.most.max(1))).collect();
        SubgradientDescent { prices, direction: vec![0.0; units.len()], units }
    }

    /// Lowers the prices of what is left and raises those of what is short, so far that the bound would fall
    /// by `fall` were it linear. `false` if there is nowhere to go.
    fn take_step(&mut self, left: &[i64], fall: f64) -> bool {
        for (((direction, price), left), unit) in
            self.direction.iter_mut().zip(&self.prices).zip(left).zip(&self.units)
        {
            *direction = *left as f64 / unit + MOMENTUM * *direction;
            if *price <= 0.0 && *direction > 0.0 {
                *direction = 0.0;
            }
        }
        let norm: f64 = self.direction.iter().map(|d| d * d).sum();
        if norm <= 0.0 {
            return false;
        }
        for ((price, direction), unit) in self.prices.iter_mut().zip(&self.direction).zip(&self.units) {
            *price = (*price - fall / norm * direction / unit).max(0.0);
        }
        true
    }
}

/// Each job's best path under the prices, written to `schedule`; returns the bound that they prove.
fn solve_relaxation(
    space: &DecisionSpace<'_>,
    gains: BranchGains<'_>,
    prices: &[f64],
    schedule: &mut Schedule,
    scratch: &mut PathScratch,
) -> f64 {
    let mut bound: f64 = space.limits.iter().zip(prices).map(|(l, price)| f64::from(l.most) * price).sum();
    for (job, path) in schedule.iter_mut().enumerate() {
        match path::priced_path(space, job, gains, prices, scratch, path) {
            Some(score) => bound += score,
            None if gains.is_some() => return f64::NEG_INFINITY,
            None => *path = vec![0; space.steps.len()],
        }
    }
    bound
}

/// What each job makes under prices at best, and at best with each option in each step.
pub(crate) struct OptionScores {
    of_jobs: Vec<(f64, StepTable)>,
    bound: f64,
}

impl OptionScores {
    /// All jobs' scores.
    pub fn new(space: &DecisionSpace<'_>, priced: &LagrangianBound) -> OptionScores {
        OptionScores::in_branch(space, None, priced)
    }

    /// The same in a branch. The bound must be what the prices prove of it.
    pub fn in_branch(
        space: &DecisionSpace<'_>,
        gains: BranchGains<'_>,
        priced: &LagrangianBound,
    ) -> OptionScores {
        let of_job = |job: usize| {
            let earnings = path::branch_earnings(space, job, gains, &priced.prices);
            let through = path::scores_through(space, job, &earnings);
            let best = through.row(0).iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (best, through)
        };
        OptionScores { of_jobs: (0..space.jobs.len()).map(of_job).collect(), bound: priced.bound }
    }

    /// For each job, step and option whether a schedule that uses it there could score more than `known`.
    /// Whatever a path through the option falls short of the job's best path, any schedule with it falls
    /// short of the bound.
    pub fn useful_options(&self, known: f64) -> UsefulOptions {
        let slack = self.drop_tolerance(known);
        let of_job = |(best, through): &(f64, StepTable)| -> Vec<Vec<bool>> {
            through.rows().map(|row| row.iter().map(|score| *score >= best - slack).collect()).collect()
        };
        self.of_jobs.iter().map(of_job).collect()
    }

    /// Whether more than `most` options are useful.
    pub fn exceeds_count(&self, most: usize, known: f64) -> bool {
        let slack = self.drop_tolerance(known);
        let of_job = |(best, through): &(f64, StepTable)| {
            through.rows().flatten().filter(|score| **score >= best - slack).count()
        };
        let mut left = most;
        self.of_jobs.iter().any(|job| match left.checked_sub(of_job(job)) {
            Some(less) => {
                left = less;
                false
            }
            None => true,
        })
    }

    /// Rounding errors of sums of this size must not drop an option.
    fn drop_tolerance(&self, known: f64) -> f64 {
        self.bound - known + 1e-9 * self.bound.abs().max(1.0)
    }
}

/// The options of each job and step that a better schedule may use: see [`OptionScores::useful_options`].
pub(crate) fn useful_options(
    space: &DecisionSpace<'_>,
    priced: &LagrangianBound,
    known: f64,
) -> UsefulOptions {
    OptionScores::new(space, priced).useful_options(known)
}
