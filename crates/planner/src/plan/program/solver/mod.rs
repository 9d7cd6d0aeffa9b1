//! The port to mixed-integer solvers: [`Solver`], with one adapter for each cargo feature.

#[cfg(feature = "highs")]
pub(crate) mod highs;
#[cfg(feature = "microlp")]
pub(crate) mod microlp;
#[cfg(any(feature = "highs", feature = "microlp"))]
mod translate;

use crate::plan::program::milp::{Assignment, Milp};

/// How long and how precisely to solve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Time limit, seconds.
    pub secs: f64,
    /// Relative optimality gap that is good enough.
    pub mip_gap: f64,
}

/// What a solver found.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// A value for each variable.
    pub values: Assignment,
    /// Whether it is optimal within the gap that was asked for; otherwise the time limit came first.
    pub optimal: bool,
    /// Relative distance to the bound, if the solver knows it.
    pub gap: Option<f64>,
}

/// Why there is no solution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SolverError {
    /// The time limit came before any solution.
    #[error("no solution within the time limit")]
    TimeLimit,
    /// There is none. A plan that changes nothing always exists, so this means a wrong model.
    #[error("the model has no solution")]
    Infeasible,
    /// The solver failed, in its own words.
    #[error("{0}")]
    Failed(String),
}

/// A mixed-integer solver. It may run as long as `limits` say, so never call it on an async executor.
pub trait Solver: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &'static str;

    /// Maximises `milp`; `start` is a feasible assignment to begin with.
    fn solve(&self, milp: &Milp, limits: Limits, start: Option<&Assignment>)
    -> Result<Solution, SolverError>;
}

/// The solver that this program was built with; HiGHS if there are two, `None` if there is none.
pub fn default_solver() -> Option<Box<dyn Solver>> {
    #[cfg(feature = "highs")]
    return Some(Box::new(highs::HighsSolver));
    #[cfg(all(feature = "microlp", not(feature = "highs")))]
    return Some(Box::new(microlp::Microlp));
    #[cfg(not(any(feature = "highs", feature = "microlp")))]
    None
}
