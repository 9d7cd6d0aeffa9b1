//! A robust rate with its error from a series of progress reports.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// No rate is taken to be more exact than this (relatively), so that later measurements still move it.
pub(crate) const MIN_RATE_ERROR: f64 = 0.006;

/// A rate that differs by less (relatively) is no reason to doubt another.
const SMALL_DIFFERENCE: f64 = 0.05;

/// How many standard errors apart two rates must be to contradict each other.
const CONTRADICTING_ERRORS: f64 = 4.0;

/// Whether two rates with their relative errors cannot both be right.
pub(crate) fn rates_contradict(a: (f64, f64), b: (f64, f64)) -> bool {
    let apart = (a.0 / b.0).ln().abs();
    apart > SMALL_DIFFERENCE && apart > CONTRADICTING_ERRORS * a.1.hypot(b.1)
}

/// Both rates with their relative errors, weighted by how exact they are.
pub(crate) fn weighted_mean_rate(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let weight = |error: f64| error.max(MIN_RATE_ERROR).powi(-2);
    let wa = weight(a.1);
    let wb = weight(b.1);
    (((wa * a.0.ln() + wb * b.0.ln()) / (wa + wb)).exp(), (wa + wb).powf(-0.5).max(MIN_RATE_ERROR))
}

/// Reports that say something: fewer make no rate.
pub(crate) const FEWEST_REPORTS: usize = 3;

/// At most this share of a series is warm-up: a job that never settles has no warm-up, it is like that.
const MOST_WARMUP: f64 = 0.5;

/// A report farther from the median than so many (scaled) median deviations is an outlier: a checkpoint, a
/// hiccup of the data loader.
const OUTLIER_DEVIATIONS: f64 = 5.0;

/// Deviations are never taken to be smaller than this: a program that is regular to the microsecond has no
/// outliers.
const LEAST_DEVIATION: f64 = 0.004;

/// Outliers that take more than this share of the *reports* are no outliers.
const MOST_OUTLIERS: f64 = 0.25;

/// Median absolute deviation → standard deviation of a normal distribution.
const MAD_TO_SD: f64 = 1.482_6;

/// The 97.5 % quantile of the normal distribution.
const Z975: f64 = 1.959_963_984_540_054;

/// The warm-up must be slower than the rest by so many standard errors, or it is none.
const CLEAR_ERRORS: f64 = 3.0;

/// Progress between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RateReport {
    /// Seconds, positive.
    pub secs: f64,
    /// Samples of all workers.
    pub samples: f64,
}

/// What a series says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyRate {
    /// Samples a second, without warm-up and outliers.
    pub rate: f64,
    /// Relative standard error.
    pub error: f64,
    /// Seconds that it rests on.
    pub secs: f64,
    /// Reports at the beginning that are warm-up.
    pub warmup: usize,
    /// Seconds that the warm-up lost against the steady rate.
    pub warmup_lost_secs: f64,
    /// Outliers left out.
    pub outliers: usize,
}

/// The steady rate of a series. `fresh`: it begins with the start of a command, so that there may be a
/// warm-up. `None` for too few reports, or when nothing was done.
pub(crate) fn steady_rate(series: &[RateReport], fresh: bool) -> Option<SteadyRate> {
    let logs: Vec<f64> = series.iter().map(|r| (r.samples / r.secs).max(f64::MIN_POSITIVE).ln()).collect();
    let warmup = if fresh { warmup_length(&logs) } else { 0 };
    let rest = &series[warmup..];
    let rest_logs = &logs[warmup..];
    if rest.len() < FEWEST_REPORTS {
        return None;
    }
    let regular = regular_flags(rest_logs);
    let kept: Vec<(RateReport, f64)> =
        rest.iter().zip(rest_logs).zip(&regular).filter(|(_, r)| **r).map(|((r, l), _)| (*r, *l)).collect();
    let secs: f64 = kept.iter().map(|(r, _)| r.secs).sum();
    let samples: f64 = kept.iter().map(|(r, _)| r.samples).sum();
    if !(secs > 0.0 && samples > 0.0) {
        return None;
    }
    let rate = samples / secs;
    let kept_logs: Vec<f64> = kept.iter().map(|(_, l)| *l).collect();
    let lost: f64 = series[..warmup].iter().map(|r| r.secs - r.samples / rate).sum();
    Some(SteadyRate {
        rate,
        error: standard_error(&kept_logs),
        secs,
        warmup,
        warmup_lost_secs: lost.max(0.0),
        outliers: rest.len() - kept.len(),
    })
}

/// Length of the warm-up: the cut after which the mean is known best (the marginal standard error rule of
/// White, 1997), if what it cuts off is clearly slower.
fn warmup_length(logs: &[f64]) -> usize {
    let most = (logs.len() as f64 * MOST_WARMUP) as usize;
    let (median, deviation) = robust_spread(&logs[logs.len() / 2..]);
    // One hiccup must not look like the end of a warm-up.
    let tame: Vec<f64> = logs
        .iter()
        .map(|l| {
            l.clamp(median - 3.0 * OUTLIER_DEVIATIONS * deviation, median + OUTLIER_DEVIATIONS * deviation)
        })
        .collect();
    let marginal = |cut: usize| {
        let (n, _, squares) = sample_moments(&tame[cut..]);
        squares / (n * n)
    };
    let best = (0..=most)
        .filter(|cut| logs.len() - cut >= FEWEST_REPORTS)
        .min_by(|a, b| marginal(*a).total_cmp(&marginal(*b)))
        .unwrap_or(0);
    let (n, mean, squares) = sample_moments(&tame[best..]);
    let error = (squares / n / n).sqrt().max(LEAST_DEVIATION);
    let before = sample_moments(&tame[..best]).1;
    if best > 0 && before < mean - CLEAR_ERRORS * error { best } else { 0 }
}

