//! When a job's loss will have flattened, by the curve that it has followed so far.
//!
//! After k samples the loss is 1 ÷ (β0·k + β1) + β2, which AITurbo (HPDC 2021, doi 10.1145/3431379.3460639)
//! fits to steps. Nobody knows when an owner has had enough: where the curve is flat is a measure that the
//! same owner's jobs have in common, and by how much they differ from it is learned when they end.

/// Points that are kept; of more, two become one.
const POINTS: usize = 64;

/// Fewer points make no curve.
const FEWEST: usize = 16;

/// Floors β2 that are tried.
const FLOORS: u32 = 48;

/// The nearest floor lies below the least loss by this share of how far the loss has fallen, the farthest by
/// as much as it has fallen.
const NEAREST: f64 = 0.002;

/// Share of the variance of the losses that the curve must explain.
const EXPLAINS: f64 = 0.8;

/// It is flat at this β0·k ÷ β1: twice as much training would gain 2 % of all that there was to gain, which
/// is x ÷ ((1 + x)(1 + 2x)) = 0.02.
const FLAT: f64 = 23.48;

/// The curve is believed from so many times what was seen of it on, up to so many: of one that has been flat
/// for long, few points are left of how it fell.
const BELIEVED: (f64, f64) = (0.5, 12.0);

/// Means over some reports.
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

/// The losses that a job has told of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LossCurve {
    points: Vec<LossPoint>,
    /// Reports of a point.
    stride: u32,
    /// The sums of the point to come, and of how many reports.
    open: (LossPoint, u32),
}

impl Default for LossCurve {
    fn default() -> Self {
        LossCurve { points: Vec::new(), stride: 1, open: (LossPoint::default(), 0) }
    }
}

impl LossCurve {
    /// Takes in the loss after so many samples. Says whether the curve has one more point by that.
    pub fn add(&mut self, samples: f64, loss: f64) -> bool {
        if !samples.is_finite() || !loss.is_finite() {
            return false;
        }
        let (sum, count) = &mut self.open;
        (sum.samples, sum.loss, *count) = (sum.samples + samples, sum.loss + loss, *count + 1);
        if *count < self.stride {
            return false;
        }
        let of = f64::from(*count);
        self.points.push(LossPoint { samples: sum.samples / of, loss: sum.loss / of });
        self.open = (LossPoint::default(), 0);
        if self.points.len() == POINTS {
            self.points = self.points.chunks_exact(2).map(|two| two[0].mean(two[1])).collect();
            self.stride = self.stride.saturating_mul(2);
        }
        true
    }

    /// Samples in all after which it will be flat; `None` where the losses follow no such curve, or that is
    /// too far away to be told, or was long ago.
    pub fn flat_after_samples(&self) -> Option<f64> {
        let seen = self.points.last()?.samples;
        if self.points.len() < FEWEST {
            return None;
        }
        let losses = || self.points.iter().map(|p| p.loss);
        let low = losses().fold(f64::INFINITY, f64::min);
        let high = losses().fold(f64::NEG_INFINITY, f64::max);
        let mean = losses().sum::<f64>() / self.points.len() as f64;
        let variance: f64 = losses().map(|loss| (loss - mean).powi(2)).sum();
        // Evenly by ratios, from close below the least loss to far.
        let below = |i: u32| (high - low) * NEAREST.powf(1.0 - f64::from(i) / f64::from(FLOORS - 1));
        let fits = (0..FLOORS).filter_map(|i| self.fit(low - below(i)));
        let best = fits.min_by(|a, b| a.missed.total_cmp(&b.missed))?;
        let flat = FLAT * best.offset / best.slope;
        let believed = (BELIEVED.0 * seen..=BELIEVED.1 * seen).contains(&flat);
        (believed && best.missed <= (1.0 - EXPLAINS) * variance).then_some(flat)
    }

