//! A robust rate with its error, from a series of progress reports.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Smallest relative error of a point of a profile, and of the mean of two rates. A larger weight would keep
/// later measurements from moving the point. Fits use a smaller bound of their own.
pub(crate) const MIN_RATE_ERROR: f64 = 0.006;

/// A rate that differs by less than this (relatively) does not contradict another.
const SMALL_DIFFERENCE: f64 = 0.05;

/// How many standard errors apart two rates must be to contradict each other.
const CONTRADICTING_ERRORS: f64 = 4.0;

/// Whether two rates with their relative errors cannot both be right.
pub(crate) fn rates_contradict(a: (f64, f64), b: (f64, f64)) -> bool {
    let apart = (a.0 / b.0).ln().abs();
    apart > SMALL_DIFFERENCE && apart > CONTRADICTING_ERRORS * a.1.hypot(b.1)
}

/// The mean of two rates with their relative errors, weighted by their precision (the inverse of the
/// variance).
pub(crate) fn weighted_mean_rate(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let wa = error_weight(a.1);
    let wb = error_weight(b.1);
    (((wa * a.0.ln() + wb * b.0.ln()) / (wa + wb)).exp(), (wa + wb).powf(-0.5).max(MIN_RATE_ERROR))
}

fn error_weight(error: f64) -> f64 {
    error.max(MIN_RATE_ERROR).powi(-2)
}

/// Fewer reports than this make no rate.
pub(crate) const MIN_REPORTS: usize = 3;

/// At most this share of a series is warm-up. A job that never settles has no warm-up; it varies by nature.
const MAX_WARMUP: f64 = 0.5;

/// A report is an outlier if it is farther from the median than this number of (scaled) median deviations.
/// Typical outliers are a checkpoint or a hiccup of the data loader.
const OUTLIER_DEVIATIONS: f64 = 5.0;

/// Deviations are never taken to be smaller than this. Otherwise a program that is regular to the microsecond
/// would have outliers.
const MIN_DEVIATION: f64 = 0.004;

/// If outliers are more than this share of the *reports*, they are not outliers.
const MAX_OUTLIERS: f64 = 0.25;

/// Factor from the median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SD: f64 = 1.482_6;

/// The 97.5 % quantile of the normal distribution.
const Z975: f64 = 1.959_963_984_540_054;

/// The warm-up must be slower than the rest by this number of standard errors. Otherwise there is none.
const CLEAR_ERRORS: f64 = 3.0;

/// Progress of all workers between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CombinedReport {
    /// Seconds, positive.
    pub secs: f64,
    /// Samples of all workers.
    pub samples: f64,
}

/// The steady rate of a series of reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyRate {
    /// Samples a second, without warm-up and outliers.
    pub rate: f64,
    /// Relative standard error.
    pub error: f64,
    /// Seconds of the reports that it rests on.
    pub secs: f64,
    /// Reports at the beginning that are warm-up.
    pub warmup: usize,
    /// Seconds that the warm-up lost against the steady rate.
    pub warmup_lost_secs: f64,
    /// Outliers left out.
    pub outliers: usize,
}

