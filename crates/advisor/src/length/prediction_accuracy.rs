//! How true what was expected of jobs came out, of the last ones that ended: for administrators to see
//! whether an expected end is worth reading.

use std::collections::VecDeque;

use super::distribution::LengthDistribution;

/// Jobs that count.
const RECENT_JOBS: usize = 2000;

/// How it came out for one job.
#[derive(Clone, Copy, Debug)]
struct PredictionOutcome {
    is_near: bool,
    is_held: bool,
    was_narrow: bool,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct PredictionAccuracy(VecDeque<PredictionOutcome>);

/// Of how many of the last jobs that ended what was true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccuracyCounts {
    /// All that count.
    pub jobs: usize,
    /// The likeliest length was within a factor of two.
    pub within_2x: usize,
    /// The interval from 10 to 90 % held them: four of five, if it is what it says.
    pub in_interval: usize,
    /// They counted as predictable.
    pub predictable: usize,
}

impl PredictionAccuracy {
    /// Takes in how long a job was of which this was expected when it came.
    pub fn record_end(&mut self, expected: &LengthDistribution, secs: f64) {
        if self.0.len() == RECENT_JOBS {
            self.0.pop_front();
        }
        self.0.push_back(PredictionOutcome {
            is_near: expected.is_within_2x(secs),
            is_held: expected.interval_contains(secs),
            was_narrow: expected.is_narrow(),
        });
    }

    /// How many were what.
    pub fn to_counts(&self) -> AccuracyCounts {
        let count = |is: fn(&PredictionOutcome) -> bool| self.0.iter().filter(|o| is(o)).count();
        AccuracyCounts {
            jobs: self.0.len(),
            within_2x: count(|o| o.is_near),
            in_interval: count(|o| o.is_held),
            predictable: count(|o| o.was_narrow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_counted_by_how_they_came_out() {
        let narrow =
            LengthDistribution::from_logs((0..20).map(|i| 100.0_f64.ln() + 0.01 * f64::from(i)).collect())
                .unwrap();
        let mut trueness = PredictionAccuracy::default();
        [110.0, 150.0, 1000.0].iter().for_each(|secs| trueness.record_end(&narrow, *secs));
        let tally = AccuracyCounts { jobs: 3, within_2x: 2, in_interval: 1, predictable: 3 };
        assert_eq!(trueness.to_counts(), tally);
        let wide =
            LengthDistribution::from_logs((0..20).map(|i| 100.0_f64.ln() + 0.2 * f64::from(i)).collect())
                .unwrap();
        (0..RECENT_JOBS).for_each(|_| trueness.record_end(&wide, 1000.0));
        let tally = AccuracyCounts {
            jobs: RECENT_JOBS,
            within_2x: RECENT_JOBS,
            in_interval: RECENT_JOBS,
            predictable: 0,
        };
        assert_eq!(trueness.to_counts(), tally, "those before are forgotten");
    }
}