/// Which values are no outliers.
fn regular_flags(logs: &[f64]) -> Vec<bool> {
    let (median, deviation) = robust_spread(logs);
    let keep: Vec<bool> = logs.iter().map(|l| (l - median).abs() <= OUTLIER_DEVIATIONS * deviation).collect();
    let out = keep.iter().filter(|k| !**k).count();
    if out as f64 > MOST_OUTLIERS * logs.len() as f64 { vec![true; logs.len()] } else { keep }
}

/// Median and robust standard deviation.
fn robust_spread(values: &[f64]) -> (f64, f64) {
    let middle = median(values.to_vec());
    let deviation = median(values.iter().map(|v| (v - middle).abs()).collect());
    (middle, (deviation * MAD_TO_SD).max(LEAST_DEVIATION))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (n, half) if n % 2 == 1 => values[half],
        (_, half) => f64::midpoint(values[half - 1], values[half]),
    }
}

/// Number, mean and sum of squared deviations.
fn sample_moments(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (n, mean, values.iter().map(|v| (v - mean).powi(2)).sum())
}

/// Standard error of the mean; reports that follow each other closely are worth less (first-order
/// autocorrelation).
fn standard_error(logs: &[f64]) -> f64 {
    let (n, mean, squares) = sample_moments(logs);
    if n < 2.0 {
        return 1.0;
    }
    let lagged: f64 = logs.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    // Of a short series the correlation itself is uncertain by 1/√n.
    let alike = if squares > 0.0 { (lagged / squares - 1.0 / n.sqrt()).clamp(0.0, 0.9) } else { 0.0 };
    (squares / (n - 1.0) / n * (1.0 + alike) / (1.0 - alike)).sqrt() * small_sample_factor(n)
}

/// How much wider an interval from so few values must be than the normal distribution says (Student's t, 95
/// %).
fn small_sample_factor(n: f64) -> f64 {
    StudentsT::new(0.0, 1.0, n - 1.0).map_or(1.0, |t| t.inverse_cdf(0.975) / Z975)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[f64]) -> Vec<RateReport> {
        rates.iter().map(|r| RateReport { secs: 1.0, samples: *r }).collect()
    }

    /// Values around 100 that look like noise.
    fn noisy(n: usize, spread: f64) -> Vec<f64> {
        (0..n).map(|i| 100.0 * (1.0 + spread * ((i * 7 + 3) % 11) as f64 / 5.0 - spread)).collect()
    }

    #[test]
    fn warm_up_is_cut_and_counted() {
        let mut rates = vec![10.0, 40.0, 80.0];
        rates.extend(noisy(12, 0.01));
        let rate = steady_rate(&series(&rates), true).unwrap();
        assert_eq!(rate.warmup, 3);
        assert!((rate.rate / 100.0 - 1.0).abs() < 0.01, "{rate:?}");
        assert!((rate.warmup_lost_secs - 1.7).abs() < 0.05, "{rate:?}");
    }

    #[test]
    fn a_steady_series_has_no_warm_up() {
        for spread in [0.0, 0.01, 0.1] {
            let rate = steady_rate(&series(&noisy(30, spread)), true).unwrap();
            assert_eq!(rate.warmup, 0, "{spread}");
            assert!((rate.rate / 100.0 - 1.0).abs() < 0.02 + spread / 4.0);
        }
    }

    #[test]
    fn hiccups_are_left_out_but_a_second_mode_is_not() {
        let mut rates = noisy(20, 0.01);
        rates[7] = 5.0;
        let rate = steady_rate(&series(&rates), false).unwrap();
        assert_eq!(rate.outliers, 1);
        assert!((rate.rate / 100.0 - 1.0).abs() < 0.01);
        let two: Vec<f64> = (0..20).map(|i| if i % 2 == 0 { 50.0 } else { 150.0 }).collect();
        let rate = steady_rate(&series(&two), false).unwrap();
        assert_eq!((rate.outliers, rate.rate), (0, 100.0));
        assert!(rate.error > 0.05);
    }

    #[test]
    fn the_error_covers_the_truth() {
        // A fixed stream of numbers: the same at every run.
        let mut seed = 1_u64;
        let mut normal = || {
            let sum: f64 = (0..12)
                .map(|_| {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 11) as f64 / (1_u64 << 53) as f64
                })
                .sum();
            sum - 6.0
        };
        let inside = (0..400)
            .filter(|_| {
                let rates: Vec<f64> = (0..15).map(|_| 100.0 * (0.05 * normal()).exp()).collect();
                let rate = steady_rate(&series(&rates), true).unwrap();
                (rate.rate / 100.0).ln().abs() < 2.0 * rate.error + 0.002
            })
            .count();
        assert!(inside > 340, "{inside} of 400");
    }

    #[test]
    fn too_little_is_nothing() {
        assert_eq!(steady_rate(&series(&[1.0, 1.0]), true), None);
        assert_eq!(steady_rate(&series(&[0.0; 9]), true), None);
        assert_eq!(steady_rate(&[], false), None);
    }
}
