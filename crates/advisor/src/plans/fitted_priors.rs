//! What is usual of the terms' numbers, fitted to programs that were measured.
//!
//! Means and deviations are those of the programs, each weighed by how much its measurements tell of a
//! number, drawn towards a reference.

use infill_model::{ModelFacts, PlanMeasurement};

use super::measurement_choice;
use super::step_parameters::{PARAMETER_COUNT, PlanPriors, REFERENCE_PRIORS, StepParameter};
use super::step_terms::{PlacedPlan, RunFeatures, StepTerms};
use super::term_fit::{FittedTerms, StepObservation};

/// Rounds in which priors and programs are fitted to each other.
const FIT_ROUNDS: usize = 6;

/// Most rows of a program that are fitted.
const MOST_ROWS: usize = 45;

/// How much the rows of a table vary.
const TABLE_NOISE: f64 = 0.02;

/// How much of the usual residuals is left to them while priors are fitted: the terms shall say what they
/// can.
const RESIDUAL_FACTOR: f64 = 0.5;

/// Weight of the reference's mean and deviation, in programs.
const REFERENCE_PROGRAMS: f64 = 0.5;
const REFERENCE_DEVIATIONS: f64 = 1.275;

/// Least deviation, in parts of the reference's.
const LEAST_DEVIATION: f64 = 0.5;

/// A program that was measured: its rows, and what is known of it.
pub type MeasuredProgram<'a> = (&'a [PlanMeasurement], Option<ModelFacts>);

impl PlanPriors {
    /// Fitted to these programs.
    pub fn fit_to_programs(programs: &[MeasuredProgram<'_>]) -> PlanPriors {
        let mut priors = PlanPriors::from_reference();
        let mut numbers: Vec<Option<Vec<f64>>> = vec![None; programs.len()];
        for _ in 0..FIT_ROUNDS {
            let fits: Vec<FittedTerms> = programs
                .iter()
                .zip(&mut numbers)
                .filter_map(|(program, numbers)| {
                    let belief = fit_program(program, &priors, numbers.as_deref())?;
                    *numbers = Some(belief.theta.clone());
                    Some(belief)
                })
                .collect();
            priors.update_from_fits(&fits);
        }
        priors
    }

    fn update_from_fits(&mut self, fits: &[FittedTerms]) {
        for i in (0..PARAMETER_COUNT).filter(|i: &usize| {
            ![StepParameter::Compute as usize, StepParameter::Params as usize].contains(i)
        }) {
            let (mean, sd) = REFERENCE_PRIORS[i];
            let told =
                |belief: &FittedTerms| (1.0 - belief.posterior[(i, i)] / self.sd[i].powi(2)).clamp(0.0, 1.0);
            let weight: f64 = fits.iter().map(told).sum();
            let sum: f64 = fits.iter().map(|f| told(f) * f.theta[i]).sum();
            let new_mean = (sum + REFERENCE_PROGRAMS * mean) / (weight + REFERENCE_PROGRAMS);
            let apart = |f: &FittedTerms| told(f) * ((f.theta[i] - new_mean).powi(2) + f.posterior[(i, i)]);
            let apart: f64 = fits.iter().map(apart).sum::<f64>() + REFERENCE_DEVIATIONS * sd * sd;
            let deviation = (apart / (weight + 2.0 * REFERENCE_DEVIATIONS)).sqrt();
            (self.mean[i], self.sd[i]) = (new_mean, deviation.max(LEAST_DEVIATION * sd));
        }
    }
}

fn fit_program(
    (runs, facts): &MeasuredProgram<'_>,
    priors: &PlanPriors,
    from: Option<&[f64]>,
) -> Option<FittedTerms> {
    let first = measurement_choice::first_measurement(runs)?;
    let step = |run: &PlanMeasurement| (run.global_batch / run.rate).ln();
    let rows: Vec<RunFeatures> =
        runs.iter().map(|run| RunFeatures::from_plan(&PlacedPlan::from(run))).collect();
    let mut terms = StepTerms::new(*facts, priors, &[]);
    terms.anchor_to_first(&rows[first], step(&runs[first]));
    // Spread over the whole table.
    let count = rows.len().min(MOST_ROWS);
    let seen: Vec<StepObservation> = (0..count)
        .map(|i: usize| i * (rows.len() - 1) / (count - 1).max(1))
        .map(|i| StepObservation {
            row: rows[i].clone(),
            log_secs: step(&runs[i]),
            variance: TABLE_NOISE.powi(2),
        })
        .collect();
    FittedTerms::from_observations(&terms, &priors.shares.scaled_by(RESIDUAL_FACTOR), &seen, from)
}
