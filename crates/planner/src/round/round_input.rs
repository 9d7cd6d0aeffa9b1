//! The input of the planner for one round, and the check of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::{
    PlanningProblem, SiteLimits, Violation, check_plan, explain_plan, last_resort, plan_round,
    plan_without_solver, planned_probes, solver,
};
use infill_model::{
    GapSet, JobId, JobReason, JobVerdict, MalleableJob, Plan, QueuePosition, RoundNote, RoundReport,
    Topology, UnixTime, config::Config,
};

/// What a round may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundConstraints {
    /// Whether jobs may start and grow.
    pub may_grow: bool,
    /// Whether all jobs must be parked.
    pub drain: bool,
    /// Whether the last snapshot was trusted; `false` means that gaps come from an earlier, trusted one.
    pub snapshot_is_trusted: bool,
}

impl RoundConstraints {
    /// No constraints.
    pub const FREE: RoundConstraints =
        RoundConstraints { may_grow: true, drain: false, snapshot_is_trusted: true };
}

/// The whole input of the planner, as plain values.
#[derive(Clone, Debug)]
pub struct RoundInput {
    /// Gaps at the moment of the round.
    pub gaps: Arc<GapSet>,
    /// Malleable jobs with what they may ask for.
    pub jobs: Vec<MalleableJob>,
    /// Jobs that are not part of this round because too many others wait before them.
    pub waiting_in_line: Vec<(JobId, QueuePosition)>,
    /// How switches connect the nodes.
    pub topology: Arc<Topology>,
    /// Moment of the round.
    pub at: UnixTime,
    /// Whether jobs may start and grow.
    pub may_grow: bool,
    /// Whether all jobs must be parked.
    pub drain: bool,
    /// The administrator's limits. The checker judges the plan by them.
    pub limits: SiteLimits,
    /// Notes about the whole round, one sentence each.
    pub notes: Vec<String>,
}

impl RoundInput {
    /// The input in the planner's terms.
    pub fn planning_problem<'a>(&'a self, config: &'a Config) -> PlanningProblem<'a> {
        let gaps = &self.gaps;
        let jobs = &self.jobs;
        let mut problem =
            PlanningProblem::new(self.at, gaps, jobs, &config.planner, config.gaps.min_window_secs);
        problem.may_grow = self.may_grow;
        problem.drain = self.drain;
        problem.topology = Some(&self.topology);
        problem.limits = Some(&self.limits);
        problem
    }

    /// Plans the round with the solver that this program was built with. May take the configured solve time.
    pub fn solve_plan(&self, config: &Config) -> Plan {
        let problem = self.planning_problem(config);
        match solver::default_solver() {
            Some(solver) => plan_round(&problem, solver.as_ref()),
            None => plan_without_solver(&problem, "built without a solver"),
        }
    }

    /// Explains a plan of this input.
    pub fn explain_plan(&self, config: &Config, plan: &Plan) -> RoundReport {
        let mut report = explain_plan(&self.planning_problem(config), plan);
        report.jobs.extend(self.waiting_in_line.iter().map(|(job, place)| {
            let why = JobReason::WaitsForTurn(*place);
            JobVerdict { job: *job, had: 0, gets: 0, why, hosts: None, guarantee: None }
        }));
        report.jobs.sort_by_key(|verdict| verdict.job);
        report.notes.splice(0..0, self.notes.iter().cloned().map(RoundNote::Said));
        report
    }
}

/// A plan that has passed the checker.
#[derive(Clone, Debug)]
pub struct CheckedPlan {
    /// The plan, with true rates and with its probes.
    pub plan: Plan,
    /// Violations of a refused plan that this one replaces; empty if none was refused.
    pub refused: Vec<Violation>,
}

/// Checks what the planner returned: a plan, or a reason in words why it has none. A plan that the checker
/// refuses is replaced by the last resort.
///
/// # Errors
///
/// The violations of the last resort. That is a defect, and nothing may be carried out then.
pub fn check_solved_plan(
    input: &RoundInput,
    config: &Config,
    solved: Result<Plan, &str>,
) -> Result<CheckedPlan, Vec<Violation>> {
    let problem = input.planning_problem(config);
    let (why, refused) = match solved {
        Ok(plan) => match check_plan(&problem, &plan) {
            Ok(()) => {
                let plan = with_true_rates(plan, input, &problem);
                return Ok(CheckedPlan { plan, refused: Vec::new() });
            }
            Err(violations) => ("the checker refused the solver's plan", violations),
        },
        Err(why) => (why, Vec::new()),
    };
    let plan = last_resort(&problem, why);
    check_plan(&problem, &plan)?;
    Ok(CheckedPlan { plan: with_true_rates(plan, input, &problem), refused })
}

/// The plan with the rates that jobs make, instead of those with the bonus of a guarantee, and with its
/// probes.
fn with_true_rates(mut plan: Plan, input: &RoundInput, problem: &PlanningProblem<'_>) -> Plan {
    let mut probes = planned_probes(problem, &plan);
    let by_id: BTreeMap<JobId, &MalleableJob> = input.jobs.iter().map(|job| (job.id, job)).collect();
    for planned in &mut plan.jobs {
        planned.rate =
            by_id.get(&planned.job).map_or(planned.rate, |job| job.rate_without_bonus(planned.rate));
        planned.probe = probes.remove(&planned.job);
    }
    plan
}
