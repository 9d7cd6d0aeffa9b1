//! How long gaps last here: the last ones that ended, and the survival model that is learned from them.

use std::collections::VecDeque;

use infill_gaps::{GapSample, SurvivalModel};
use infill_model::{EndedGap, UnixTime};

/// Ended gaps that the survival model learns from: some weeks of a large site.
pub const GAPS_TO_LEARN_FROM: u32 = 20_000;

/// Seconds between two lessons: a fit looks at every gap again.
const FIT_INTERVAL_SECS: f64 = 600.0;

/// The last ended gaps with what they teach.
#[derive(Clone, Debug, Default)]
pub(crate) struct GapHistory {
    survival: SurvivalModel,
    history: VecDeque<GapSample>,
    lesson_at: Option<UnixTime>,
}

impl GapHistory {
    /// How long gaps last, by what is known.
    pub fn survival_model(&self) -> &SurvivalModel {
        &self.survival
    }

    /// Takes in gaps that ended, in their order, and learns from time to time.
    pub fn record_gaps(&mut self, ended: &[EndedGap], now: UnixTime) {
        self.history.extend(ended.iter().map(GapSample::from));
        let beyond = self.history.len().saturating_sub(GAPS_TO_LEARN_FROM as usize);
        self.history.drain(..beyond);
        let due = self.lesson_at.is_none_or(|at| now.secs_since(at) >= FIT_INTERVAL_SECS);
        if due && !self.history.is_empty() {
            self.lesson_at = Some(now);
            self.survival = SurvivalModel::fit_samples(self.history.make_contiguous());
        }
    }
}
