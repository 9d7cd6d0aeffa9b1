//! The most plausible numbers for the terms, given some measurements, and what follows for other ways to run.
//!
//! Measured logarithms are `f(θ) + r + noise`: the terms `f` with normal priors on their numbers θ, and a
//! Gaussian process `r` for what no term says ([`super::residual`]). θ is found by Levenberg's and
//! Marquardt's search with the covariance of `r` and noise as weights; around it `f` is taken as linear,
//! which gives the covariance of all predictions together (Rasmussen and Williams, 2006, section 2.7).

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::step_parameters::ResidualShares;
use super::step_terms::{RunFeatures, StepTerms};

/// Steps of the search for the most plausible numbers.
const MAX_STEPS: usize = 30;

/// Times that one step is made smaller.
const MAX_TRIES: usize = 8;

/// Longest step of a logarithm.
const LONGEST_STEP: f64 = 2.0;

/// The search ends where a step improves less than that.
const TOLERANCE: f64 = 1e-6;

/// Step of the differences in place of derivatives.
const DIFFERENCE_STEP: f64 = 1e-4;

/// Times that the weights of measurements are taken from the numbers that they led to.
const REWEIGHTINGS: usize = 2;

/// A measured way to run.
#[derive(Clone, Debug)]
pub(super) struct StepObservation {
    pub(super) row: RunFeatures,
    /// Logarithm of the seconds of a step.
    pub(super) log_secs: f64,
    /// Variance of that.
    pub(super) variance: f64,
}

/// What is believed after some measurements.
#[derive(Clone, Debug)]
pub(super) struct FittedTerms {
    /// The most plausible numbers.
    pub(super) theta: Vec<f64>,
    /// Their covariance.
    pub(super) posterior: DMatrix<f64>,
    rows: Vec<RunFeatures>,
    /// Covariance of the measurements' residuals and noise, decomposed.
    residuals: Cholesky<f64, Dyn>,
    /// Its inverse times what the terms miss.
    pull: DVector<f64>,
    /// Its inverse times the slopes of the measured rows.
    pulled_slopes: DMatrix<f64>,
}

/// What is believed of some ways to run, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanPredictions {
    /// Logarithms of the seconds of a step.
    pub log_secs: Vec<f64>,
    /// Their covariance.
    pub covariance: DMatrix<f64>,
}

impl PlanPredictions {
    /// Standard error of one of these logarithms.
    ///
    /// # Panics
    /// Where there is no such one.
    pub fn standard_error(&self, at: usize) -> f64 {
        self.covariance[(at, at)].max(0.0).sqrt()
    }
}

impl FittedTerms {
    /// Fits the terms to measurements, at least one. `None` when numbers overflow.
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

    /// What is believed of these ways to run. `None` when numbers overflow.
    pub(super) fn predict_rows(
        &self,
        terms: &StepTerms,
        shares: &ResidualShares,
        rows: &[RunFeatures],
    ) -> Option<PlanPredictions> {
        let (log_secs, slopes) = predict_with_slopes(terms, &self.theta, rows);
        let alike = shares.residual_covariance(terms, &self.theta, rows, &self.rows);
        let log_secs = log_secs + &alike * &self.pull;
        let slopes = slopes - &alike * &self.pulled_slopes;
        let left = shares.residual_covariance(terms, &self.theta, rows, rows)
            - &alike * self.residuals.solve(&alike.transpose());
        let covariance = &slopes * &self.posterior * slopes.transpose() + left;
        let finite = log_secs.iter().chain(covariance.iter()).all(|v| v.is_finite());
        finite.then(|| PlanPredictions { log_secs: log_secs.iter().copied().collect(), covariance })
    }
}

/// Predictions of the terms, and what each number changes of each.
fn predict_with_slopes(
    terms: &StepTerms,
    theta: &[f64],
    rows: &[RunFeatures],
) -> (DVector<f64>, DMatrix<f64>) {
    let at = |theta: &[f64]| {
        DVector::from_iterator(rows.len(), rows.iter().map(|row| row.log_secs(terms, theta).0))
    };
    let predicted = at(theta);
    let mut moved = theta.to_vec();
    let columns: Vec<DVector<f64>> = (0..theta.len())
        .map(|i| {
            moved[i] += DIFFERENCE_STEP;
            let column = (at(&moved) - &predicted) / DIFFERENCE_STEP;
            moved[i] = theta[i];
            column
        })
        .collect();
    (predicted, DMatrix::from_columns(&columns))
}

