//! Branch and bound: closes the gap that prices leave where few jobs compete for few nodes.
//!
//! A branch is the space with some options of some jobs forbidden in some steps, and prices bound it from
//! above as they bound the whole. The branch with the highest bound is split where its jobs *waver* most:
//! where the sizes that they choose under prices that are nearly right differ most, in what these cost. Each
//! branch begins with the prices of the one that it is a part of. What it finds is improved in the whole
//! space.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::branching::{BranchSplit, ChoiceVariance};
use super::initial_schedules::schedule_from_multipliers;
use super::multipliers::{self, LagrangianBound, MultiplierStart, UsefulOptions};
use super::path::{self, BranchGains};
use super::tolerance::SAME_SCORE;
use crate::plan::space::{
    decision::{DecisionSpace, Schedule},
    step_table::StepTable,
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
struct BranchCut {
    split: BranchSplit,
    /// Whether it forbids what lies above, or the others.
    above: bool,
}

/// A part of the space.
#[derive(Clone, Debug)]
struct SearchBranch {
    /// No schedule of it scores more.
    bound: f64,
    /// Which of two with equal bounds comes first: the one that was made first.
    number: usize,
    /// Prices to begin with.
    prices: Vec<f64>,
    /// What is forbidden.
    cuts: Vec<BranchCut>,
}

impl SearchBranch {
    /// What each job earns in it.
    fn restricted_gains(&self, space: &DecisionSpace<'_>, whole: &[StepTable]) -> Vec<StepTable> {
        let mut gains = whole.to_vec();
        for BranchCut { split, above } in &self.cuts {
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

impl PartialEq for SearchBranch {
    fn eq(&self, other: &SearchBranch) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SearchBranch {}

impl PartialOrd for SearchBranch {
    fn partial_cmp(&self, other: &SearchBranch) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SearchBranch {
    fn cmp(&self, other: &SearchBranch) -> Ordering {
        self.bound.total_cmp(&other.bound).then(other.number.cmp(&self.number))
    }
}

/// Looks for better schedules than the best `known`; `offer` takes each that is found, and returns the best
/// score that is known then. Returns what no schedule scores more than.
pub(crate) fn branch_and_bound(
    space: &DecisionSpace<'_>,
    priced: &LagrangianBound,
    known: f64,
    offer: impl FnMut(Schedule) -> f64,
) -> f64 {
    let has_path = |job: usize| path::best_path(space, job, &space.jobs[job].gains).is_some();
    if !(0..space.jobs.len()).all(has_path) {
        return priced.bound;
    }
    let mut search = BranchSearch::new(space, priced, known, offer);
    while let Some(branch) = search.open.pop() {
        let is_over = search.iterations < ITERATIONS || search.made > MOST_BRANCHES;
        if is_over || search.is_good_enough(branch.bound) {
            // No other one has a higher bound.
            search.close_branch(branch.bound);
            break;
        }
        search.explore_branch(branch);
    }
    search.closed.max(search.known)
}

/// A search on its way.
struct BranchSearch<'a, F> {
    space: &'a DecisionSpace<'a>,
    /// What each job earns with options that may be part of a better schedule.
    whole: Vec<StepTable>,
    open: BinaryHeap<SearchBranch>,
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

impl<'a, F: FnMut(Schedule) -> f64> BranchSearch<'a, F> {
    fn new(space: &'a DecisionSpace<'a>, priced: &LagrangianBound, known: f64, offer: F) -> Self {
        let whole = useful_gains(space, &multipliers::useful_options(space, priced, known));
        let mut search = BranchSearch {
            space,
            whole,
            open: BinaryHeap::new(),
            made: 0,
            closed: f64::NEG_INFINITY,
            known,
            iterations: iteration_budget(space.jobs.len(), multipliers::count_operations(space)),
            offer,
        };
        search.push_branch(priced.bound, priced.prices.clone(), Vec::new());
        search
    }

    fn push_branch(&mut self, bound: f64, prices: Vec<f64>, cuts: Vec<BranchCut>) {
        self.open.push(SearchBranch { bound, number: self.made, prices, cuts });
        self.made += 1;
    }

    fn close_branch(&mut self, bound: f64) {
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
    fn explore_branch(&mut self, branch: SearchBranch) {
        let gains = branch.restricted_gains(self.space, &self.whole);
        let (mut wavering, mut relaxed) = (ChoiceVariance::new(self.space), Schedule::new());
        let start = MultiplierStart {
            prices: branch.prices,
            gains: Some(&gains),
            length: FIRST_LENGTH,
            iterations: ITERATIONS,
            patience: multipliers::PATIENCE,
        };
        let (known, left) = (self.known, &mut self.iterations);
        let LagrangianBound { prices, bound } =
            multipliers::optimize_multipliers(self.space, start, known, |_, _, schedule| {
                *left -= 1;
                wavering.add_schedule(self.space, schedule);
                relaxed.clone_from(schedule);
                known
            });
        let bound = bound.min(branch.bound);
        if self.is_good_enough(bound) {
            return self.close_branch(bound);
        }
        self.offer_from_branch(Some(&gains), &prices, relaxed);
        match wavering.widest_split(self.space, &prices) {
            Some(split) => {
                for above in [true, false] {
                    let cuts = branch.cuts.iter().copied().chain([BranchCut { split, above }]).collect();
                    self.push_branch(bound, prices.clone(), cuts);
                }
            }
            None if bound < branch.bound - WORTH_MORE * self.tolerance() => {
                self.push_branch(bound, prices, branch.cuts);
            }
            None => self.close_branch(bound),
        }
    }

    /// Offers what comes of the branch: what its jobs chose, if that is feasible, and what can be had of it.
    fn offer_from_branch(&mut self, gains: BranchGains<'_>, prices: &[f64], relaxed: Schedule) {
        let laid = schedule_from_multipliers(self.space, gains, prices, &relaxed);
        let chosen = Some(relaxed).filter(|schedule| self.space.is_feasible(schedule));
        for schedule in chosen.into_iter().chain([laid]) {
            self.known = (self.offer)(schedule).max(self.known);
        }
    }
}

/// Iterations of prices in all branches together, of so many jobs whose options are so much to look at.
pub(crate) fn iteration_budget(jobs: usize, operations: usize) -> usize {
    MOST_OPERATIONS / jobs.max(MANY_JOBS) * MANY_JOBS / operations.max(1)
}

/// What each job earns with options that may be part of a better schedule.
fn useful_gains(space: &DecisionSpace<'_>, useful: &UsefulOptions) -> Vec<StepTable> {
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
