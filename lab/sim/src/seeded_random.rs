//! A random number generator that can be copied and depends only on its seed.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use statrs::distribution::{ContinuousCDF as _, Normal};

/// A sequence of draws.
#[derive(Clone, Debug)]
pub(super) struct SeededRandom {
    seed: u64,
    draws: u64,
}

impl SeededRandom {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        SeededRandom { seed, draws: 0 }
    }

    /// A number from 0 up to, not including, 1.
    pub fn next_uniform(&mut self) -> f64 {
        self.draws += 1;
        // Each draw uses a new generator, because those of `rand` cannot be copied.
        StdRng::seed_from_u64(self.seed.rotate_left(32) ^ self.draws).random()
    }

    /// A whole number below `end`.
    pub fn index_below(&mut self, end: usize) -> usize {
        ((self.next_uniform() * end as f64) as usize).min(end.saturating_sub(1))
    }

    /// A number with a uniform logarithm in a range of two positive numbers.
    pub(crate) fn log_uniform(&mut self, range: (f64, f64)) -> f64 {
        let (from, to) = range;
        (from.ln() + self.next_uniform() * (to.ln() - from.ln())).exp()
    }

    /// A log-normal factor around 1; `spread` is the standard deviation of its logarithm.
    pub fn log_normal_factor(&mut self, spread: f64) -> f64 {
        let uniform = self.next_uniform().clamp(1e-9, 1.0 - 1e-9);
        (spread * Normal::standard().inverse_cdf(uniform)).exp()
    }
}
