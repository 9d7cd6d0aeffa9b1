//! HiGHS, built with good_lp and run directly, because good_lp does not tell the gap at a time limit.

use good_lp::solvers::highs::highs as problem_for_highs;
use highs::{HighsModelStatus, HighsSolutionStatus, Model, SolvedModel};

use super::{Limits, Solution, Solver, SolverError, translate};
use crate::plan::program::milp::{Assignment, Milp};

/// The HiGHS solver, single-threaded and silent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HighsSolver;

impl Solver for HighsSolver {
    fn name(&self) -> &'static str {
        "HiGHS"
    }

    fn solve(
        &self,
        milp: &Milp,
        limits: Limits,
        start: Option<&Assignment>,
    ) -> Result<Solution, SolverError> {
        let (problem, variables) = translate::problem(milp);
        let mut built = problem_for_highs(problem);
        translate::add_rows(&mut built, milp, &variables);
        let mut model = built.try_into_inner().map_err(|e| SolverError::Failed(e.to_string()))?;
        set_options(&mut model, limits)?;
        if let Some(start) = start.filter(|s| s.len() == milp.variables.len()) {
            // A start that HiGHS refuses only costs time.
            let _ = model.try_set_solution(Some(start), None, None, None);
        }
        let solved = model.try_solve().map_err(|e| SolverError::Failed(format!("HiGHS: {e:?}")))?;
        read_solution(&solved)
    }
}

fn set_options(model: &mut Model, limits: Limits) -> Result<(), SolverError> {
    let failed = |key: &str| SolverError::Failed(format!("HiGHS refuses the option {key}"));
    model.make_quiet();
    model.try_set_option("time_limit", limits.secs).map_err(|_| failed("time_limit"))?;
    model.try_set_option("mip_rel_gap", limits.mip_gap).map_err(|_| failed("mip_rel_gap"))?;
    // One thread: the machine that runs slurmctld has better things to do, and the same problem gets the same
    // plan.
    model.try_set_option("threads", 1).map_err(|_| failed("threads"))?;
    model.try_set_option("parallel", "off").map_err(|_| failed("parallel"))
}

fn read_solution(solved: &SolvedModel) -> Result<Solution, SolverError> {
    let optimal = match solved.status() {
        HighsModelStatus::Optimal | HighsModelStatus::ObjectiveBound | HighsModelStatus::ObjectiveTarget => {
            true
        }
        HighsModelStatus::ReachedTimeLimit
        | HighsModelStatus::ReachedIterationLimit
        | HighsModelStatus::ReachedSolutionLimit
        | HighsModelStatus::ReachedInterrupt
        | HighsModelStatus::ReachedMemoryLimit => false,
        HighsModelStatus::Infeasible | HighsModelStatus::UnboundedOrInfeasible => {
            return Err(SolverError::Infeasible);
        }
        other => return Err(SolverError::Failed(format!("HiGHS ended with {other:?}"))),
    };
    if solved.primal_solution_status() != HighsSolutionStatus::Feasible {
        return Err(SolverError::TimeLimit);
    }
    let gap = Some(solved.mip_gap()).filter(|gap| gap.is_finite());
    Ok(Solution { values: solved.get_solution().columns().to_vec(), optimal, gap })
}
