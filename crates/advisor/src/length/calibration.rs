//! Whether intervals hold what they say: if jobs that have ended lay outside more often than they should,
//! distributions are stretched about their medians until they would not have.

use std::collections::VecDeque;

use super::distribution::{INTERVAL, Lengths};

/// Jobs that count.
const RECENT: usize = 2000;

/// Fewer say nothing.
const ENOUGH: usize = 100;

/// No side of a distribution counts as narrower than this, as a logarithm.
const NARROWEST: f64 = 0.02;

/// Bounds of the stretch.
const STRETCH: (f64, f64) = (0.5, 6.0);

/// After so many jobs the stretch is computed anew.
const EVERY: usize = 50;

/// What became of jobs whose distributions were known.
#[derive(Clone, Debug)]
pub(crate) struct Calibration {
    /// How far below and above its median each ended, in units of the distance to the tails.
    recent: VecDeque<(f64, f64)>,
    since: usize,
    stretch: (f64, f64),
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration { recent: VecDeque::new(), since: 0, stretch: (1.0, 1.0) }
    }
}

impl Calibration {
    /// Takes in the logarithm of the length of a job of which this was expected.
    pub fn ended(&mut self, expected: &Lengths, log: f64) {
        let middle = expected.quantile(0.5);
        let side = |share: f64| (expected.quantile(share) - middle).abs().max(NARROWEST);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(((middle - log) / side(INTERVAL.0), (log - middle) / side(INTERVAL.1)));
        self.since += 1;
        if self.since >= EVERY && self.recent.len() >= ENOUGH {
            self.since = 0;
            let of = |all: Vec<f64>| {
                Lengths::of(all).map_or(1.0, |l| l.quantile(INTERVAL.1)).clamp(STRETCH.0, STRETCH.1)
            };
            let (down, up) = self.recent.iter().copied().unzip();
            self.stretch = (of(down), of(up));
        }
    }

    /// What is to be expected when this is.
    pub(crate) fn applied(&self, expected: &Lengths) -> Lengths {
        expected.stretched(self.stretch.0, self.stretch.1, NARROWEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_miss_are_stretched_until_they_would_not() {
        let narrow = Lengths::of((0..16).map(|i| 5.0 + 0.01 * f64::from(i)).collect()).unwrap();
        let mut calibration = Calibration::default();
        // A triangle of half a unit to each side.
        let log = |i: u32| 5.075 + f64::from(i % 101) / 100.0 - 0.5;
        (0..500).for_each(|i| calibration.ended(&narrow, log(i * 37)));
        let wide = calibration.applied(&narrow);
        let inside =
            (0..101).filter(|i| (wide.quantile(0.1)..=wide.quantile(0.9)).contains(&log(*i))).count();
        assert!((75..=85).contains(&inside), "{inside} of 101");
        assert!((wide.quantile(0.5) - narrow.quantile(0.5)).abs() < 0.02);
        let point = calibration.applied(&Lengths::of(vec![5.0; 16]).unwrap());
        assert!(point.quantile(0.9) > 5.02, "a point is given some width");
    }
}
