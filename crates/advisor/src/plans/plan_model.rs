//! What is known of the execution plans of one program, on any number of GPUs and several types of them.

use infill_model::ModelFacts;

use super::step_parameters::PlanPriors;
use super::step_terms::{PlacedPlan, RunFeatures, StepTerms};
use super::term_fit::{FittedTerms, PlanPredictions, StepObservation};

/// Most ways to run whose measurements are kept; the least exact go first.
const MOST_SEEN: usize = 64;

/// Least standard deviation of the logarithm of a measurement.
const LEAST_ERROR: f64 = 0.005;

/// The model of one program: what was measured of some ways to run it tells of all others.
#[derive(Clone, Debug)]
pub struct PlanModel {
    terms: StepTerms,
    priors: PlanPriors,
    seen: Vec<StepObservation>,
    belief: Option<FittedTerms>,
}

impl PlanModel {
    /// Knows nothing yet of a program. `types`: of each type of GPU but the first, by how much steps take
    /// longer there, and the standard deviation of that, as logarithms.
    pub fn new(facts: Option<ModelFacts>, priors: &PlanPriors, types: &[(f64, f64)]) -> PlanModel {
        let terms = StepTerms::new(facts, priors, types);
        PlanModel { terms, priors: priors.clone(), seen: Vec::new(), belief: None }
    }

    /// One way to run was measured: seconds of a step, and the relative standard error. The first of all
    /// should be on few GPUs, of the first type.
    pub fn record_measurement(&mut self, placed: &PlacedPlan, step_secs: f64, error: f64) {
        let row = RunFeatures::from_plan(placed);
        let log_secs = step_secs.ln();
        if !log_secs.is_finite() || !error.is_finite() {
            return;
        }
        if self.seen.is_empty() {
            self.terms.anchor_to_first(&row, log_secs);
        }
        let variance = error.max(LEAST_ERROR).powi(2);
        match self.seen.iter_mut().find(|o| o.row.is_same(&row)) {
            Some(before) => {
                let weight = before.variance / (before.variance + variance);
                before.log_secs += weight * (log_secs - before.log_secs);
                before.variance *= 1.0 - weight;
            }
            None => self.seen.push(StepObservation { row, log_secs, variance }),
        }
        if self.seen.len() > MOST_SEEN {
            let worst =
                (0..self.seen.len()).max_by(|a, b| self.seen[*a].variance.total_cmp(&self.seen[*b].variance));
            worst.map(|at| self.seen.remove(at));
        }
        self.belief = None;
    }

    /// Fits what was measured since; false where there is nothing to fit, or numbers overflow.
    pub fn refit_model(&mut self) -> bool {
        if self.belief.is_none() && !self.seen.is_empty() {
            self.belief = FittedTerms::from_observations(&self.terms, &self.priors.shares, &self.seen, None);
        }
        self.belief.is_some()
    }

    /// What is believed of these ways to run since the last update; `None` while nothing was measured.
    pub fn predict_plans(&self, placed: &[PlacedPlan]) -> Option<PlanPredictions> {
        let rows: Vec<RunFeatures> = placed.iter().map(RunFeatures::from_plan).collect();
        self.belief.as_ref()?.predict_rows(&self.terms, &self.priors.shares, &rows)
    }
}
