//! Scores of length predictions.

use serde::Serialize;

use super::backtest::PredictedJob;
use super::distribution::LengthDistribution;
use infill_model::PastJob;

/// The accuracy of predictions. Errors are those of the median. Whether a prediction is right within a factor
/// of two depends on the likeliest length ([`LengthDistribution::likeliest_secs`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LengthScore {
    /// Jobs that were predicted.
    pub jobs: usize,
    /// Mean absolute error, seconds.
    pub mae_s: f64,
    /// Median absolute error as a share of the truth, per cent.
    pub median_ape: f64,
    /// Share of jobs whose prediction was right within a factor of two, per cent.
    pub within_2x: f64,
    /// Rank correlation with the truth (Spearman).
    pub spearman: f64,
    /// Pinball loss of the median of the logarithm.
    pub pinball: f64,
    /// The same loss without a forest.
    pub pinball_of_history: f64,
    /// Share of jobs that ended within the interval from 10 to 90 %, per cent.
    pub coverage_80: f64,
    /// The predictable jobs.
    pub predictable: PredictableShare,
}

/// The jobs whose distribution is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PredictableShare {
    /// Their share of all jobs, per cent.
    pub share: f64,
    /// The share of them whose prediction was right within a factor of two, per cent.
    pub within_2x: f64,
}

/// Scores the predictions of these jobs; `None` where there are none.
pub fn score_predictions(jobs: &[PastJob], predicted: &[PredictedJob]) -> Option<LengthScore> {
    let count = predicted.len();
    if count == 0 {
        return None;
    }
    let truth: Vec<f64> = predicted.iter().map(|p| jobs[p.index].secs.max(1.0)).collect();
    let medians: Vec<f64> = predicted.iter().map(|p| p.pooled.quantile_secs(0.5)).collect();
    let errors: Vec<f64> = truth.iter().zip(&medians).map(|(t, m)| (t - m).abs()).collect();
    let relative_errors = errors.iter().zip(&truth).map(|(e, t)| e / t).collect();
    let is_near: Vec<bool> = predicted.iter().zip(&truth).map(|(p, t)| p.pooled.is_within_2x(*t)).collect();
    let in_interval = predicted.iter().zip(&truth).filter(|(p, t)| p.pooled.interval_contains(**t)).count();
    let narrow: Vec<usize> = (0..count).filter(|i| predicted[*i].is_predictable()).collect();
    Some(LengthScore {
        jobs: count,
        mae_s: errors.iter().sum::<f64>() / count as f64,
        median_ape: 100.0 * LengthDistribution::from_logs(relative_errors)?.quantile(0.5),
        within_2x: per_cent(is_near.iter().filter(|near| **near).count(), count),
        spearman: pearson_correlation(&mean_ranks(&truth), &mean_ranks(&medians)),
        pinball: mean_pinball_loss(predicted.iter().map(|p| &p.pooled), &truth),
        pinball_of_history: mean_pinball_loss(predicted.iter().map(|p| &p.mixture), &truth),
        coverage_80: per_cent(in_interval, count),
        predictable: PredictableShare {
            share: per_cent(narrow.len(), count),
            within_2x: per_cent(narrow.iter().filter(|i| is_near[**i]).count(), narrow.len()),
        },
    })
}

fn per_cent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Mean pinball loss of the medians, on logarithms.
fn mean_pinball_loss<'a>(predicted: impl Iterator<Item = &'a LengthDistribution>, truth: &[f64]) -> f64 {
    let losses = predicted.zip(truth).map(|(p, t)| 0.5 * (t.ln() - p.quantile(0.5)).abs());
    losses.sum::<f64>() / truth.len() as f64
}

/// Ranks of the values. Equal values have their mean rank.
fn mean_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    for group in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let rank = from as f64 + (group.len() - 1) as f64 / 2.0;
        group.iter().for_each(|i| ranks[*i] = rank);
        from += group.len();
    }
    ranks
}

/// Pearson's correlation; 0 where one of the two does not vary.
fn pearson_correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean_a = mean(a);
    let mean_b = mean(b);
    let both: f64 = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b)).sum();
    let norm = (squared_deviations(a, mean_a) * squared_deviations(b, mean_b)).sqrt();
    if norm > 0.0 { both / norm } else { 0.0 }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn squared_deviations(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|x| (x - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{Submission, UserEstimate};

    #[test]
    fn three_jobs_are_scored() {
        let past = |secs: f64| PastJob {
            job: Submission::default(),
            ended_at: 0.0,
            secs,
            estimate: UserEstimate::default(),
        };
        let jobs = [past(100.0), past(200.0), past(1000.0)];
        let lengths =
            |secs: &[f64]| LengthDistribution::from_logs(secs.iter().map(|s| s.ln()).collect()).unwrap();
        let predicted = |index, secs: &[f64]| PredictedJob {
            index,
            mixture: lengths(secs),
            raw: lengths(secs),
            pooled: lengths(secs),
        };
        let all = [
            predicted(0, &[110.0; 4]),
            predicted(1, &[150.0; 4]),
            predicted(2, &[10.0, 100.0, 100.0, 5000.0]),
        ];
        let score = score_predictions(&jobs, &all).unwrap();
        assert!((score.mae_s - (10.0 + 50.0 + 900.0) / 3.0).abs() < 1e-6, "{score:?}");
        assert!((score.within_2x - 200.0 / 3.0).abs() < 1e-9 && (score.median_ape - 25.0).abs() < 1e-6);
        assert!((score.spearman - -0.5).abs() < 1e-9, "{}", score.spearman);
        assert!((score.predictable.share - 200.0 / 3.0).abs() < 1e-9);
        assert!((score.coverage_80 - 100.0 / 3.0).abs() < 1e-9, "{}", score.coverage_80);
    }
}
