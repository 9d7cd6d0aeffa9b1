//! How long gaps without a planned end count as free. The answer is the same for all nodes that became free
//! together.

use std::collections::BTreeMap;

use super::{GapTracker, SurvivalModel, hour_of_day};
use infill_model::UnixTime;

/// Forecasts of the survival model at one moment.
pub(super) struct DurationForecast<'a> {
    survival: &'a SurvivalModel,
    confidence: f64,
    lookahead_secs: f64,
    now: UnixTime,
    /// Number of nodes that became free at each moment.
    blocks: BTreeMap<UnixTime, u32>,
    /// The forecasts so far, by the start of the gap.
    forecasts: BTreeMap<UnixTime, (UnixTime, f64)>,
}

impl<'a> DurationForecast<'a> {
    /// Takes the start of each gap from the tracker.
    pub(super) fn new(
        survival: &'a SurvivalModel,
        tracker: &GapTracker,
        confidence: f64,
        lookahead_secs: f64,
        now: UnixTime,
    ) -> Self {
        let mut blocks = BTreeMap::new();
        for since in tracker.gap_starts() {
            *blocks.entry(since).or_insert(0) += 1;
        }
        DurationForecast { survival, confidence, lookahead_secs, now, blocks, forecasts: BTreeMap::new() }
    }

    /// Until when a gap that began at `since` counts as free, and the seconds for which it is expected to
    /// last.
    pub(super) fn forecast_for(&mut self, since: UnixTime) -> (UnixTime, f64) {
        *self.forecasts.entry(since).or_insert_with(|| {
            let age = self.now.secs_since(since);
            let hour = hour_of_day(self.now);
            let block = self.blocks.get(&since).copied().unwrap_or(1);
            let secs =
                self.survival.quantile_secs(age, block, hour, self.confidence).min(self.lookahead_secs);
            (self.now.plus_secs(secs), self.survival.expected_secs(age, block, hour))
        })
    }
}
