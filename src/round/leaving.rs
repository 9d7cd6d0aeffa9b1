//! How long leaving a node takes, from the decision until Slurm can give it to another job.

use std::collections::VecDeque;

/// How many measured stops the time to leave is taken from.
const STOPS_REMEMBERED: usize = 50;

/// Fewer measured stops than this say too little.
const STOPS_NEEDED: usize = 5;

/// The share of stops, in per cent, that take no longer than what is allowed for.
const PERCENTILE: usize = 95;

/// Seconds from a worker's exit until Slurm shows its node idle: epilog and COMPLETING. Seen: 1–2 s.
pub const CLEANUP_SECS: f64 = 3.0;

/// The last stops.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeToLeave {
    stops: VecDeque<f64>,
}

impl TimeToLeave {
    /// Takes in how long a command took to save and exit when it was asked to, seconds.
    pub fn note(&mut self, stop_secs: f64) {
        self.stops.push_back(stop_secs);
        if self.stops.len() > STOPS_REMEMBERED {
            self.stops.pop_front();
        }
    }

    /// Seconds from the decision to leave until the node is idle: measured where enough was measured, else
    /// those that are `configured`.
    pub fn secs(&self, configured: f64) -> f64 {
        if self.stops.len() < STOPS_NEEDED {
            return configured;
        }
        let mut stops: Vec<f64> = self.stops.iter().copied().collect();
        stops.sort_by(f64::total_cmp);
        stops[(stops.len() - 1) * PERCENTILE / 100] + CLEANUP_SECS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(stops: impl IntoIterator<Item = f64>) -> f64 {
        let mut time = TimeToLeave::default();
        stops.into_iter().for_each(|secs| time.note(secs));
        time.secs(15.0)
    }

    #[test]
    fn a_few_stops_say_nothing_many_say_how_long_nearly_all_take() {
        assert_eq!(after([1.0; 4]), 15.0);
        assert_eq!(after([1.0; 5]), 1.0 + CLEANUP_SECS);
        assert_eq!(after((1..=20).map(f64::from)), 19.0 + CLEANUP_SECS);
        // What lies fifty stops back is forgotten.
        assert_eq!(after([99.0; 50].into_iter().chain([2.0; 50])), 2.0 + CLEANUP_SECS);
    }
}
