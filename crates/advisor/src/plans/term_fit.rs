//! The most plausible parameters of the terms, given some measurements, and the predictions for other ways to
//! run.
//!
//! Measured logarithms are `f(θ) + r + noise`: the terms `f` with normal priors on their parameters θ, and a
//! Gaussian process `r` for what no term explains ([`super::residual`]). θ is found by the
//! Levenberg–Marquardt method, with the covariance of `r` and noise as weights. Around θ, `f` is taken as
//! linear, which gives the covariance of all predictions together (Rasmussen and Williams, 2006, section
//! 2.7).

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::step_parameters::ResidualShares;
use super::step_terms::{RunFeatures, StepTerms};

/// Most steps of the search.
const MAX_STEPS: usize = 30;

/// Most attempts to make one step smaller.
const MAX_TRIES: usize = 8;

/// Longest step of a logarithm.
const LONGEST_STEP: f64 = 2.0;

/// The search ends when a step improves the cost by less than this.
const TOLERANCE: f64 = 1e-6;

/// Step of the finite differences that replace derivatives.
const DIFFERENCE_STEP: f64 = 1e-4;

/// How often the weights of measurements are computed again, from the parameters that they led to.
const REWEIGHTINGS: usize = 2;

/// A measured way to run.
#[derive(Clone, Debug)]
pub(super) struct StepObservation {
    pub(super) row: RunFeatures,
    /// Logarithm of the seconds of a step.
    pub(super) log_secs: f64,
    /// Variance of `log_secs`.
    pub(super) variance: f64,
}

/// The fit to some measurements.
#[derive(Clone, Debug)]
pub(super) struct FittedTerms {
    /// The most plausible parameters.
    pub(super) theta: Vec<f64>,
    /// Their covariance.
    pub(super) posterior: DMatrix<f64>,
    rows: Vec<RunFeatures>,
    /// Covariance of the measurements' residuals and noise, decomposed.
    residuals: Cholesky<f64, Dyn>,
    /// Inverse of that covariance times what the terms miss.
    pull: DVector<f64>,
    /// Inverse of that covariance times the slopes of the measured rows.
    pulled_slopes: DMatrix<f64>,
}

/// Predictions for some ways to run, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanPredictions {
    /// Logarithms of the seconds of a step.
    pub log_secs: Vec<f64>,
    /// Their covariance.
    pub covariance: DMatrix<f64>,
}

impl PlanPredictions {
    /// Standard error of the logarithm with this index.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn standard_error(&self, index: usize) -> f64 {
        self.covariance[(index, index)].max(0.0).sqrt()
    }
}

impl FittedTerms {
    /// Fits the terms to measurements, at least one. The search starts from `from`, or from the priors'
    /// means. `None` when numbers overflow.
    pub(super) fn from_observations(
        terms: &StepTerms,
        shares: &ResidualShares,
        seen: &[StepObservation],
        from: Option<&[f64]>,
    ) -> Option<FittedTerms> {
        let mut problem = FitProblem::new(terms, seen, from);
        for _ in 0..REWEIGHTINGS {
            problem.update_weights(shares)?;
            problem.minimize_cost()?;
        }
        let (predicted, slopes) = predict_with_slopes(terms, &problem.theta, &problem.rows);
        let posterior = Cholesky::new(problem.curvature(&slopes))?.inverse();
        let pull = problem.residuals.solve(&(&problem.measured - predicted));
        let pulled_slopes = problem.residuals.solve(&slopes);
        let FitProblem { theta, rows, residuals, .. } = problem;
        let finite = theta.iter().chain(posterior.iter()).all(|v| v.is_finite());
        finite.then_some(FittedTerms { theta, posterior, rows, residuals, pull, pulled_slopes })
    }

    /// Predicts these ways to run. `None` when numbers overflow.
    pub(super) fn predict_rows(
        &self,
        terms: &StepTerms,
        shares: &ResidualShares,
        rows: &[RunFeatures],
    ) -> Option<PlanPredictions> {
        let (log_secs, slopes) = predict_with_slopes(terms, &self.theta, rows);
        let similarity = shares.residual_covariance(terms, &self.theta, rows, &self.rows);
        let log_secs = log_secs + &similarity * &self.pull;
        let slopes = slopes - &similarity * &self.pulled_slopes;
        let remaining = shares.residual_covariance(terms, &self.theta, rows, rows)
            - &similarity * self.residuals.solve(&similarity.transpose());
        let covariance = &slopes * &self.posterior * slopes.transpose() + remaining;
        let finite = log_secs.iter().chain(covariance.iter()).all(|v| v.is_finite());
        finite.then(|| PlanPredictions { log_secs: log_secs.iter().copied().collect(), covariance })
    }
}

