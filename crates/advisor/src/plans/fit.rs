//! The most plausible numbers for the terms, given some measurements, and how sure they are.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::terms::{Features, Terms};

/// Steps of the search for the most plausible numbers.
const MAX_STEPS: usize = 60;

/// Times that one step is made smaller.
const MAX_TRIES: usize = 8;

/// Longest step of a logarithm.
const LONGEST_STEP: f64 = 2.0;

/// The search ends where a step improves less than that.
const TOLERANCE: f64 = 1e-6;

/// Step of the differences in place of derivatives.
const DIFFERENCE: f64 = 1e-4;

/// Times that the weights of measurements are taken from the numbers that they led to.
const REWEIGHTINGS: usize = 2;

/// A measured row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    /// Its place in the table.
    pub(super) row: usize,
    /// Logarithm of the seconds of a step.
    pub(super) log_secs: f64,
}

/// What is believed after some measurements.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    /// The most plausible numbers.
    pub(super) theta: Vec<f64>,
    /// Predicted logarithms of seconds, a row each.
    pub(super) log_secs: DVector<f64>,
    /// Their covariance: what is not known of the numbers, in all rows at once.
    pub(super) covariance: DMatrix<f64>,
}

impl Belief {
    /// Fits the terms to measurements with such noise (standard deviation of the logarithm). `None` when
    /// numbers overflow.
    pub(super) fn fit(terms: &Terms, seen: &[Observed], noise: f64) -> Option<Belief> {
        let mut problem = Problem::new(terms, seen);
        for _ in 0..REWEIGHTINGS {
            problem.weigh(noise);
            problem.search()?;
        }
        let (_, slopes) = problem.slopes(&problem.rows);
        let posterior = Cholesky::new(problem.curvature(&slopes))?;
        let all: Vec<&Features> = terms.rows.iter().collect();
        let (log_secs, slopes) = problem.slopes(&all);
        let covariance = &slopes * posterior.solve(&slopes.transpose());
        let finite = log_secs.iter().chain(covariance.iter()).all(|v| v.is_finite());
        finite.then_some(Belief { theta: problem.theta, log_secs, covariance })
    }
}

/// Measurements against beliefs: a sum of squares.
struct Problem<'a> {
    terms: &'a Terms,
    rows: Vec<&'a Features>,
    measured: DVector<f64>,
    /// Of each measurement: one over its variance.
    weights: DVector<f64>,
    theta: Vec<f64>,
}

impl<'a> Problem<'a> {
    fn new(terms: &'a Terms, seen: &[Observed]) -> Self {
        Problem {
            terms,
            rows: seen.iter().map(|o| &terms.rows[o.row]).collect(),
            measured: DVector::from_iterator(seen.len(), seen.iter().map(|o| o.log_secs)),
            weights: DVector::zeros(seen.len()),
            theta: terms.priors.iter().map(|p| p.mean).collect(),
        }
    }

    fn weigh(&mut self, noise: f64) {
        let weights = self.rows.iter().map(|r| 1.0 / r.variance(&self.theta, noise));
        self.weights = DVector::from_iterator(self.rows.len(), weights);
    }

    /// Levenberg's and Marquardt's search from where it is.
    fn search(&mut self) -> Option<()> {
        let (mut damping, mut cost) = (1e-3, self.cost(&self.theta));
        for _ in 0..MAX_STEPS {
            let (predicted, slopes) = self.slopes(&self.rows);
            let curvature = self.curvature(&slopes);
            let downhill = self.downhill(&predicted, &slopes);
            let mut better = None;
            for _ in 0..MAX_TRIES {
                let theta = self.stepped(damped(&curvature, damping)?.solve(&downhill));
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
        let wrong = self.rows.iter().zip(self.measured.iter().zip(self.weights.iter()));
        let measured: f64 = wrong.map(|(r, (y, w))| w * (r.log_secs(theta) - y).powi(2)).sum();
        let believed = theta.iter().zip(&self.terms.priors).map(|(t, p)| ((t - p.mean) / p.sd).powi(2));
        measured + believed.sum::<f64>()
    }

    /// Predictions, and what each number changes of each.
    fn slopes(&self, rows: &[&Features]) -> (DVector<f64>, DMatrix<f64>) {
        let at = |theta: &[f64]| DVector::from_iterator(rows.len(), rows.iter().map(|r| r.log_secs(theta)));
        let predicted = at(&self.theta);
        let columns: Vec<DVector<f64>> = (0..self.theta.len())
            .map(|i| {
                let mut theta = self.theta.clone();
                theta[i] += DIFFERENCE;
                (at(&theta) - &predicted) / DIFFERENCE
            })
            .collect();
        (predicted, DMatrix::from_columns(&columns))
    }

    /// One over the covariance of the numbers.
    fn curvature(&self, slopes: &DMatrix<f64>) -> DMatrix<f64> {
        let weighted = DMatrix::from_diagonal(&self.weights) * slopes;
        let priors = self.terms.priors.iter().map(|p| p.sd.powi(-2));
        slopes.transpose() * weighted
            + DMatrix::from_diagonal(&DVector::from_iterator(self.theta.len(), priors))
    }

    fn downhill(&self, predicted: &DVector<f64>, slopes: &DMatrix<f64>) -> DVector<f64> {
        let wrong = (&self.measured - predicted).component_mul(&self.weights);
        let believed = self.theta.iter().zip(&self.terms.priors).map(|(t, p)| (p.mean - t) / p.sd.powi(2));
        slopes.transpose() * wrong + DVector::from_iterator(self.theta.len(), believed)
    }

    fn stepped(&self, step: DVector<f64>) -> Vec<f64> {
        self.theta.iter().zip(step.iter()).map(|(t, s)| t + s.clamp(-LONGEST_STEP, LONGEST_STEP)).collect()
    }
}

fn damped(curvature: &DMatrix<f64>, damping: f64) -> Option<Cholesky<f64, Dyn>> {
    Cholesky::new(curvature + DMatrix::from_diagonal(&(curvature.diagonal() * damping)))
}
