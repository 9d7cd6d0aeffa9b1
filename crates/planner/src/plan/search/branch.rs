//! Branch and bound: closes the gap that prices leave where few jobs compete for few nodes.
//!
//! A branch is the space with some options of some jobs forbidden in some steps, and prices bound it from
//! above as they bound the whole. The branch with the highest bound is split where its jobs *waver* most:
//! where the sizes that they choose under prices that are nearly right differ most, in what these cost. Each
//! branch begins with the prices of the one that it is a part of. What it finds is improved in the whole
//! space.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::alike::SAME_SCORE;
use super::path::{self, Gains};
use super::prices::{self, Priced, Start, Useful};
use super::starts::lay_priced;
use super::wavering::{Split, Wavering};
use crate::plan::space::{
    decision::{Schedule, Space},
    table::Table,
};

/// Most options that prices look at in all branches together: about a tenth of a second.
const MOST_OPERATIONS: usize = 60_000_000;

/// Beyond so many jobs it is less in proportion: of thousands, branches settle nothing.
const MANY_JOBS: usize = 256;

/// Most branches: what is not closed by then rarely is later.
const MOST_BRANCHES: usize = 2_000;

/// Iterations of prices in a branch.
const ITERATIONS: usize = 16;

/// Length of the first steps of prices in a branch, as a share of Polyak's.
const FIRST_LENGTH: f64 = 1.0;

/// A branch in which nothing wavers is looked at once more if its bound has come down by this share of the
/// gap that is good enough.
const WORTH_MORE: f64 = 1e-3;

/// One side of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cut {
    split: Split,
    /// Whether it forbids what lies above, or the others.
    above: bool,
}

/// A part of the space.
#[derive(Clone, Debug)]
struct Branch {
    /// No schedule of it scores more.
    bound: f64,
    /// Which of two with equal bounds comes first: the one that was made first.
    number: usize,
    /// Prices to begin with.
    prices: Vec<f64>,
    /// What is forbidden.
    cuts: Vec<Cut>,
}

impl Branch {
    /// What each job earns in it.
    fn gains(&self, space: &Space<'_>, whole: &[Table]) -> Vec<Table> {
        let mut gains = whole.to_vec();
        for Cut { split, above } in &self.cuts {
            let Some(row) = gains[split.job].rows_mut().nth(split.step) else { continue };
            for (option, earns) in row.iter_mut().enumerate() {
                if split.is_below(space, option) != *above {
                    *earns = f64::NEG_INFINITY;
                }
            }
        }
        gains
    }
}

impl PartialEq for Branch {
    fn eq(&self, other: &Branch) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Branch {}

impl PartialOrd for Branch {
    fn partial_cmp(&self, other: &Branch) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Branch {
    fn cmp(&self, other: &Branch) -> Ordering {
        self.bound.total_cmp(&other.bound).then(other.number.cmp(&self.number))
    }
}

/// Looks for better schedules than the best `known`; `offer` takes each that is found, and returns the best
/// score that is known then. Returns what no schedule scores more than.
pub(crate) fn search(
    space: &Space<'_>,
    priced: &Priced,
    known: f64,
    offer: impl FnMut(Schedule) -> f64,
) -> f64 {
    let has_path = |job: usize| path::best(space, job, &space.jobs[job].gains).is_some();
    if !(0..space.jobs.len()).all(has_path) {
        return priced.bound;
    }
    let mut search = Search::new(space, priced, known, offer);
    while let Some(branch) = search.open.pop() {
        let is_over = search.iterations < ITERATIONS || search.made > MOST_BRANCHES;
        if is_over || search.is_good_enough(branch.bound) {
            // No other one has a higher bound.
            search.close(branch.bound);
            break;
        }
        search.explore(branch);
    }
    search.closed.max(search.known)
}

/// A search on its way.
struct Search<'a, F> {
    space: &'a Space<'a>,
    /// What each job earns with options that may be part of a better schedule.
    whole: Vec<Table>,
    open: BinaryHeap<Branch>,
    /// How many branches there were.
    made: usize,
    /// The highest bound of those that are done with.
    closed: f64,
    /// The best score that is known.
    known: f64,
    /// Iterations of prices that are left.
    iterations: usize,
    offer: F,
}

impl<'a, F: FnMut(Schedule) -> f64> Search<'a, F> {
    fn new(space: &'a Space<'a>, priced: &Priced, known: f64, offer: F) -> Self {
        let whole = useful_gains(space, &prices::useful(space, priced, known));
        let mut search = Search {
            space,
            whole,
            open: BinaryHeap::new(),
            made: 0,
            closed: f64::NEG_INFINITY,
            known,
            iterations: iterations(space.jobs.len(), prices::operations(space)),
            offer,
        };
        search.push(priced.bound, priced.prices.clone(), Vec::new());
        search
    }

