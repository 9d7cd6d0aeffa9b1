//! The model of the execution plans of one program, on any number of GPUs and several types of them.

use infill_model::ModelFacts;

use super::step_parameters::PlanPriors;
use super::step_terms::{PlacedPlan, RunFeatures, StepTerms};
use super::term_fit::{FittedTerms, PlanPredictions, StepObservation};

/// Most ways to run whose measurements are kept. The least exact go first.
const MOST_SEEN: usize = 64;

/// Least standard deviation of the logarithm of a measurement.
const MIN_ERROR: f64 = 0.005;

/// The model of one program. It predicts all ways to run from the measurements of some.
#[derive(Clone, Debug)]
pub struct PlanModel {
    terms: StepTerms,
    priors: PlanPriors,
    seen: Vec<StepObservation>,
    fit: Option<FittedTerms>,
}

impl PlanModel {
    /// A model without measurements. `types`: for each type of GPU but the first, how much slower steps are
    /// on it than on the first, as mean and standard deviation of the logarithm.
    pub fn new(facts: Option<ModelFacts>, priors: &PlanPriors, types: &[(f64, f64)]) -> PlanModel {
        let terms = StepTerms::new(facts, priors, types);
        PlanModel { terms, priors: priors.clone(), seen: Vec::new(), fit: None }
    }

    /// Takes in a measurement of one way to run: seconds of a step, and the relative standard error. The
    /// first measurement should be on few GPUs, of the first type.
    pub fn record_measurement(&mut self, placed: &PlacedPlan, step_secs: f64, error: f64) {
        let row = RunFeatures::from_plan(placed);
        let log_secs = step_secs.ln();
        if !log_secs.is_finite() || !error.is_finite() {
            return;
        }
        if self.seen.is_empty() {
            self.terms.anchor_to_first(&row, log_secs);
        }
        let variance = error.max(MIN_ERROR).powi(2);
        match self.seen.iter_mut().find(|o| o.row.is_same(&row)) {
            Some(earlier) => {
                let weight = earlier.variance / (earlier.variance + variance);
                earlier.log_secs += weight * (log_secs - earlier.log_secs);
                earlier.variance *= 1.0 - weight;
            }
            None => self.seen.push(StepObservation { row, log_secs, variance }),
        }
        if self.seen.len() > MOST_SEEN {
            let worst =
                (0..self.seen.len()).max_by(|a, b| self.seen[*a].variance.total_cmp(&self.seen[*b].variance));
            worst.map(|i| self.seen.remove(i));
        }
        self.fit = None;
    }

    /// Fits the model if it has new measurements; false where there are none at all, or numbers overflow.
    pub fn refit_model(&mut self) -> bool {
        if self.fit.is_none() && !self.seen.is_empty() {
            self.fit = FittedTerms::from_observations(&self.terms, &self.priors.shares, &self.seen, None);
        }
        self.fit.is_some()
    }

    /// Predictions for these ways to run by the last fit; `None` without one.
    pub fn predict_plans(&self, placed: &[PlacedPlan]) -> Option<PlanPredictions> {
        let rows: Vec<RunFeatures> = placed.iter().map(RunFeatures::from_plan).collect();
        self.fit.as_ref()?.predict_rows(&self.terms, &self.priors.shares, &rows)
    }
}
