//! How far ahead nodes without a planned end count as free.
//!
//! The gain of a job's growth lasts until the job is rescaled anyway. Where new malleable jobs come often,
//! one of them soon takes a free node, at no running job's cost. Growth then pays only until that moment.

use std::collections::VecDeque;

use infill_model::config::GapsConfig;
use infill_model::{RescaleCosts, UnixTime};

/// Pauses between arrivals from which the usual one is computed.
const MIN_PAUSES: usize = 8;

/// The lookahead is at least this multiple of the costliest change. Otherwise nothing would ever start.
const MIN_CHANGE_FACTOR: f64 = 4.0;

/// The last arrivals of malleable jobs. A value that is kept between rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArrivalLookahead {
    arrivals: VecDeque<UnixTime>,
}

impl ArrivalLookahead {
    /// Records when the jobs of this round were submitted. Jobs that came since the last round count as one
    /// arrival.
    pub fn record_arrivals(&mut self, submitted: impl Iterator<Item = UnixTime>) {
        let Some(last) = submitted.max() else { return };
        if self.arrivals.back().is_none_or(|earlier| *earlier < last) {
            self.arrivals.push_back(last);
        }
        if self.arrivals.len() > MIN_PAUSES + 1 {
            self.arrivals.pop_front();
        }
    }

    /// Seconds to look ahead: the configured ones, or the mean pause between arrivals if that is shorter. The
    /// result is always long enough to use a window at all, and for the costliest change of the jobs.
    pub fn lookahead_secs(
        &self,
        config: &GapsConfig,
        costs: impl Iterator<Item = RescaleCosts>,
        now: UnixTime,
    ) -> f64 {
        let first = self.arrivals.front().filter(|_| self.arrivals.len() > MIN_PAUSES);
        let pause = first.map_or(f64::INFINITY, |first| now.secs_since(*first) / MIN_PAUSES as f64);
        let costliest = costs.map(|c| c.up_secs.max(c.start_secs)).fold(0.0, f64::max);
        let usual = config.lookahead_secs.min(pause.max(config.min_window_secs));
        usual.max(MIN_CHANGE_FACTOR * costliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: RescaleCosts = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 20.0 };

    fn after(arrivals: &[i64]) -> ArrivalLookahead {
        let mut lookahead = ArrivalLookahead::default();
        for at in arrivals {
            lookahead.record_arrivals([UnixTime(at - 50), UnixTime(*at)].into_iter());
        }
        lookahead
    }

    fn secs(lookahead: &ArrivalLookahead, now: i64) -> f64 {
        let config = GapsConfig { lookahead_secs: 300.0, min_window_secs: 60.0, ..GapsConfig::default() };
        lookahead.lookahead_secs(&config, [COSTS].into_iter(), UnixTime(now))
    }

    #[test]
    fn where_jobs_come_often_the_lookahead_ends_at_the_next_one() {
        let often: Vec<i64> = (0..40).map(|k| 1000 + k * 100).collect();
        // Only the last nine arrivals count, and the time since them.
        assert_eq!(secs(&after(&often), 4900), 100.0);
        assert_eq!(secs(&after(&often), 5300), 150.0);
        assert_eq!(secs(&after(&often), 100_000), 300.0);
        let burst: Vec<i64> = (0..40).collect();
        assert_eq!(secs(&after(&burst), 41), 80.0, "at least four times 20 s");
        let config = GapsConfig { lookahead_secs: 300.0, min_window_secs: 60.0, ..GapsConfig::default() };
        assert_eq!(
            after(&burst).lookahead_secs(&config, std::iter::empty(), UnixTime(41)),
            60.0,
            "at least a window"
        );
    }

    #[test]
    fn few_arrivals_and_the_same_jobs_again_say_nothing() {
        assert_eq!(secs(&ArrivalLookahead::default(), 0), 300.0);
        assert_eq!(secs(&after(&[10, 20, 30, 40, 50, 60, 70, 80]), 80), 300.0);
        assert_eq!(secs(&after(&[10; 40]), 20), 300.0);
    }

    #[test]
    fn a_job_that_takes_long_to_start_is_still_started() {
        let slow = RescaleCosts { start_secs: 400.0, ..COSTS };
        let config = GapsConfig { lookahead_secs: 300.0, ..GapsConfig::default() };
        assert_eq!(
            ArrivalLookahead::default().lookahead_secs(&config, [COSTS, slow].into_iter(), UnixTime(0)),
            1600.0
        );
    }
}