    fn push(&mut self, bound: f64, prices: Vec<f64>, cuts: Vec<Cut>) {
        self.open.push(Branch { bound, number: self.made, prices, cuts });
        self.made += 1;
    }

    fn close(&mut self, bound: f64) {
        self.closed = self.closed.max(bound);
    }

    /// A gap that is good enough, as a score: rounding errors are.
    fn tolerance(&self) -> f64 {
        let share = self.space.problem.config.mip_gap * self.known.abs();
        share.max(SAME_SCORE * self.known.abs().max(1.0))
    }

    fn is_good_enough(&self, bound: f64) -> bool {
        bound <= self.known + self.tolerance()
    }

    /// Lowers the bound of a branch; splits it if it may still have something better.
    fn explore(&mut self, branch: Branch) {
        let gains = branch.gains(self.space, &self.whole);
        let (mut wavering, mut relaxed) = (Wavering::new(self.space), Schedule::new());
        let start = Start {
            prices: branch.prices,
            gains: Some(&gains),
            length: FIRST_LENGTH,
            iterations: ITERATIONS,
            patience: prices::PATIENCE,
        };
        let (known, left) = (self.known, &mut self.iterations);
        let Priced { prices, bound } = prices::search(self.space, start, known, |_, _, schedule| {
            *left -= 1;
            wavering.see(self.space, schedule);
            relaxed.clone_from(schedule);
            known
        });
        let bound = bound.min(branch.bound);
        if self.is_good_enough(bound) {
            return self.close(bound);
        }
        self.lay(Some(&gains), &prices, relaxed);
        match wavering.widest(self.space, &prices) {
            Some(split) => {
                for above in [true, false] {
                    let cuts = branch.cuts.iter().copied().chain([Cut { split, above }]).collect();
                    self.push(bound, prices.clone(), cuts);
                }
            }
            None if bound < branch.bound - WORTH_MORE * self.tolerance() => {
                self.push(bound, prices, branch.cuts);
            }
            None => self.close(bound),
        }
    }

    /// Offers what comes of the branch: what its jobs chose, if that is feasible, and what can be had of it.
    fn lay(&mut self, gains: Gains<'_>, prices: &[f64], relaxed: Schedule) {
        let laid = lay_priced(self.space, gains, prices, &relaxed);
        let chosen = Some(relaxed).filter(|schedule| self.space.is_feasible(schedule));
        for schedule in chosen.into_iter().chain([laid]) {
            self.known = (self.offer)(schedule).max(self.known);
        }
    }
}

/// Iterations of prices in all branches together, of so many jobs whose options are so much to look at.
pub(crate) fn iterations(jobs: usize, operations: usize) -> usize {
    MOST_OPERATIONS / jobs.max(MANY_JOBS) * MANY_JOBS / operations.max(1)
}

/// What each job earns with options that may be part of a better schedule.
fn useful_gains(space: &Space<'_>, useful: &Useful) -> Vec<Table> {
    let of_job = |(job, useful): (usize, &Vec<Vec<bool>>)| {
        let mut gains = space.jobs[job].gains.clone();
        for (row, useful) in gains.rows_mut().zip(useful) {
            let others = row.iter_mut().zip(useful).filter(|(_, useful)| !**useful);
            others.for_each(|(earns, _)| *earns = f64::NEG_INFINITY);
        }
        gains
    };
    useful.iter().enumerate().map(of_job).collect()
}
