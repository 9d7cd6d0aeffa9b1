//! How long gaps last at this site: the last gaps that ended, and the survival model learned from them.

use std::collections::VecDeque;

use infill_gaps::{GapSample, SurvivalModel};
use infill_model::{EndedGap, UnixTime};

/// Number of ended gaps from which the survival model learns: some weeks of a large site.
pub const MAX_LEARNED_GAPS: u32 = 20_000;

/// Seconds between two fits: each fit reads every gap again.
const FIT_INTERVAL_SECS: f64 = 600.0;

/// The last ended gaps with the model learned from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GapHistory {
    survival: SurvivalModel,
    history: VecDeque<GapSample>,
    fitted_at: Option<UnixTime>,
}

impl GapHistory {
    /// The survival model of the last fit.
    pub fn survival_model(&self) -> &SurvivalModel {
        &self.survival
    }

    /// Adds gaps that ended, in their order. Fits the model again from time to time.
    pub fn record_gaps(&mut self, ended: &[EndedGap], now: UnixTime) {
        self.history.extend(ended.iter().map(GapSample::from));
        let beyond = self.history.len().saturating_sub(MAX_LEARNED_GAPS as usize);
        self.history.drain(..beyond);
        let due = self.fitted_at.is_none_or(|at| now.secs_since(at) >= FIT_INTERVAL_SECS);
        if due && !self.history.is_empty() {
            self.fitted_at = Some(now);
            self.survival = SurvivalModel::fit_samples(self.history.make_contiguous());
        }
    }
}
