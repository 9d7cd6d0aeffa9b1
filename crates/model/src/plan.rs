//! A plan: for each malleable job the nodes it shall hold. It leaves nothing to decide.

use serde::{Deserialize, Serialize};

use super::{ExecPlan, JobId, NodeName, Probe, UnixTime};
use crate::words;

/// How the solve ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SolveStatus {
    /// Proved optimal within the gap that was asked for.
    Optimal,
    /// The time limit came first; the plan is the best that was found, with this relative gap if it is known.
    TimeLimit {
        /// Relative distance to the bound; `None` if no bound is known.
        gap: Option<f64>,
    },
    /// The solver was not asked: there is no solve time, or its program would be too large to prove anything.
    /// The plan is the best that was found without it.
    Unasked {
        /// Relative distance to the bound; `None` if no bound is known.
        gap: Option<f64>,
    },
    /// The solver failed or was too late; the plan in hand is used. The text says why.
    Fallback(String),
    /// Nothing was planned: jobs keep what they have, less what they must leave. The text says why. In JSON
    /// it is a fallback, which all versions know.
    #[serde(rename = "fallback", skip_deserializing)]
    LastResort(String),
    /// Nothing to solve: no gap or no job.
    Trivial,
}

words! {
    /// How planning ended, as it is counted.
    pub enum SolveStatusKind {
        /// [`SolveStatus::Optimal`].
        Optimal = "optimal",
        /// [`SolveStatus::TimeLimit`].
        TimeLimit = "time_limit",
        /// [`SolveStatus::Unasked`].
        Unasked = "unasked",
        /// [`SolveStatus::Fallback`].
        Fallback = "fallback",
        /// [`SolveStatus::LastResort`].
        LastResort = "last_resort",
        /// [`SolveStatus::Trivial`].
        Trivial = "trivial",
    }
}

impl SolveStatus {
    /// What kind of end it is.
    pub fn kind(&self) -> SolveStatusKind {
        match self {
            SolveStatus::Optimal => SolveStatusKind::Optimal,
            SolveStatus::TimeLimit { .. } => SolveStatusKind::TimeLimit,
            SolveStatus::Unasked { .. } => SolveStatusKind::Unasked,
            SolveStatus::Fallback(_) => SolveStatusKind::Fallback,
            SolveStatus::LastResort(_) => SolveStatusKind::LastResort,
            SolveStatus::Trivial => SolveStatusKind::Trivial,
        }
    }
}

/// How good a plan is proved to be. Worth is what plans are compared by: `objective` less reluctance to
/// change. It is that of the counts in each step; a forecast does not say which nodes are kept later, and
/// `objective`, which is computed from it, may be a little less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimalityProof {
    /// No plan is worth more than this, weighted samples.
    pub bound: f64,
    /// (bound − worth of this plan) / worth of this plan; not negative. 0.001 is a tenth of a per cent.
    pub gap: f64,
    /// What proves it.
    pub by: BoundSource,
}

/// What proves a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundSource {
    /// Prices for what runs short (Lagrangian relaxation); no solver was needed for it.
    Prices,
    /// A dynamic program over all counts, which is exact where there is one step.
    Knapsack,
    /// Prices for each of the parts into which all plans were split.
    Branches,
    /// The solver.
    Solver,
}

/// One node of a job's plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// The node.
    pub node: NodeName,
    /// End of the lease on it: the time limit to set on its Slurm job never passes this moment
    /// (except that Slurm's limits are whole minutes, at least one).
    pub lease_until: UnixTime,
}

/// What one job shall hold from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobPlan {
    /// The lead's job id.
    pub job: JobId,
    /// Nodes, the lead's first; empty means that the job is parked or keeps waiting.
    pub nodes: Vec<PlannedNode>,
    /// Execution plan to run.
    pub exec_plan: ExecPlan,
    /// Rate that the planner expects, samples a second; what the planner counts, until the plan is judged.
    pub rate: f64,
    /// What is tried by it, in order to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// Sizes that are foreseen for the later steps (the forecast), as (step's end, nodes).
    pub forecast: Vec<(UnixTime, u32)>,
}

impl JobPlan {
    /// Why the job changes to so many nodes: for this, and as a probe if all of the plan is one.
    pub fn with_probe_note(&self, why: String, nodes: usize) -> String {
        match self.probe.as_ref().filter(|_| nodes == self.nodes.len()) {
            Some(probe) => format!("{why}: {probe}"),
            None => why,
        }
    }
}

/// The outcome of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// When it was computed.
    pub at: UnixTime,
    /// One entry for each malleable job that was considered, sorted by job id.
    pub jobs: Vec<JobPlan>,
    /// How the solve ended.
    pub status: SolveStatus,
    /// How good the plan is proved to be; `None` where nothing is worth anything, and in plans of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<OptimalityProof>,
    /// Objective value: weighted samples over the horizon less rescale costs.
    pub objective: f64,
    /// Ends of the steps that were planned over, ascending; the first step starts at `at`.
    pub steps: Vec<UnixTime>,
}

impl Plan {
    /// The plan of one job.
    pub fn job_plan(&self, id: JobId) -> Option<&JobPlan> {
        self.jobs.binary_search_by(|j| j.job.cmp(&id)).ok().map(|i| &self.jobs[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_resort_is_a_fallback_to_those_who_know_of_none() {
        let why = || "it takes too long".to_owned();
        let last = serde_json::to_string(&SolveStatus::LastResort(why())).unwrap();
        assert_eq!(last, r#"{"fallback":"it takes too long"}"#);
        assert_eq!(serde_json::from_str::<SolveStatus>(&last).unwrap(), SolveStatus::Fallback(why()));
    }
}
