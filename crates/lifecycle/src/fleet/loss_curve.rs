//! Predicts when a job's loss becomes flat, from the curve that it has followed so far.
//!
//! After k samples the loss is 1 ÷ (β0·k + β1) + β2. AITurbo (HPDC 2021, doi 10.1145/3431379.3460639) fits
//! this curve to steps. It is unknown when an owner is content with the loss. The point where the curve
//! becomes flat is comparable between jobs of the same owner. How much a job's end differs from it is learned
//! when the job ends.

/// Number of points at which each two points are merged into one.
const POINTS: usize = 64;

/// Smallest number of points for a fit.
const FEWEST: usize = 16;

/// Number of floors β2 that the fit tries.
const FLOORS: u32 = 48;

/// Distance of the nearest floor below the lowest loss, as a share of how far the loss has fallen. The
/// farthest floor has a distance of the whole fall.
const NEAREST: f64 = 0.002;

/// Share of the variance of the losses that the curve must explain.
const EXPLAINS: f64 = 0.8;

/// The curve counts as flat at this β0·k ÷ β1. From there, twice as much training gains 2 % of the whole
/// possible gain: x ÷ ((1 + x)(1 + 2x)) = 0.02.
const FLAT: f64 = 23.48;

/// Earliest credible flat point, as a multiple of the samples so far. A curve that has been flat for longer
/// has too few points left from its fall.
const BELIEVED_FROM: f64 = 0.5;

/// Latest credible flat point, as a multiple of the samples so far.
const BELIEVED_UP_TO: f64 = 12.0;

/// Mean samples and loss over some reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LossPoint {
    samples: f64,
    loss: f64,
}

impl LossPoint {
    fn mean(self, other: LossPoint) -> LossPoint {
        LossPoint { samples: 0.5 * (self.samples + other.samples), loss: 0.5 * (self.loss + other.loss) }
    }
}

/// The losses that a job has reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LossCurve {
    points: Vec<LossPoint>,
    /// Number of reports in each point.
    stride: u32,
    /// Sums over the reports for the next point.
    next_sum: LossPoint,
    /// Number of reports in `next_sum`.
    next_count: u32,
}

impl Default for LossCurve {
    fn default() -> Self {
        LossCurve { points: Vec::new(), stride: 1, next_sum: LossPoint::default(), next_count: 0 }
    }
}

impl LossCurve {
    /// Adds the loss after `samples` samples. Returns whether the curve has a new point.
    pub fn add(&mut self, samples: f64, loss: f64) -> bool {
        if !samples.is_finite() || !loss.is_finite() {
            return false;
        }
        self.next_sum.samples += samples;
        self.next_sum.loss += loss;
        self.next_count += 1;
        if self.next_count < self.stride {
            return false;
        }
        let count = f64::from(self.next_count);
        let sum = std::mem::take(&mut self.next_sum);
        self.next_count = 0;
        self.points.push(LossPoint { samples: sum.samples / count, loss: sum.loss / count });
        if self.points.len() == POINTS {
            self.points = self.points.chunks_exact(2).map(|pair| pair[0].mean(pair[1])).collect();
            self.stride = self.stride.saturating_mul(2);
        }
        true
    }

    /// Total number of samples after which the loss becomes flat. `None` if the losses do not follow such a
    /// curve, or if that point is too far away or long past.
    pub fn flat_after_samples(&self) -> Option<f64> {
        let seen = self.points.last()?.samples;
        if self.points.len() < FEWEST {
            return None;
        }
        let losses: Vec<f64> = self.points.iter().map(|point| point.loss).collect();
        let low = losses.iter().copied().fold(f64::INFINITY, f64::min);
        let high = losses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        let variance: f64 = losses.iter().map(|loss| (loss - mean).powi(2)).sum();
        let fits = (0..FLOORS).filter_map(|i| {
            // The distances below the lowest loss form a geometric series.
            let exponent = 1.0 - f64::from(i) / f64::from(FLOORS - 1);
            let distance = (high - low) * NEAREST.powf(exponent);
            self.fit(low - distance)
        });
        let best = fits.min_by(|a, b| a.squared_error.total_cmp(&b.squared_error))?;
        let flat_at = FLAT * best.offset / best.slope;
        let is_credible = (BELIEVED_FROM * seen..=BELIEVED_UP_TO * seen).contains(&flat_at);
        let explains_losses = best.squared_error <= (1.0 - EXPLAINS) * variance;
        (is_credible && explains_losses).then_some(flat_at)
    }

