//! The summary of a round, for lists of rounds.

use serde::{Deserialize, Serialize};

use super::{Plan, RoundNote, RoundReport, SolveStatus, UnixTime};

/// Most notes in the summary of a round. Each is a sentence; a round has a few.
const MAX_NOTES: usize = 8;

/// The summary of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoundSummary {
    /// The moment of the round.
    pub at: UnixTime,
    /// Whether the plan was carried out.
    pub acted: bool,
    /// How the solve ended.
    pub status: SolveStatus,
    /// The objective value of the plan, in weighted samples.
    pub objective: f64,
    /// Relative distance of the plan to the proved bound; `None` if there is no bound.
    pub gap: Option<f64>,
    /// Malleable jobs that were considered.
    pub jobs: u32,
    /// The number of nodes that they got together.
    pub nodes: u32,
    /// The number of jobs whose number of nodes changed.
    pub changes: u32,
    /// The first notes on the round as a whole.
    pub notes: Vec<RoundNote>,
}

impl RoundSummary {
    /// The summary of a round with this plan and report.
    pub fn new(at: UnixTime, acted: bool, plan: &Plan, report: &RoundReport) -> RoundSummary {
        let solver_gap = match plan.status {
            SolveStatus::TimeLimit { gap } | SolveStatus::SolverNotUsed { gap } => gap,
            _ => None,
        };
        RoundSummary {
            at,
            acted,
            status: plan.status.clone(),
            objective: plan.objective,
            gap: plan.proof.map(|proof| proof.gap).or(solver_gap),
            jobs: report.jobs.len() as u32,
            nodes: plan.jobs.iter().map(|job| job.nodes.len() as u32).sum(),
            changes: report.jobs.iter().filter(|verdict| verdict.had != verdict.gets).count() as u32,
            notes: report.notes.iter().take(MAX_NOTES).cloned().collect(),
        }
    }
}
