//! Branch and bound: closes the gap that prices leave where few jobs compete for few nodes.
//!
//! A branch is the space with some options of some jobs forbidden in some steps, and prices bound it from
//! above as they bound the whole. The branch with the highest bound is split where its jobs *waver* most (see
//! `branching`). Each branch begins with the prices of the one that it is a part of. What cannot be part of a
//! better schedule of a branch is forbidden in all its parts. All this works in a space without useless
//! options; what it finds is improved in the whole space.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

use super::branching::{BranchSplit, ChoiceVariance};
use super::initial_schedules::schedule_from_multipliers;
use super::local_search::repeat_sweeps;
use super::multipliers::{self, LagrangianBound, MultiplierStart, OptionScores};
use super::path::{self, BranchGains};
use super::reduced_space::ReducedSpace;
use super::tolerance::SAME_SCORE;
use crate::plan::space::{
    decision::{DecisionSpace, Schedule},
    step_table::StepTable,
};

/// Most options that prices look at in all branches together: about a tenth of a second.
const MOST_OPERATIONS: usize = 60_000_000;

/// Most jobs for which branches get more work than that: their gap is larger, and each branch settles more.
const FEW_JOBS: usize = 24;

/// How much more work branches get for few jobs, in halves.
const FEW_JOBS_HALVES: usize = 3;

/// The same for few jobs on several types of nodes: the gap is largest there.
const TYPES_HALVES: usize = 6;

/// Jobs from which on the work falls in proportion: for thousands of jobs, branches settle nothing.
const MANY_JOBS: usize = 256;

/// Most branches: a gap that is open by then rarely closes later.
const MOST_BRANCHES: usize = 2_000;

/// Iterations of prices in a branch.
const ITERATIONS: usize = 24;

/// Length of the first steps of prices in a branch, as a share of Polyak's.
const FIRST_LENGTH: f64 = 1.0;

/// A branch in which nothing wavers is looked at once more if its bound has come down by this share of the
/// gap that is good enough.
const WORTH_MORE: f64 = 1e-3;

/// A branch is put back once its bound falls below that of the next one by this share of its gap.
const WORTH_WAITING: f64 = 0.1;

/// A schedule is improved in the whole space if it falls short of the best by no more than this share.
const WORTH_OFFERING: f64 = 3e-3;

/// One side of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BranchCut {
    split: BranchSplit,
    /// Whether it has the options of the group, or the others.
    inside: bool,
}

/// A part of the space.
#[derive(Clone, Debug)]
struct SearchBranch {
    /// No schedule of it scores more.
    bound: f64,
    /// Breaks ties between equal bounds: the older branch comes first.
    number: usize,
    /// Prices to begin with.
    prices: Rc<Vec<f64>>,
    /// What each job earns in the branch that was split.
    gains: Rc<Vec<StepTable>>,
    /// What else is forbidden.
    cut: Option<BranchCut>,
}

