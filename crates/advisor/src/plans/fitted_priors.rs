//! Priors of the terms' parameters, fitted to measured programs.
//!
//! Means and deviations are those of the programs. Each program is weighted by how much its measurements say
//! about a parameter, and a reference has a weight, too.

use infill_model::{ModelFacts, PlanMeasurement};

use super::measurement_choice;
use super::step_parameters::{PARAMETER_COUNT, PlanPriors, REFERENCE_PRIORS, StepParameter};
use super::step_terms::{PlacedPlan, RunFeatures, StepTerms};
use super::term_fit::{FittedTerms, StepObservation};

/// Rounds in which priors and programs are fitted to each other.
const FIT_ROUNDS: usize = 6;

/// Most rows of a program that are used.
const MOST_ROWS: usize = 45;

/// Noise of the rows of a table, as a relative standard deviation.
const TABLE_NOISE: f64 = 0.02;

/// Factor to the usual residuals while priors are fitted, so that the terms explain as much as they can.
const RESIDUAL_FACTOR: f64 = 0.5;

/// Weight of the reference's mean and deviation, in programs.
const REFERENCE_PROGRAMS: f64 = 0.5;
const REFERENCE_DEVIATIONS: f64 = 1.275;

/// Least deviation, as a multiple of the reference's.
const LEAST_DEVIATION: f64 = 0.5;

/// A measured program: its rows, and the facts of its model.
pub type MeasuredProgram<'a> = (&'a [PlanMeasurement], Option<ModelFacts>);

impl PlanPriors {
    /// The priors fitted to these programs.
    pub fn fit_to_programs(programs: &[MeasuredProgram<'_>]) -> PlanPriors {
        let mut priors = PlanPriors::from_reference();
        let mut last_thetas: Vec<Option<Vec<f64>>> = vec![None; programs.len()];
        for _ in 0..FIT_ROUNDS {
            let mut fits: Vec<FittedTerms> = Vec::new();
            for ((runs, facts), last_theta) in programs.iter().zip(&mut last_thetas) {
                let Some(fit) = fit_program(runs, *facts, &priors, last_theta.as_deref()) else { continue };
                *last_theta = Some(fit.theta.clone());
                fits.push(fit);
            }
            priors.update_from_fits(&fits);
        }
        priors
    }

    fn update_from_fits(&mut self, fits: &[FittedTerms]) {
        // These two depend on the program alone.
        let fixed = [StepParameter::Compute as usize, StepParameter::Params as usize];
        for i in (0..PARAMETER_COUNT).filter(|i| !fixed.contains(i)) {
            let (mean, sd) = REFERENCE_PRIORS[i];
            // How much each program's measurements say about the parameter, from 0 to 1.
            let weights: Vec<f64> = fits
                .iter()
                .map(|fit| (1.0 - fit.posterior[(i, i)] / self.sd[i].powi(2)).clamp(0.0, 1.0))
                .collect();
            let weight: f64 = weights.iter().sum();
            let sum: f64 = fits.iter().zip(&weights).map(|(fit, w)| w * fit.theta[i]).sum();
            let new_mean = (sum + REFERENCE_PROGRAMS * mean) / (weight + REFERENCE_PROGRAMS);
            let squares = fits
                .iter()
                .zip(&weights)
                .map(|(fit, w)| w * ((fit.theta[i] - new_mean).powi(2) + fit.posterior[(i, i)]));
            let sum_of_squares: f64 = squares.sum::<f64>() + REFERENCE_DEVIATIONS * sd * sd;
            let deviation = (sum_of_squares / (weight + 2.0 * REFERENCE_DEVIATIONS)).sqrt();
            self.mean[i] = new_mean;
            self.sd[i] = deviation.max(LEAST_DEVIATION * sd);
        }
    }
}

fn fit_program(
    runs: &[PlanMeasurement],
    facts: Option<ModelFacts>,
    priors: &PlanPriors,
    from: Option<&[f64]>,
) -> Option<FittedTerms> {
    let first = measurement_choice::first_measurement(runs)?;
    let rows: Vec<RunFeatures> =
        runs.iter().map(|run| RunFeatures::from_plan(&PlacedPlan::from(run))).collect();
    let mut terms = StepTerms::new(facts, priors, &[]);
    terms.anchor_to_first(&rows[first], log_step_secs(&runs[first]));
    // The rows are spread over the whole table.
    let count = rows.len().min(MOST_ROWS);
    let seen: Vec<StepObservation> = (0..count)
        .map(|i: usize| i * (rows.len() - 1) / (count - 1).max(1))
        .map(|i| StepObservation {
            row: rows[i].clone(),
            log_secs: log_step_secs(&runs[i]),
            variance: TABLE_NOISE.powi(2),
        })
        .collect();
    FittedTerms::from_observations(&terms, &priors.shares.scaled_by(RESIDUAL_FACTOR), &seen, from)
}

fn log_step_secs(run: &PlanMeasurement) -> f64 {
    (run.global_batch / run.rate).ln()
}