/// Measurements against beliefs: a sum of squares.
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
        let column =
            |of: fn(&StepObservation) -> f64| DVector::from_iterator(seen.len(), seen.iter().map(of));
        let theta = from.filter(|from| from.len() == terms.mean.len());
        FitProblem {
            terms,
            rows: seen.iter().map(|o| o.row.clone()).collect(),
            measured: column(|o| o.log_secs),
            noise: column(|o| o.variance),
            residuals: Cholesky::new_unchecked(DMatrix::identity(seen.len(), seen.len())),
            theta: theta.unwrap_or(&terms.mean).to_vec(),
        }
    }

    fn update_weights(&mut self, shares: &ResidualShares) -> Option<()> {
        let alike = shares.residual_covariance(self.terms, &self.theta, &self.rows, &self.rows);
        self.residuals = Cholesky::new(alike + DMatrix::from_diagonal(&self.noise))?;
        Some(())
    }

    /// Levenberg's and Marquardt's search from where it is.
    fn minimize_cost(&mut self) -> Option<()> {
        let mut damping = 1e-3;
        let mut cost = self.cost(&self.theta);
        for _ in 0..MAX_STEPS {
            let (predicted, slopes) = predict_with_slopes(self.terms, &self.theta, &self.rows);
            let curvature = self.curvature(&slopes);
            let downhill = self.negative_gradient(&predicted, &slopes);
            let mut better = None;
            for _ in 0..MAX_TRIES {
                let theta = self.apply_step(&damped_cholesky(&curvature, damping)?.solve(&downhill));
                better = Some((self.cost(&theta), theta)).filter(|(new, _)| *new < cost);
                if better.is_some() {
                    break;
                }
                damping *= 4.0;
            }
            let Some((new, theta)) = better else { break };
            let gained = cost - new;
            (self.theta, cost, damping) = (theta, new, (damping / 5.0).max(1e-8));
            if gained < TOLERANCE {
                break;
            }
        }
        Some(())
    }

    fn cost(&self, theta: &[f64]) -> f64 {
        let predicted = self.rows.iter().map(|row| row.log_secs(self.terms, theta).0);
        let wrong = &self.measured - DVector::from_iterator(self.rows.len(), predicted);
        let believed = theta.iter().zip(&self.terms.mean).zip(&self.terms.sd);
        wrong.dot(&self.residuals.solve(&wrong))
            + believed.map(|((t, m), sd)| ((t - m) / sd).powi(2)).sum::<f64>()
    }

    /// One over the covariance of the numbers.
    fn curvature(&self, slopes: &DMatrix<f64>) -> DMatrix<f64> {
        let priors = self.terms.sd.iter().map(|sd| sd.powi(-2));
        slopes.transpose() * self.residuals.solve(slopes)
            + DMatrix::from_diagonal(&DVector::from_iterator(self.theta.len(), priors))
    }

    fn negative_gradient(&self, predicted: &DVector<f64>, slopes: &DMatrix<f64>) -> DVector<f64> {
        let wrong = self.residuals.solve(&(&self.measured - predicted));
        let believed = self.theta.iter().zip(&self.terms.mean).zip(&self.terms.sd);
        let believed = believed.map(|((t, mean), sd)| (mean - t) / sd.powi(2));
        slopes.transpose() * wrong + DVector::from_iterator(self.theta.len(), believed)
    }

    fn apply_step(&self, step: &DVector<f64>) -> Vec<f64> {
        self.theta.iter().zip(step.iter()).map(|(t, s)| t + s.clamp(-LONGEST_STEP, LONGEST_STEP)).collect()
    }
}

fn damped_cholesky(curvature: &DMatrix<f64>, damping: f64) -> Option<Cholesky<f64, Dyn>> {
    Cholesky::new(curvature + DMatrix::from_diagonal(&(curvature.diagonal() * damping)))
}
