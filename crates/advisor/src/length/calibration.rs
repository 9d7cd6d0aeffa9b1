//! Calibrates intervals: if jobs that have ended lay outside more often than they should, distributions are
//! stretched about their medians.

use std::collections::VecDeque;

use super::distribution::{INTERVAL_SHARES, LengthDistribution};

/// The number of last jobs that count.
const RECENT_JOBS: usize = 2000;

/// Fewer jobs than this change nothing.
const ENOUGH_JOBS: usize = 100;

/// No side of a distribution counts as narrower than this, as a logarithm.
const NARROWEST_SIDE: f64 = 0.02;

/// Bounds of the stretch.
const STRETCH_BOUNDS: (f64, f64) = (0.5, 6.0);

/// Jobs after which the stretch is computed again.
const REFIT_EVERY: usize = 50;

/// How the last jobs compared with their distributions, and the stretch that follows.
#[derive(Clone, Debug)]
pub(crate) struct IntervalCalibration {
    /// How far below and above its median each ended, in units of the distance to the tails.
    recent: VecDeque<(f64, f64)>,
    since: usize,
    /// Factors below and above the median.
    stretch: (f64, f64),
}

impl Default for IntervalCalibration {
    fn default() -> Self {
        IntervalCalibration { recent: VecDeque::new(), since: 0, stretch: (1.0, 1.0) }
    }
}

impl IntervalCalibration {
    /// Takes in the logarithm of the length of a job that had this prediction.
    pub fn record_end(&mut self, expected: &LengthDistribution, log: f64) {
        let median = expected.quantile(0.5);
        let below = (expected.quantile(INTERVAL_SHARES.0) - median).abs().max(NARROWEST_SIDE);
        let above = (expected.quantile(INTERVAL_SHARES.1) - median).abs().max(NARROWEST_SIDE);
        if self.recent.len() == RECENT_JOBS {
            self.recent.pop_front();
        }
        self.recent.push_back(((median - log) / below, (log - median) / above));
        self.since += 1;
        if self.since >= REFIT_EVERY && self.recent.len() >= ENOUGH_JOBS {
            self.since = 0;
            let (below, above) = self.recent.iter().copied().unzip();
            self.stretch = (needed_stretch(below), needed_stretch(above));
        }
    }

    /// Stretches a prediction.
    pub(crate) fn apply_to(&self, expected: &LengthDistribution) -> LengthDistribution {
        expected.stretch_tails(self.stretch.0, self.stretch.1, NARROWEST_SIDE)
    }
}

/// The stretch with which nine of ten jobs would have ended within the tail, from their distances in units of
/// it.
fn needed_stretch(distances: Vec<f64>) -> f64 {
    LengthDistribution::from_logs(distances)
        .map_or(1.0, |distances| distances.quantile(INTERVAL_SHARES.1))
        .clamp(STRETCH_BOUNDS.0, STRETCH_BOUNDS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_miss_too_often_are_stretched() {
        let narrow =
            LengthDistribution::from_logs((0..16).map(|i| 5.0 + 0.01 * f64::from(i)).collect()).unwrap();
        let mut calibration = IntervalCalibration::default();
        // Logarithms are uniform within half a unit to each side.
        let log = |i: u32| 5.075 + f64::from(i % 101) / 100.0 - 0.5;
        (0..500).for_each(|i| calibration.record_end(&narrow, log(i * 37)));
        let wide = calibration.apply_to(&narrow);
        let inside =
            (0..101).filter(|i| (wide.quantile(0.1)..=wide.quantile(0.9)).contains(&log(*i))).count();
        assert!((75..=85).contains(&inside), "{inside} of 101");
        assert!((wide.quantile(0.5) - narrow.quantile(0.5)).abs() < 0.02);
        let point = calibration.apply_to(&LengthDistribution::from_logs(vec![5.0; 16]).unwrap());
        assert!(point.quantile(0.9) > 5.02, "a point is given some width");
    }
}
