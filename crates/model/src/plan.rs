//! A plan: the nodes that each malleable job shall hold. It leaves nothing to decide.

use serde::{Deserialize, Serialize};

use super::{ExecPlan, JobId, NodeName, Probe, UnixTime};
use crate::words;

/// How the solve ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SolveStatus {
    /// Proved optimal within the requested gap.
    Optimal,
    /// The solver reached its time limit. The plan is the best that it found, with this relative gap if
    /// known.
    TimeLimit {
        /// Relative distance to the bound; `None` if there is no bound.
        gap: Option<f64>,
    },
    /// The solver was not used: it has no time, or its program would be too large to prove anything. The plan
    /// is the best that was found without it.
    #[serde(rename = "unasked")]
    SolverNotUsed {
        /// Relative distance to the bound; `None` if there is no bound.
        gap: Option<f64>,
    },
    /// The solver failed or was too late, so the best plan found before is used. Or nothing was planned. The
    /// text is the reason.
    Fallback(String),
    /// Nothing was planned: jobs keep their nodes except those that they must leave. The text is the reason.
    /// In JSON it is `fallback`, which all versions know.
    #[serde(rename = "fallback", skip_deserializing)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    LastResort(String),
    /// There was nothing to solve: no gap or no job.
    Trivial,
}

words! {
    /// How the solve ended, as metrics count it.
    pub enum SolveStatusKind {
        /// [`SolveStatus::Optimal`].
        Optimal = "optimal",
        /// [`SolveStatus::TimeLimit`].
        TimeLimit = "time_limit",
        /// [`SolveStatus::SolverNotUsed`].
        SolverNotUsed = "unasked",
        /// [`SolveStatus::Fallback`].
        Fallback = "fallback",
        /// [`SolveStatus::LastResort`].
        LastResort = "last_resort",
        /// [`SolveStatus::Trivial`].
        Trivial = "trivial",
    }
}

impl SolveStatus {
    /// The kind of this end.
    pub fn kind(&self) -> SolveStatusKind {
        match self {
            SolveStatus::Optimal => SolveStatusKind::Optimal,
            SolveStatus::TimeLimit { .. } => SolveStatusKind::TimeLimit,
            SolveStatus::SolverNotUsed { .. } => SolveStatusKind::SolverNotUsed,
            SolveStatus::Fallback(_) => SolveStatusKind::Fallback,
            SolveStatus::LastResort(_) => SolveStatusKind::LastResort,
            SolveStatus::Trivial => SolveStatusKind::Trivial,
        }
    }
}

/// A proved bound on the quality of a plan. Plans are compared by their worth: the objective less the
/// reluctance to change. Worth is computed from the number of nodes in each step. A
/// forecast does not say which nodes a job keeps later, so `objective`, which is computed from the forecast,
/// may be slightly less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OptimalityProof {
    /// No plan has a larger worth than this, in weighted samples.
    pub bound: f64,
    /// (bound − worth of this plan) / worth of this plan, not negative. 0.001 is a tenth of a percent.
    pub gap: f64,
    /// The method that proves the bound.
    pub by: BoundSource,
}

/// The method that proves a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BoundSource {
    /// Lagrange multipliers of scarce nodes (Lagrangian relaxation), without the solver.
    #[serde(rename = "prices")]
    Multipliers,
    /// A dynamic program over all numbers of nodes. It is exact if there is one step.
    Knapsack,
    /// Lagrange multipliers for each part into which branch and bound divided the plans.
    Branches,
    /// The solver.
    Solver,
}

/// One node of a job's plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedNode {
    /// The node.
    pub node: NodeName,
    /// End of the lease. The time limit of its Slurm job never passes this moment, except that Slurm's limits
    /// are whole minutes, at least one.
    pub lease_until: UnixTime,
}

/// The nodes that one job shall hold from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobPlan {
    /// The lead's job id.
    pub job: JobId,
    /// The nodes, the lead's first. Empty if the job is parked or keeps waiting.
    pub nodes: Vec<PlannedNode>,
    /// The execution plan that the job shall run.
    pub exec_plan: ExecPlan,
    /// The expected rate in samples a second. Until the plan is judged, the rate that the planner counts,
    /// with bonuses.
    pub rate: f64,
    /// The probe of this plan: what it measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The sizes that are expected in later steps (the forecast), as (end of the step, nodes).
    pub forecast: Vec<(UnixTime, u32)>,
}

impl JobPlan {
    /// The reason `why` for a change to `nodes` nodes. The probe is added if the change reaches the whole
    /// plan.
    pub fn with_probe_note(&self, why: String, nodes: usize) -> String {
        match self.probe.as_ref().filter(|_| nodes == self.nodes.len()) {
            Some(probe) => format!("{why}: {probe}"),
            None => why,
        }
    }
}

/// The result of planning in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// When it was computed.
    pub at: UnixTime,
    /// One entry for each malleable job that was considered, sorted by job id.
    pub jobs: Vec<JobPlan>,
    /// How the solve ended.
    pub status: SolveStatus,
    /// The proved quality of the plan. `None` if no plan has a worth, and in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<OptimalityProof>,
    /// Objective value: weighted samples over the horizon less rescale costs.
    pub objective: f64,
    /// The ends of the planned steps, ascending. The first step starts at `at`.
    pub steps: Vec<UnixTime>,
}

impl Plan {
    /// The plan of one job, if it was considered.
    pub fn job_plan(&self, id: JobId) -> Option<&JobPlan> {
        let index = self.jobs.binary_search_by(|plan| plan.job.cmp(&id)).ok()?;
        Some(&self.jobs[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_versions_read_a_last_resort_as_a_fallback() {
        let reason = "it takes too long".to_owned();
        let json = serde_json::to_string(&SolveStatus::LastResort(reason.clone())).unwrap();
        assert_eq!(json, r#"{"fallback":"it takes too long"}"#);
        assert_eq!(serde_json::from_str::<SolveStatus>(&json).unwrap(), SolveStatus::Fallback(reason));
    }
}
