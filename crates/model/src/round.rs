//! A round in a line: what a list of rounds shows.

use serde::{Deserialize, Serialize};

use super::{Plan, RoundNote, RoundReport, SolveStatus, UnixTime};

/// Most notes of a round that its line carries. Each is a sentence; a round has a few.
const MAX_NOTES: usize = 8;

/// A round in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundSummary {
    /// When.
    pub at: UnixTime,
    /// Whether it was carried out.
    pub acted: bool,
    /// How the solve ended.
    pub status: SolveStatus,
    /// What the plan is worth, weighted samples.
    pub objective: f64,
    /// Relative distance of the plan to what is proved to be the best; `None` where nothing is proved.
    pub gap: Option<f64>,
    /// Malleable jobs that were considered.
    pub jobs: u32,
    /// Nodes that they got, together.
    pub nodes: u32,
    /// Jobs that got another number of nodes than they had.
    pub changes: u32,
    /// What concerns the round as a whole, the first few.
    pub notes: Vec<RoundNote>,
}

impl RoundSummary {
    /// The line of a round with this plan, for these reasons.
    pub fn new(at: UnixTime, acted: bool, plan: &Plan, report: &RoundReport) -> RoundSummary {
        let solved = match plan.status {
            SolveStatus::TimeLimit { gap } | SolveStatus::Unasked { gap } => gap,
            _ => None,
        };
        RoundSummary {
            at,
            acted,
            status: plan.status.clone(),
            objective: plan.objective,
            gap: plan.proof.map(|p| p.gap).or(solved),
            jobs: report.jobs.len() as u32,
            nodes: plan.jobs.iter().map(|j| j.nodes.len() as u32).sum(),
            changes: report.jobs.iter().filter(|v| v.had != v.gets).count() as u32,
            notes: report.notes.iter().take(MAX_NOTES).cloned().collect(),
        }
    }
}
