//! What is usual of the terms' numbers, and how far programs are from it.
//!
//! Means and deviations are those of programs that were measured, each weighed by how much its measurements tell
//! of a number, drawn towards a reference by half a program. [`Priors::usual`] was so fitted to public tables:
//! Rubick's (A800, four models; MLSys 2025), BigScience's (V100 and A100, two models), and GPT-2 on an H100.

use infill_model::{ModelFacts, PlanRun};

use super::choice;
use super::fit::{Belief, Observed};
use super::residual::Shares;
use super::terms::{Features, NUMBERS, Number, Placed, Terms};

/// Doubt of what a layer takes where nobody knows how many there are, or how large.
pub(super) const UNKNOWN_SHAPE_SD: f64 = 0.5;

/// Rounds in which priors and programs are fitted to each other.
const ROUNDS: usize = 6;

/// Most rows of a program that are fitted.
const MOST_ROWS: usize = 45;

/// How much the rows of a table vary.
const TABLE_NOISE: f64 = 0.02;

/// How much of the usual residuals is left to them while priors are fitted: the terms shall say what they can.
const RESIDUALS: f64 = 0.5;

/// Weight of the reference's mean and deviation, in programs.
const REFERENCE_PROGRAMS: f64 = 0.5;
const REFERENCE_DEVIATIONS: f64 = 0.75;

/// Least deviation, in parts of the reference's.
const LEAST_DEVIATION: f64 = 0.5;

/// Standard deviation of how a further type's network compares.
const NETWORK_OF_TYPE_SD: f64 = 0.3;

/// What is believed of the numbers of a program before it is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Priors {
    pub(super) mean: [f64; NUMBERS],
    pub(super) sd: [f64; NUMBERS],
    pub(super) network_of_type_sd: f64,
    pub(super) shares: Shares,
}

/// Mean and deviation of each number before any program was measured, in the order of [`Number`]. Those of the
/// first two follow from the program.
const REFERENCE: [(f64, f64); NUMBERS] = [
    (0.0, 3.0),
    (0.0, 0.05),
    (-2.9, 0.6),
    (-1.6, 0.8),
    (-0.85, 0.7),
    (-2.5, 1.27),
    (0.3, 0.25),
    (1.2, 0.3),
    (0.5, 0.17),
    (0.0, 0.375),
    (-0.25, 0.37),
    (-1.2, 0.785),
    (-1.1, 0.134),
    (-1.3, 0.77),
    (0.8, 0.25),
    (-2.8, 0.8),
    (0.2, 0.25),
    (-4.5, 0.26),
    (-7.3, 0.51),
    (-0.5, 0.6),
    (-5.3, 1.2),
    (1.0, 0.4),
];

const SHARES: Shares =
    Shares { strategy: 0.0386, kind: 0.06, placement: 0.05, gpus: 0.03, alone: 0.052, odd: 0.19 };

/// A program that was measured: its rows, and what is known of it.
pub type Measured<'a> = (&'a [PlanRun], Option<ModelFacts>);

impl Priors {
    /// What is believed where no program was measured.
    fn reference() -> Priors {
        Priors {
            mean: REFERENCE.map(|(mean, _)| mean),
            sd: REFERENCE.map(|(_, sd)| sd),
            network_of_type_sd: NETWORK_OF_TYPE_SD,
            shares: SHARES,
        }
    }

    /// Those of all the tables together.
    pub fn usual() -> Priors {
        Priors::reference()
    }

    /// Fitted to these programs.
    pub fn fitted(programs: &[Measured<'_>]) -> Priors {
        let mut priors = Priors::reference();
        let mut numbers: Vec<Option<Vec<f64>>> = vec![None; programs.len()];
        for _ in 0..ROUNDS {
            let fits: Vec<Belief> = programs
                .iter()
                .zip(&mut numbers)
                .filter_map(|(program, numbers)| {
                    let belief = fit(program, &priors, numbers.as_deref())?;
                    *numbers = Some(belief.theta.clone());
                    Some(belief)
                })
                .collect();
            priors.learn(&fits);
        }
        priors
    }

    fn learn(&mut self, fits: &[Belief]) {
        let own = |i: &usize| ![Number::Compute as usize, Number::Params as usize].contains(i);
        for i in (0..NUMBERS).filter(own) {
            let (mean, sd) = REFERENCE[i];
            let told =
                |belief: &Belief| (1.0 - belief.posterior[(i, i)] / self.sd[i].powi(2)).clamp(0.0, 1.0);
            let weight: f64 = fits.iter().map(told).sum();
            let sum: f64 = fits.iter().map(|f| told(f) * f.theta[i]).sum();
            let new_mean = (sum + REFERENCE_PROGRAMS * mean) / (weight + REFERENCE_PROGRAMS);
            let apart = |f: &Belief| told(f) * ((f.theta[i] - new_mean).powi(2) + f.posterior[(i, i)]);
            let apart: f64 = fits.iter().map(apart).sum::<f64>() + REFERENCE_DEVIATIONS * sd * sd;
            let deviation = (apart / (weight + 2.0 * REFERENCE_DEVIATIONS)).sqrt();
            (self.mean[i], self.sd[i]) = (new_mean, deviation.max(LEAST_DEVIATION * sd));
        }
    }

    /// Each number's name, mean and deviation, for those who fit them anew.
    pub fn numbers(&self) -> impl Iterator<Item = (f64, f64)> {
        self.mean.into_iter().zip(self.sd)
    }
}

fn fit((runs, facts): &Measured<'_>, priors: &Priors, from: Option<&[f64]>) -> Option<Belief> {
    let first = choice::first(runs)?;
    let step = |run: &PlanRun| (run.global_batch / run.rate).ln();
    let rows: Vec<Features> = runs.iter().map(|run| Features::of(&Placed::from(run))).collect();
    let mut terms = Terms::new(*facts, priors, &[]);
    terms.begin_with(&rows[first], step(&runs[first]));
    // Spread over the whole table.
    let count = rows.len().min(MOST_ROWS);
    let at = |i: usize| i * (rows.len() - 1) / (count - 1).max(1);
    let seen: Vec<Observed> = (0..count)
        .map(at)
        .map(|i| Observed { row: rows[i].clone(), log_secs: step(&runs[i]), variance: TABLE_NOISE.powi(2) })
        .collect();
    Belief::fit(&terms, &priors.shares.times(RESIDUALS), &seen, from)
}