/// The steady rate of a series. `fresh`: the series begins with the start of a command, so that it may begin
/// with a warm-up. `None` for too few reports, or when nothing was done.
pub(crate) fn steady_rate(series: &[CombinedReport], fresh: bool) -> Option<SteadyRate> {
    let logs: Vec<f64> = series.iter().map(|r| (r.samples / r.secs).max(f64::MIN_POSITIVE).ln()).collect();
    let warmup = if fresh { warmup_length(&logs) } else { 0 };
    let rest = &series[warmup..];
    let rest_logs = &logs[warmup..];
    if rest.len() < MIN_REPORTS {
        return None;
    }
    let regular = regular_flags(rest_logs);
    let kept: Vec<(CombinedReport, f64)> =
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

/// The number of reports of the warm-up. The cut is where the mean of the rest has the smallest error (the
/// marginal standard error rule of White, 1997), if what it cuts off is clearly slower.
fn warmup_length(logs: &[f64]) -> usize {
    let most = (logs.len() as f64 * MAX_WARMUP) as usize;
    let (median, deviation) = robust_spread(&logs[logs.len() / 2..]);
    // One hiccup must not look like the end of a warm-up.
    let clamped: Vec<f64> = logs
        .iter()
        .map(|l| {
            l.clamp(median - 3.0 * OUTLIER_DEVIATIONS * deviation, median + OUTLIER_DEVIATIONS * deviation)
        })
        .collect();
    let best = (0..=most)
        .filter(|cut| logs.len() - cut >= MIN_REPORTS)
        .min_by(|a, b| marginal_error(&clamped[*a..]).total_cmp(&marginal_error(&clamped[*b..])))
        .unwrap_or(0);
    let (n, mean, squares) = sample_moments(&clamped[best..]);
    let error = (squares / n / n).sqrt().max(MIN_DEVIATION);
    let before = sample_moments(&clamped[..best]).1;
    if best > 0 && before < mean - CLEAR_ERRORS * error { best } else { 0 }
}

/// The squared marginal standard error of these values.
fn marginal_error(values: &[f64]) -> f64 {
    let (n, _, squares) = sample_moments(values);
    squares / (n * n)
}

/// For each value, whether it is regular, that is, not an outlier.
fn regular_flags(logs: &[f64]) -> Vec<bool> {
    let (median, deviation) = robust_spread(logs);
    let keep: Vec<bool> = logs.iter().map(|l| (l - median).abs() <= OUTLIER_DEVIATIONS * deviation).collect();
    let outliers = keep.iter().filter(|k| !**k).count();
    if outliers as f64 > MAX_OUTLIERS * logs.len() as f64 { vec![true; logs.len()] } else { keep }
}

/// Median and robust standard deviation.
fn robust_spread(values: &[f64]) -> (f64, f64) {
    let center = median(values.to_vec());
    let deviation = median(values.iter().map(|v| (v - center).abs()).collect());
    (center, (deviation * MAD_TO_SD).max(MIN_DEVIATION))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.is_empty() {
        0.0
    } else if values.len() % 2 == 1 {
        values[half]
    } else {
        f64::midpoint(values[half - 1], values[half])
    }
}

/// Number, mean and sum of squared deviations.
fn sample_moments(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (n, mean, values.iter().map(|v| (v - mean).powi(2)).sum())
}

/// Standard error of the mean. Reports that follow each other closely count less, by their first-order
/// autocorrelation.
fn standard_error(logs: &[f64]) -> f64 {
    let (n, mean, squares) = sample_moments(logs);
    if n < 2.0 {
        return 1.0;
    }
    let lagged: f64 = logs.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    // In a short series the correlation itself is uncertain by 1/√n.
    let correlation = if squares > 0.0 { (lagged / squares - 1.0 / n.sqrt()).clamp(0.0, 0.9) } else { 0.0 };
    (squares / (n - 1.0) / n * (1.0 + correlation) / (1.0 - correlation)).sqrt() * small_sample_factor(n)
}

/// How much wider a 95 % interval from `n` values must be than the normal distribution says (Student's t).
fn small_sample_factor(n: f64) -> f64 {
    StudentsT::new(0.0, 1.0, n - 1.0).map_or(1.0, |t| t.inverse_cdf(0.975) / Z975)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[f64]) -> Vec<CombinedReport> {
        rates.iter().map(|r| CombinedReport { secs: 1.0, samples: *r }).collect()
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
    fn hiccups_are_left_out_but_a_second_mode_is_kept() {
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
        // A fixed stream of numbers, the same in every run.
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
    fn too_few_reports_make_no_rate() {
        assert_eq!(steady_rate(&series(&[1.0, 1.0]), true), None);
        assert_eq!(steady_rate(&series(&[0.0; 9]), true), None);
        assert_eq!(steady_rate(&[], false), None);
    }
}
