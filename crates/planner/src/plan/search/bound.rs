//! What is proved about the best schedule, by the search or by the solver.

use infill_model::{BoundSource, SolveStatus};

/// What is proved about all schedules.
#[derive(Clone, Debug)]
pub(crate) struct SolveBound {
    /// How the solve ended.
    pub status: SolveStatus,
    /// None scores more than this.
    pub bound: f64,
    /// What proves that.
    pub by: BoundSource,
}