    /// Fits a line to 1 ÷ (loss − floor). The weights make errors of the loss count equally.
    fn fit(&self, floor: f64) -> Option<LossFit> {
        let mut w = 0.0;
        let mut wx = 0.0;
        let mut wy = 0.0;
        let mut wxx = 0.0;
        let mut wxy = 0.0;
        // Centring x keeps the sums accurate for a curve that begins late.
        let middle = self.points[self.points.len() / 2].samples;
        for point in &self.points {
            let x = point.samples - middle;
            let above_floor = point.loss - floor;
            let weight = above_floor.powi(4);
            let y = above_floor.recip();
            w += weight;
            wx += weight * x;
            wy += weight * y;
            wxx += weight * x * x;
            wxy += weight * x * y;
        }
        let slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
        let offset = (wy - slope * wx) / w - slope * middle;
        let squared_errors = self.points.iter().map(|point| {
            let fitted = (slope * point.samples + offset).recip();
            (point.loss - floor - fitted).powi(2)
        });
        let squared_error: f64 = squared_errors.sum();
        let is_sound = slope > 0.0 && offset > 0.0 && squared_error.is_finite();
        is_sound.then_some(LossFit { slope, offset, squared_error })
    }
}

/// A fitted curve with a given floor.
#[derive(Clone, Copy, Debug)]
struct LossFit {
    /// β0.
    slope: f64,
    /// β1.
    offset: f64,
    /// Sum of the squared errors.
    squared_error: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve of `reports` reports, one per 100 samples. Each loss has a pseudo-random error of at most
    /// `error`.
    fn curve(reports: u32, loss: impl Fn(f64) -> f64, error: f64) -> LossCurve {
        let mut curve = LossCurve::default();
        for i in 1..=reports {
            let samples = 100.0 * f64::from(i);
            let random = f64::from(i * 7919 % 101) / 100.0 - 0.5;
            curve.add(samples, loss(samples) + 2.0 * error * random);
        }
        curve
    }

    /// A loss that falls from 3.5 to 0.5. Half of the fall is done after 1,000 samples.
    fn falls(samples: f64) -> f64 {
        0.5 + 3.0 / (1.0 + samples / 1000.0)
    }

    #[test]
    fn the_flat_point_is_predicted_early() {
        let cases = [(30, 0.0, 0.25), (60, 0.05, 0.4), (200, 0.05, 0.2), (400, 0.1, 0.4)];
        for (reports, error, tolerance) in cases {
            let flat = curve(reports, falls, error).flat_after_samples().unwrap_or_default();
            assert!((flat / 23_480.0 - 1.0).abs() < tolerance, "{reports} reports: {flat}");
        }
    }

    #[test]
    fn a_curve_that_begins_late_gives_the_same_prediction() {
        let mut late = LossCurve::default();
        for samples in (0..400).map(|i| 4000.0 + 50.0 * f64::from(i)) {
            late.add(samples, falls(samples));
        }
        let flat = late.flat_after_samples().unwrap_or_default();
        assert!((flat / 23_480.0 - 1.0).abs() < 0.3, "{flat}");
    }

    #[test]
    fn other_curves_give_no_prediction() {
        assert_eq!(LossCurve::default().flat_after_samples(), None);
        assert_eq!(curve(15, falls, 0.0).flat_after_samples(), None, "too few");
        assert_eq!(curve(100, |_| 2.0, 0.0).flat_after_samples(), None, "it does not fall");
        assert_eq!(curve(100, |_| 2.0, 0.3).flat_after_samples(), None, "it is noise");
        assert_eq!(curve(100, |k| 1.0 + k / 1000.0, 0.0).flat_after_samples(), None, "it rises");
        assert_eq!(curve(100, |k| 5.0 - k / 1e5, 0.0).flat_after_samples(), None, "no end is in sight");
        assert_eq!(curve(5000, falls, 0.1).flat_after_samples(), None, "it was flat long ago");
        let mut odd = curve(100, falls, 0.0);
        assert!(!odd.add(f64::NAN, 1.0) && !odd.add(1.0, f64::INFINITY));
        let new_points = (0..odd.stride).filter(|_| odd.add(1e308, -1e308)).count();
        assert_eq!(new_points, 1);
        assert_eq!(odd.flat_after_samples(), None, "the sums overflow");
    }

    #[test]
    fn a_long_curve_keeps_few_points() {
        let long = curve(100_000, falls, 0.1);
        assert!(long.points.len() < POINTS && long.stride > 1000);
        assert!(long.points.is_sorted_by(|a, b| a.samples < b.samples));
    }
}