/// Predictions of the terms for these rows, and their derivatives by each parameter (columns).
fn predict_with_slopes(
    terms: &StepTerms,
    theta: &[f64],
    rows: &[RunFeatures],
) -> (DVector<f64>, DMatrix<f64>) {
    let predicted = predict_log_secs(terms, theta, rows);
    let mut moved = theta.to_vec();
    let columns: Vec<DVector<f64>> = (0..theta.len())
        .map(|i| {
            moved[i] += DIFFERENCE_STEP;
            let column = (predict_log_secs(terms, &moved, rows) - &predicted) / DIFFERENCE_STEP;
            moved[i] = theta[i];
            column
        })
        .collect();
    (predicted, DMatrix::from_columns(&columns))
}

fn predict_log_secs(terms: &StepTerms, theta: &[f64], rows: &[RunFeatures]) -> DVector<f64> {
    DVector::from_iterator(rows.len(), rows.iter().map(|row| row.log_secs(terms, theta).0))
}

/// The least-squares problem: measurements and priors against the parameters.
struct FitProblem<'a> {
    terms: &'a StepTerms,
    rows: Vec<RunFeatures>,
    measured: DVector<f64>,
    noise: DVector<f64>,
    residuals: Cholesky<f64, Dyn>,
    theta: Vec<f64>,
}

impl<'a> FitProblem<'a> {
    fn new(terms: &'a StepTerms, seen: &[StepObservation], from: Option<&[f64]>) -> Self {
        let log_secs = seen.iter().map(|o| o.log_secs);
        let variances = seen.iter().map(|o| o.variance);
        let theta = from.filter(|from| from.len() == terms.mean.len());
        FitProblem {
            terms,
            rows: seen.iter().map(|o| o.row.clone()).collect(),
            measured: DVector::from_iterator(seen.len(), log_secs),
            noise: DVector::from_iterator(seen.len(), variances),
            residuals: Cholesky::new_unchecked(DMatrix::identity(seen.len(), seen.len())),
            theta: theta.unwrap_or(&terms.mean).to_vec(),
        }
    }

    fn update_weights(&mut self, shares: &ResidualShares) -> Option<()> {
        let covariance = shares.residual_covariance(self.terms, &self.theta, &self.rows, &self.rows);
        self.residuals = Cholesky::new(covariance + DMatrix::from_diagonal(&self.noise))?;
        Some(())
    }

    /// Searches from the present parameters by the Levenberg–Marquardt method.
    fn minimize_cost(&mut self) -> Option<()> {
        let mut damping = 1e-3;
        let mut cost = self.cost(&self.theta);
        for _ in 0..MAX_STEPS {
            let (predicted, slopes) = predict_with_slopes(self.terms, &self.theta, &self.rows);
            let curvature = self.curvature(&slopes);
            let descent = self.negative_gradient(&predicted, &slopes);
            let mut improved = None;
            for _ in 0..MAX_TRIES {
                let theta = self.apply_step(&damped_cholesky(&curvature, damping)?.solve(&descent));
                improved = Some((self.cost(&theta), theta)).filter(|(new, _)| *new < cost);
                if improved.is_some() {
                    break;
                }
                damping *= 4.0;
            }
            let Some((new_cost, theta)) = improved else { break };
            let gained = cost - new_cost;
            self.theta = theta;
            cost = new_cost;
            damping = (damping / 5.0).max(1e-8);
            if gained < TOLERANCE {
                break;
            }
        }
        Some(())
    }

    fn cost(&self, theta: &[f64]) -> f64 {
        let predicted = self.rows.iter().map(|row| row.log_secs(self.terms, theta).0);
        let misses = &self.measured - DVector::from_iterator(self.rows.len(), predicted);
        let priors = theta.iter().zip(&self.terms.mean).zip(&self.terms.sd);
        misses.dot(&self.residuals.solve(&misses))
            + priors.map(|((t, m), sd)| ((t - m) / sd).powi(2)).sum::<f64>()
    }

    /// The inverse of the parameters' covariance.
    fn curvature(&self, slopes: &DMatrix<f64>) -> DMatrix<f64> {
        let priors = self.terms.sd.iter().map(|sd| sd.powi(-2));
        slopes.transpose() * self.residuals.solve(slopes)
            + DMatrix::from_diagonal(&DVector::from_iterator(self.theta.len(), priors))
    }

    fn negative_gradient(&self, predicted: &DVector<f64>, slopes: &DMatrix<f64>) -> DVector<f64> {
        let misses = self.residuals.solve(&(&self.measured - predicted));
        let priors = self.theta.iter().zip(&self.terms.mean).zip(&self.terms.sd);
        let priors = priors.map(|((t, mean), sd)| (mean - t) / sd.powi(2));
        slopes.transpose() * misses + DVector::from_iterator(self.theta.len(), priors)
    }

    fn apply_step(&self, step: &DVector<f64>) -> Vec<f64> {
        self.theta.iter().zip(step.iter()).map(|(t, s)| t + s.clamp(-LONGEST_STEP, LONGEST_STEP)).collect()
    }
}

fn damped_cholesky(curvature: &DMatrix<f64>, damping: f64) -> Option<Cholesky<f64, Dyn>> {
    Cholesky::new(curvature + DMatrix::from_diagonal(&(curvature.diagonal() * damping)))
}
