//! How accurate the predictions were for the last jobs that ended. Administrators see from it how far they
//! can rely on an expected end.

use std::collections::VecDeque;

use super::distribution::LengthDistribution;

/// The number of last jobs that count.
const RECENT_JOBS: usize = 2000;

/// How one job compared with its prediction.
#[derive(Clone, Copy, Debug)]
struct PredictionOutcome {
    is_near: bool,
    is_in_interval: bool,
    was_narrow: bool,
}

/// The outcomes of the last jobs, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct PredictionAccuracy(VecDeque<PredictionOutcome>);

/// For how many of the last jobs that ended each statement was true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccuracyCounts {
    /// All jobs that count.
    pub jobs: usize,
    /// Their likeliest length was right within a factor of two.
    pub within_2x: usize,
    /// Their length was in the interval from 10 to 90 %. Ideally these are four of five.
    pub in_interval: usize,
    /// They counted as predictable.
    pub predictable: usize,
}

impl PredictionAccuracy {
    /// Takes in the length of a job that had this prediction when it came, seconds.
    pub fn record_end(&mut self, expected: &LengthDistribution, secs: f64) {
        if self.0.len() == RECENT_JOBS {
            self.0.pop_front();
        }
        self.0.push_back(PredictionOutcome {
            is_near: expected.is_within_2x(secs),
            is_in_interval: expected.interval_contains(secs),
            was_narrow: expected.is_narrow(),
        });
    }

    /// Counts the outcomes.
    pub fn to_counts(&self) -> AccuracyCounts {
        AccuracyCounts {
            jobs: self.0.len(),
            within_2x: self.count(|o| o.is_near),
            in_interval: self.count(|o| o.is_in_interval),
            predictable: self.count(|o| o.was_narrow),
        }
    }

    fn count(&self, is_true: fn(&PredictionOutcome) -> bool) -> usize {
        self.0.iter().filter(|outcome| is_true(outcome)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_jobs_are_counted_by_outcome() {
        let narrow =
            LengthDistribution::from_logs((0..20).map(|i| 100.0_f64.ln() + 0.01 * f64::from(i)).collect())
                .unwrap();
        let mut accuracy = PredictionAccuracy::default();
        [110.0, 150.0, 1000.0].iter().for_each(|secs| accuracy.record_end(&narrow, *secs));
        let counts = AccuracyCounts { jobs: 3, within_2x: 2, in_interval: 1, predictable: 3 };
        assert_eq!(accuracy.to_counts(), counts);
        let wide =
            LengthDistribution::from_logs((0..20).map(|i| 100.0_f64.ln() + 0.2 * f64::from(i)).collect())
                .unwrap();
        (0..RECENT_JOBS).for_each(|_| accuracy.record_end(&wide, 1000.0));
        let counts = AccuracyCounts {
            jobs: RECENT_JOBS,
            within_2x: RECENT_JOBS,
            in_interval: RECENT_JOBS,
            predictable: 0,
        };
        assert_eq!(accuracy.to_counts(), counts, "earlier jobs are forgotten");
    }
}
