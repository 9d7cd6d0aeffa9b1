//! What is known of the best schedule, whoever proved it.

use infill_model::{BoundSource, SolveStatus};

/// What is known of all schedules.
#[derive(Clone, Debug)]
pub(crate) struct SolveBound {
    /// How the solve ended.
    pub status: SolveStatus,
    /// None scores more than this.
    pub bound: f64,
    /// What proves that.
    pub by: BoundSource,
}
