//! The question that a round asks of the planner, and the answer judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::{
    PlanningProblem, Violation, check_plan, explain_plan, last_resort, plan_round, plan_without_solver,
    planned_probes, solver,
};
use infill_model::{
    GapSet, JobId, JobReason, JobVerdict, MalleableJob, Plan, QueuePosition, RoundNote, RoundReport,
    Topology, UnixTime, config::Config,
};

/// What may be done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundConstraints {
    /// Whether jobs may start and grow.
    pub may_grow: bool,
    /// Whether all shall be parked.
    pub drain: bool,
    /// Whether the scene shows what Slurm says now, rather than what it said when it was last believed.
    pub trusted: bool,
}

impl RoundConstraints {
    /// Nothing is forbidden.
    pub const FREE: RoundConstraints = RoundConstraints { may_grow: true, drain: false, trusted: true };
}

/// What the planner is asked, whole: everything in it is a value.
#[derive(Clone, Debug)]
pub struct RoundInput {
    /// Gaps.
    pub gaps: Arc<GapSet>,
    /// Malleable jobs.
    pub jobs: Vec<MalleableJob>,
    /// Jobs that wait behind so many others that they are no part of this round.
    pub in_line: Vec<(JobId, QueuePosition)>,
    /// How nodes hang together.
    pub topology: Arc<Topology>,
    /// Moment of the round.
    pub at: UnixTime,
    /// Whether jobs may start and grow.
    pub may_grow: bool,
    /// Whether all shall be parked.
    pub drain: bool,
    /// What concerns the whole round.
    pub notes: Vec<String>,
}

impl RoundInput {
    /// The question in the planner's terms.
    pub fn planning_problem<'a>(&'a self, config: &'a Config) -> PlanningProblem<'a> {
        let gaps = &self.gaps;
        let jobs = &self.jobs;
        let mut problem =
            PlanningProblem::new(self.at, gaps, jobs, &config.planner, config.gaps.min_window_secs);
        (problem.may_grow, problem.drain) = (self.may_grow, self.drain);
        problem.topology = Some(&self.topology);
        problem
    }

    /// Asks the planner with the solver that this program was built with. May take the configured solve time.
    pub fn solve_plan(&self, config: &Config) -> Plan {
        let problem = self.planning_problem(config);
        match solver::default_solver() {
            Some(solver) => plan_round(&problem, solver.as_ref()),
            None => plan_without_solver(&problem, "built without a solver"),
        }
    }

    /// Says why a plan of this question is as it is.
    pub fn explain_plan(&self, config: &Config, plan: &Plan) -> RoundReport {
        let mut report = explain_plan(&self.planning_problem(config), plan);
        report.jobs.extend(self.in_line.iter().map(|(job, place): &(JobId, QueuePosition)| {
            let why = JobReason::WaitsForTurn(*place);
            JobVerdict { job: *job, had: 0, gets: 0, why, hosts: None, assured: None }
        }));
        report.jobs.sort_by_key(|verdict| verdict.job);
        report.notes.splice(0..0, self.notes.iter().cloned().map(RoundNote::Said));
        report
    }
}

/// A plan that has passed the checker, and what the checker said of one that had not.
#[derive(Clone, Debug)]
pub struct CheckedPlan {
    /// The plan.
    pub plan: Plan,
    /// Violations of the plan that was refused for this one.
    pub refused: Vec<Violation>,
}

/// Judges what the planner answered, or failed to answer for a reason in words: what the checker refuses
/// gives way to the last resort.
///
/// # Errors
/// The violations of the last resort, which is a defect: nothing may be done then.
pub fn check_solved_plan(
    question: &RoundInput,
    config: &Config,
    solved: Result<Plan, &str>,
) -> Result<CheckedPlan, Vec<Violation>> {
    let problem = question.planning_problem(config);
    let (why, refused) = match solved {
        Ok(plan) => match check_plan(&problem, &plan) {
            Ok(()) => {
                return Ok(CheckedPlan {
                    plan: with_true_rates(plan, question, &problem),
                    refused: Vec::new(),
                });
            }
            Err(violations) => ("the checker refused the solver's plan", violations),
        },
        Err(why) => (why, Vec::new()),
    };
    let plan = last_resort(&problem, why);
    check_plan(&problem, &plan)?;
    Ok(CheckedPlan { plan: with_true_rates(plan, question, &problem), refused })
}

/// The plan with the rates that jobs make, rather than those that are counted where some are assured, and
/// with what it tries.
fn with_true_rates(mut plan: Plan, question: &RoundInput, problem: &PlanningProblem<'_>) -> Plan {
    let mut probes = planned_probes(problem, &plan);
    let by_id: BTreeMap<JobId, &MalleableJob> = question.jobs.iter().map(|job| (job.id, job)).collect();
    for planned in &mut plan.jobs {
        planned.rate =
            by_id.get(&planned.job).map_or(planned.rate, |job| job.rate_without_bonus(planned.rate));
        planned.probe = probes.remove(&planned.job);
    }
    plan
}
