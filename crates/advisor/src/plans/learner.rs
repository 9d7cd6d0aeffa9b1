//! The model of execution plans of one program, learned while its jobs run.

use super::fit::{Belief, Observed};
use super::terms::Terms;
use crate::means::Means;
use infill_model::{ModelFacts, PlanRun};

/// A row that was measured more often than that is known well enough not to be fitted anew.
const MOST_FITTED: u32 = 3;

/// What is known of a program's plans on the placements of a table.
#[derive(Clone, Debug)]
pub struct PlanLearner {
    terms: Terms,
    noise: f64,
    /// Logarithms of the seconds of a step.
    seen: Means,
    belief: Option<Belief>,
}

impl PlanLearner {
    /// Knows nothing yet of these plans and placements, at least one; their rates are not looked at. `noise`
    /// is the standard deviation of the logarithm of a measurement.
    pub fn new(runs: &[PlanRun], facts: Option<ModelFacts>, noise: f64) -> Self {
        PlanLearner { terms: Terms::new(runs, facts), noise, seen: Means::default(), belief: None }
    }

    /// A row was measured, seconds a step.
    pub fn measured(&mut self, row: usize, step_secs: f64) {
        let log_secs = step_secs.ln();
        if row >= self.terms.rows.len() || !log_secs.is_finite() {
            return;
        }
        if self.seen.are_none() {
            self.terms.begin_with(row, log_secs);
        }
        if self.seen.add(row, log_secs) <= MOST_FITTED {
            let seen: Vec<Observed> =
                self.seen.all().map(|(row, log_secs, _)| Observed { row, log_secs }).collect();
            // Numbers that overflow teach nothing: what was believed before stays.
            if let Some(belief) = Belief::fit(&self.terms, &seen, self.noise) {
                self.belief = Some(belief);
            }
        }
    }

    /// Seconds of a step by a row: as measured, else as predicted; `None` while nothing was measured.
    pub fn step_secs(&self, row: usize) -> Option<f64> {
        let believed = || self.belief.as_ref().and_then(|b| b.log_secs.get(row)).copied();
        self.seen.of(row).or_else(believed).map(f64::exp)
    }
}