    /// The line through 1 ÷ (loss − floor), weighted so that errors of the loss count alike.
    fn fit(&self, floor: f64) -> Option<LossFit> {
        let mut w = 0.0;
        let mut wx = 0.0;
        let mut wy = 0.0;
        let mut wxx = 0.0;
        let mut wxy = 0.0;
        // A curve that was first heard of late lies far from nothing.
        let middle = self.points[self.points.len() / 2].samples;
        for point in &self.points {
            let x = point.samples - middle;
            let above = point.loss - floor;
            let weight = above.powi(4);
            let y = above.recip();
            (w, wx, wy) = (w + weight, wx + weight * x, wy + weight * y);
            (wxx, wxy) = (wxx + weight * x * x, wxy + weight * x * y);
        }
        let slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
        let offset = (wy - slope * wx) / w - slope * middle;
        let missed = |p: &LossPoint| (p.loss - floor - (slope * p.samples + offset).recip()).powi(2);
        let missed: f64 = self.points.iter().map(missed).sum();
        let is_sound = slope > 0.0 && offset > 0.0 && missed.is_finite();
        is_sound.then_some(LossFit { slope, offset, missed })
    }
}

/// A curve with some floor.
#[derive(Clone, Copy, Debug)]
struct LossFit {
    /// β0.
    slope: f64,
    /// β1.
    offset: f64,
    /// Sum of the squares of the errors.
    missed: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The curve of so many reports, each after 100 samples, of a loss with errors of so much.
    fn curve(reports: u32, loss: impl Fn(f64) -> f64, error: f64) -> LossCurve {
        let mut curve = LossCurve::default();
        for i in 1..=reports {
            let samples = 100.0 * f64::from(i);
            let dice = f64::from(i * 7919 % 101) / 100.0 - 0.5;
            curve.add(samples, loss(samples) + 2.0 * error * dice);
        }
        curve
    }

    /// 3.5 at first, and 0.5 in the end; half of the way is done after 1,000 samples.
    fn falls(samples: f64) -> f64 {
        0.5 + 3.0 / (1.0 + samples / 1000.0)
    }

    #[test]
    fn it_tells_early_when_a_loss_will_be_flat() {
        for (reports, error, off) in [(30, 0.0, 0.25), (60, 0.05, 0.4), (200, 0.05, 0.2), (400, 0.1, 0.4)] {
            let flat = curve(reports, falls, error).flat_after_samples().unwrap_or_default();
            assert!((flat / 23_480.0 - 1.0).abs() < off, "{reports} reports: {flat}");
        }
    }

    #[test]
    fn a_curve_that_is_heard_of_late_tells_the_same() {
        let mut late = LossCurve::default();
        for samples in (0..400).map(|i| 4000.0 + 50.0 * f64::from(i)) {
            late.add(samples, falls(samples));
        }
        let flat = late.flat_after_samples().unwrap_or_default();
        assert!((flat / 23_480.0 - 1.0).abs() < 0.3, "{flat}");
    }

    #[test]
    fn what_is_no_such_curve_tells_nothing() {
        assert_eq!(LossCurve::default().flat_after_samples(), None);
        assert_eq!(curve(15, falls, 0.0).flat_after_samples(), None, "too few");
        assert_eq!(curve(100, |_| 2.0, 0.0).flat_after_samples(), None, "it does not fall");
        assert_eq!(curve(100, |_| 2.0, 0.3).flat_after_samples(), None, "it is noise");
        assert_eq!(curve(100, |k| 1.0 + k / 1000.0, 0.0).flat_after_samples(), None, "it rises");
        assert_eq!(curve(100, |k| 5.0 - k / 1e5, 0.0).flat_after_samples(), None, "no end is in sight");
        assert_eq!(curve(5000, falls, 0.1).flat_after_samples(), None, "it was flat long ago");
        let mut odd = curve(100, falls, 0.0);
        assert!(!odd.add(f64::NAN, 1.0) && !odd.add(1.0, f64::INFINITY));
        let told = (0..odd.stride).filter(|_| odd.add(1e308, -1e308)).count();
        assert_eq!(told, 1);
        assert_eq!(odd.flat_after_samples(), None, "beyond all reckoning");
    }

    #[test]
    fn it_keeps_few_points() {
        let long = curve(100_000, falls, 0.1);
        assert!(long.points.len() < POINTS && long.stride > 1000);
        assert!(long.points.is_sorted_by(|a, b| a.samples < b.samples));
    }
}
