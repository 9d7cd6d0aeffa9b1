//! How good predictions of lengths were.

use serde::Serialize;

use super::backtest::PredictedJob;
use super::distribution::LengthDistribution;
use infill_model::PastJob;

/// How good predictions were. Errors are those of the median; whether one was right within a factor of two is
/// judged by the length that is the likeliest to be ([`LengthDistribution::likeliest_secs`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LengthScore {
    /// Jobs that were predicted.
    pub jobs: usize,
    /// Mean error, seconds.
    pub mae_s: f64,
    /// Median error as a share of the truth, per cent.
    pub median_ape: f64,
    /// How many were right within a factor of two, per cent.
    pub within_2x: f64,
    /// Rank correlation with the truth (Spearman).
    pub spearman: f64,
    /// Pinball loss of the median of the logarithm.
    pub pinball: f64,
    /// The same without a forest.
    pub pinball_of_history: f64,
    /// How many ended within the interval from 10 to 90 %, per cent.
    pub coverage_80: f64,
    /// Those that can be predicted.
    pub predictable: PredictableShare,
}

/// Jobs whose distribution is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PredictableShare {
    /// How many they are, per cent.
    pub share: f64,
    /// How many of them were right within a factor of two, per cent.
    pub within_2x: f64,
}

/// Judges predictions of these jobs; `None` where there are none.
pub fn score_predictions(jobs: &[PastJob], predicted: &[PredictedJob]) -> Option<LengthScore> {
    let count = predicted.len();
    if count == 0 {
        return None;
    }
    let truth: Vec<f64> = predicted.iter().map(|p| jobs[p.index].secs.max(1.0)).collect();
    let said: Vec<f64> = predicted.iter().map(|p| p.pooled.quantile_secs(0.5)).collect();
    let errors: Vec<f64> = truth.iter().zip(&said).map(|(t, s)| (t - s).abs()).collect();
    let is_near = |i: usize| predicted[i].pooled.is_within_2x(truth[i]);
    let shares = errors.iter().zip(&truth).map(|(e, t)| e / t).collect();
    let per_cent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
    let pinball = |of: &dyn Fn(&PredictedJob) -> &LengthDistribution| {
        predicted
            .iter()
            .zip(&truth)
            .map(|(p, t): (&PredictedJob, &f64)| 0.5 * (t.ln() - of(p).quantile(0.5)).abs())
            .sum::<f64>()
            / count as f64
    };
    let narrow: Vec<usize> = (0..count).filter(|i| predicted[*i].is_predictable()).collect();
    Some(LengthScore {
        jobs: count,
        mae_s: errors.iter().sum::<f64>() / count as f64,
        median_ape: 100.0 * LengthDistribution::from_logs(shares)?.quantile(0.5),
        within_2x: per_cent((0..count).filter(|i| is_near(*i)).count(), count),
        spearman: pearson_correlation(&mean_ranks(&truth), &mean_ranks(&said)),
        pinball: pinball(&|p| &p.pooled),
        pinball_of_history: pinball(&|p| &p.mixture),
        coverage_80: per_cent(
            predicted
                .iter()
                .zip(&truth)
                .filter(|(p, t): &(&PredictedJob, &f64)| p.pooled.interval_contains(**t))
                .count(),
            count,
        ),
        predictable: PredictableShare {
            share: per_cent(narrow.len(), count),
            within_2x: per_cent(narrow.iter().filter(|i| is_near(**i)).count(), narrow.len()),
        },
    })
}

/// Ranks, those of equal values their mean.
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

/// Pearson's correlation; 0 where one of them does not vary.
fn pearson_correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let ma = mean(a);
    let mb = mean(b);
    let both: f64 = a.iter().zip(b).map(|(x, y)| (x - ma) * (y - mb)).sum();
    let spread = |v: &[f64], m: f64| v.iter().map(|x| (x - m).powi(2)).sum::<f64>();
    let norm = (spread(a, ma) * spread(b, mb)).sqrt();
    if norm > 0.0 { both / norm } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::{Submission, UserEstimate};

    #[test]
    fn what_is_said_of_three_jobs() {
        let past = |secs: f64| PastJob {
            job: Submission::default(),
            ended_at: 0.0,
            secs,
            word: UserEstimate::default(),
        };
        let jobs = [past(100.0), past(200.0), past(1000.0)];
        let of = |secs: &[f64]| {
            LengthDistribution::from_logs(secs.iter().map(|s: &f64| s.ln()).collect()).unwrap()
        };
        let predicted =
            |index, secs: &[f64]| PredictedJob { index, mixture: of(secs), raw: of(secs), pooled: of(secs) };
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
