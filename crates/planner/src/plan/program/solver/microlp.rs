//! microlp, the pure-Rust solver.

use good_lp::solvers::microlp::microlp as problem_for_microlp;
use good_lp::solvers::{SolutionStatus, WithMipGap, WithTimeLimit};
use good_lp::{ResolutionError, Solution as _, SolverModel, WithInitialSolution};

use super::{Limits, Solution, Solver, SolverError, translate};
use crate::plan::program::milp::{Assignment, Milp};

/// The microlp solver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Microlp;

impl Solver for Microlp {
    fn name(&self) -> &'static str {
        "microlp"
    }

    fn solve(
        &self,
        milp: &Milp,
        limits: Limits,
        start: Option<&Assignment>,
    ) -> Result<Solution, SolverError> {
        let (problem, variables) = translate::problem(milp);
        let mut model = problem_for_microlp(problem).with_time_limit(limits.secs);
        if let Some(start) = start {
            model = model.with_initial_solution(variables.iter().copied().zip(start.iter().copied()));
        }
        model = model
            .with_mip_gap(limits.mip_gap as f32)
            .map_err(|_| SolverError::Failed("microlp refuses the gap".to_owned()))?;
        translate::add_rows(&mut model, milp, &variables);
        let solved = model.solve().map_err(|e| match e {
            ResolutionError::Infeasible => SolverError::Infeasible,
            ResolutionError::Other(_) => SolverError::TimeLimit,
            e => SolverError::Failed(e.to_string()),
        })?;
        let optimal = !matches!(solved.status(), SolutionStatus::TimeLimit);
        let values = variables.iter().map(|v| solved.value(*v)).collect();
        Ok(Solution { values, optimal, gap: None })
    }
}
