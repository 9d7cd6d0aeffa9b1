//! Noise for simulated measurements.

use rand::RngExt as _;
use rand::rngs::StdRng;
use statrs::distribution::{ContinuousCDF as _, Normal};

/// A draw from the standard normal distribution.
pub(super) fn draw_normal(random: &mut StdRng) -> f64 {
    // The range excludes both ends, because neither has a finite quantile.
    let uniform: f64 = random.random_range(1e-12..1.0 - 1e-12);
    Normal::standard().inverse_cdf(uniform)
}