impl SearchBranch {
    /// What each job earns in it.
    fn restricted_gains(&self, space: &DecisionSpace<'_>) -> Vec<StepTable> {
        let mut gains = self.gains.as_ref().clone();
        let Some(BranchCut { split, inside }) = self.cut else { return gains };
        if let Some(row) = gains[split.job].rows_mut().nth(split.step) {
            for (option, earns) in row.iter_mut().enumerate() {
                if split.has_option(space, option) != inside {
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
    let reduced = ReducedSpace::from_useful(space, &multipliers::useful_options(space, priced, known));
    let mut search = BranchSearch::new(&reduced, priced, known, offer);
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
    reduced: &'a ReducedSpace<'a>,
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
    fn new(reduced: &'a ReducedSpace<'a>, priced: &LagrangianBound, known: f64, offer: F) -> Self {
        let space = &reduced.space;
        let halves = match space.jobs.len() {
            0..=FEW_JOBS if space.types.len() > 1 => TYPES_HALVES,
            0..=FEW_JOBS => FEW_JOBS_HALVES,
            _ => 2,
        };
        let mut search = BranchSearch {
            reduced,
            open: BinaryHeap::new(),
            made: 0,
            closed: f64::NEG_INFINITY,
            known,
            iterations: halves * iteration_budget(space.jobs.len(), multipliers::count_operations(space)) / 2,
            offer,
        };
        let gains = Rc::new(space.jobs.iter().map(|job| job.gains.clone()).collect());
        search.push_branch(priced.bound, Rc::new(priced.prices.clone()), gains, None);
        search
    }

    fn push_branch(
        &mut self,
        bound: f64,
        prices: Rc<Vec<f64>>,
        gains: Rc<Vec<StepTable>>,
        cut: Option<BranchCut>,
    ) {
        self.open.push(SearchBranch { bound, number: self.made, prices, gains, cut });
        self.made += 1;
    }

    fn close_branch(&mut self, bound: f64) {
        self.closed = self.closed.max(bound);
    }

    /// A gap that is good enough, as a score: rounding errors are.
    fn tolerance(&self) -> f64 {
        let share = self.reduced.space.problem.config.mip_gap * self.known.abs();
        share.max(SAME_SCORE * self.known.abs().max(1.0))
    }

    /// A bound at which another branch has become more urgent than this one. Its own comes down further only
    /// if its turn comes again.
    fn low_enough(&self, branch: &SearchBranch) -> f64 {
        let margin = self.tolerance() + WORTH_WAITING * (branch.bound - self.known);
        self.open.peek().map_or(f64::NEG_INFINITY, |next| next.bound - margin)
    }

    fn is_good_enough(&self, bound: f64) -> bool {
        bound <= self.known + self.tolerance()
    }

    /// Lowers the bound of a branch; splits it if it may still have something better.
    fn explore_branch(&mut self, branch: SearchBranch) {
        let space = &self.reduced.space;
        let mut gains = branch.restricted_gains(space);
        let mut wavering = ChoiceVariance::new(space);
        let mut relaxed = Schedule::new();
        let low_enough = self.low_enough(&branch);
        let start = MultiplierStart {
            prices: branch.prices.as_ref().clone(),
            gains: Some(&gains),
            length: FIRST_LENGTH,
            iterations: ITERATIONS,
            patience: multipliers::PATIENCE,
            low_enough,
        };
        let known = self.known;
        let left = &mut self.iterations;
        let found = multipliers::optimize_multipliers(space, start, known, |_, _, schedule| {
            *left = left.saturating_sub(1);
            wavering.add_schedule(space, schedule);
            relaxed.clone_from(schedule);
            known
        });
        let bound = found.bound.min(branch.bound);
        if self.is_good_enough(bound) {
            return self.close_branch(bound);
        }
        if bound <= low_enough {
            return self.push_branch(bound, Rc::new(found.prices), Rc::new(gains), None);
        }
        self.offer_from_branch(Some(&gains), &found.prices, &relaxed);
        let split = wavering.widest_split(space, &found.prices);
        if split.is_none() && bound >= branch.bound - WORTH_MORE * self.tolerance() {
            return self.close_branch(bound);
        }
        forbid_useless(space, &mut gains, &found, self.known);
        let gains = Rc::new(gains);
        let prices = Rc::new(found.prices);
        match split {
            Some(split) => {
                for inside in [true, false] {
                    let cut = Some(BranchCut { split, inside });
                    self.push_branch(bound, prices.clone(), gains.clone(), cut);
                }
            }
            None => self.push_branch(bound, prices, gains, None),
        }
    }

    /// Offers the schedules of the branch: the choice of its jobs if that is feasible, and one made from it.
    fn offer_from_branch(&mut self, gains: BranchGains<'_>, prices: &[f64], relaxed: &Schedule) {
        let space = &self.reduced.space;
        let laid = schedule_from_multipliers(space, gains, prices, relaxed);
        let chosen = Some(relaxed.clone()).filter(|schedule| space.is_feasible(schedule));
        for mut schedule in chosen.into_iter().chain([laid]) {
            repeat_sweeps(space, &mut schedule);
            if space.score(&schedule) >= self.known - WORTH_OFFERING * self.known.abs() {
                self.known = (self.offer)(self.reduced.restore_schedule(&schedule)).max(self.known);
            }
        }
    }
}

/// Forbids what cannot be part of a schedule of a branch that scores more than `known`.
fn forbid_useless(space: &DecisionSpace<'_>, gains: &mut [StepTable], priced: &LagrangianBound, known: f64) {
    let useful = OptionScores::in_branch(space, Some(gains), priced).useful_options(known);
    for (gains, useful) in gains.iter_mut().zip(&useful) {
        for (row, useful) in gains.rows_mut().zip(useful) {
            let others = row.iter_mut().zip(useful).filter(|(_, useful)| !**useful);
            others.for_each(|(earns, _)| *earns = f64::NEG_INFINITY);
        }
    }
}

/// Iterations of prices in all branches together, if each does this many operations.
pub(crate) fn iteration_budget(jobs: usize, operations: usize) -> usize {
    MOST_OPERATIONS / jobs.max(MANY_JOBS) * MANY_JOBS / operations.max(1)
}
