//! The question that a round asks of the planner, and the answer judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::{Problem, Violation, check, explain, fallback, last_resort, plan, probes, solver};
use infill_model::{
    GapSet, JobId, JobReason, JobVerdict, MalleableJob, Plan, QueuePosition, RoundNote, RoundReport,
    Topology, UnixTime, config::Config,
};

/// What may be done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether jobs may start and grow.
    pub may_grow: bool,
    /// Whether all shall be parked.
    pub drain: bool,
    /// Whether the scene shows what Slurm says now, rather than what it said when it was last believed.
    pub trusted: bool,
}

impl Terms {
    /// Nothing is forbidden.
    pub const FREE: Terms = Terms { may_grow: true, drain: false, trusted: true };
}

/// What the planner is asked, whole: everything in it is a value.
#[derive(Clone, Debug)]
pub struct Question {
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

impl Question {
    /// The question in the planner's terms.
    pub fn problem<'a>(&'a self, config: &'a Config) -> Problem<'a> {
        let (gaps, jobs) = (&self.gaps, &self.jobs);
        let mut problem = Problem::new(self.at, gaps, jobs, &config.planner, config.gaps.min_window_secs);
        (problem.may_grow, problem.drain) = (self.may_grow, self.drain);
        problem.topology = Some(&self.topology);
        problem
    }

    /// Asks the planner with the solver that this program was built with. May take the configured solve time.
    pub fn solve(&self, config: &Config) -> Plan {
        let problem = self.problem(config);
        match solver::default_solver() {
            Some(solver) => plan(&problem, solver.as_ref()),
            None => fallback(&problem, "built without a solver"),
        }
    }

    /// Says why a plan of this question is as it is.
    pub fn explain(&self, config: &Config, plan: &Plan) -> RoundReport {
        let mut report = explain(&self.problem(config), plan);
        let waits = |(job, place): &(JobId, QueuePosition)| {
            let why = JobReason::WaitsForTurn(*place);
            JobVerdict { job: *job, had: 0, gets: 0, why, assured: None }
        };
        report.jobs.extend(self.in_line.iter().map(waits));
        report.jobs.sort_by_key(|verdict| verdict.job);
        report.notes.splice(0..0, self.notes.iter().cloned().map(RoundNote::Said));
        report
    }
}

/// A plan that has passed the checker, and what the checker said of one that had not.
#[derive(Clone, Debug)]
pub struct Judged {
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
pub fn judge(
    question: &Question,
    config: &Config,
    solved: Result<Plan, &str>,
) -> Result<Judged, Vec<Violation>> {
    let problem = question.problem(config);
    let (why, refused) = match solved {
        Ok(plan) => match check(&problem, &plan) {
            Ok(()) => return Ok(Judged { plan: known(plan, question, &problem), refused: Vec::new() }),
            Err(violations) => ("the checker refused the solver's plan", violations),
        },
        Err(why) => (why, Vec::new()),
    };
    let plan = last_resort(&problem, why);
    check(&problem, &plan)?;
    Ok(Judged { plan: known(plan, question, &problem), refused })
}

/// The plan with the rates that jobs make, rather than those that are counted where some are assured, and
/// with what it tries.
fn known(mut plan: Plan, question: &Question, problem: &Problem<'_>) -> Plan {
    let mut probes = probes(problem, &plan);
    let by_id: BTreeMap<JobId, &MalleableJob> = question.jobs.iter().map(|job| (job.id, job)).collect();
    for planned in &mut plan.jobs {
        planned.rate =
            by_id.get(&planned.job).map_or(planned.rate, |job| job.rate_without_bonus(planned.rate));
        planned.probe = probes.remove(&planned.job);
    }
    plan
}
