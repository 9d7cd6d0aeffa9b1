//! How long a gap lasts when nothing is planned: a piecewise-constant hazard by age, block size and hour of
//! the day.
//!
//! The hazard is the rate at which gaps of a given age end. Gaps are heavy-tailed: the longer one has lasted,
//! the longer it will last. Without history the hazard is that of a Weibull distribution.
//! [`SurvivalModel::fit_samples`] moves it towards the site's history.

use serde::{Deserialize, Serialize};

use super::bins::{
    BLOCK_CLASSES, BinHazards, GapSample, HOUR_CLASSES, age_bin, block_class, default_hazards, hour_class,
    upper_edge,
};
use super::hazard_fit::learned_hazards;
use infill_model::UnixTime;

/// Longest time of a quantile, seconds. A week is forever for a planner with a horizon of hours.
pub(crate) const LONGEST_SECS: f64 = 604_800.0;

/// The survival model. `SurvivalModel::default()` has no site's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SurvivalModel {
    /// Hazards by block class, then hour class.
    hazards: [[BinHazards; HOUR_CLASSES]; BLOCK_CLASSES],
    /// Number of gaps that the model was fitted to.
    pub samples: usize,
}

impl Default for SurvivalModel {
    fn default() -> Self {
        SurvivalModel { hazards: [[default_hazards(); HOUR_CLASSES]; BLOCK_CLASSES], samples: 0 }
    }
}

impl SurvivalModel {
    /// Fits the model to a site's ended gaps. Few samples move it little (see the module `hazard_fit`).
    pub fn fit_samples(samples: &[GapSample]) -> SurvivalModel {
        SurvivalModel { hazards: learned_hazards(samples), samples: samples.len() }
    }

    /// The probability that a gap of this age is still free `ahead_secs` from now. `block` is the number of
    /// nodes that became free together, and `hour` the hour of the day now (0–23, UTC). It is 1 at 0, and
    /// never rises.
    #[cfg(test)]
    pub(crate) fn probability_free(&self, age_secs: f64, block: u32, hour: u8, ahead_secs: f64) -> f64 {
        let age = not_negative(age_secs);
        let ahead = not_negative(ahead_secs);
        let hazards = self.hazards_for(block, hour);
        (-(cumulative(hazards, age + ahead) - cumulative(hazards, age))).exp().clamp(0.0, 1.0)
    }

    /// Seconds for which the gap stays free with a probability of at least `confidence`, at most
    /// [`LONGEST_SECS`].
    pub fn quantile_secs(&self, age_secs: f64, block: u32, hour: u8, confidence: f64) -> f64 {
        let mut age = not_negative(age_secs);
        let start = age;
        let hazards = self.hazards_for(block, hour);
        let mut left = -confidence.clamp(1e-9, 1.0).ln();
        for (bin, hazard) in hazards.iter().enumerate().skip(age_bin(age)) {
            let end = upper_edge(bin);
            let spent = hazard * (end - age);
            if spent >= left && *hazard > 0.0 {
                return (age + left / hazard - start).min(LONGEST_SECS);
            }
            left -= spent;
            age = end;
        }
        LONGEST_SECS
    }

    /// Expected seconds for which the gap stays free, at most [`LONGEST_SECS`].
    pub fn expected_secs(&self, age_secs: f64, block: u32, hour: u8) -> f64 {
        let mut age = not_negative(age_secs);
        let mut probability = 1.0;
        let mut secs = 0.0;
        for (bin, hazard) in self.hazards_for(block, hour).iter().enumerate().skip(age_bin(age)) {
            // A bin without a hazard adds probability × length. Any other bin adds the integral of
            // probability × exp(-hazard t) over it.
            let length = (upper_edge(bin) - age).min(LONGEST_SECS);
            let kept = (-hazard * length).exp();
            secs += if *hazard > 0.0 { probability * (1.0 - kept) / hazard } else { probability * length };
            probability *= kept;
            age = upper_edge(bin);
        }
        secs.min(LONGEST_SECS)
    }

    fn hazards_for(&self, block: u32, hour: u8) -> &BinHazards {
        &self.hazards[block_class(block)][hour_class(hour)]
    }
}

/// The hour of the day, 0–23 in UTC.
pub fn hour_of_day(at: UnixTime) -> u8 {
    (at.0.div_euclid(3600).rem_euclid(24)) as u8
}

/// Integral of the hazard from age 0 to this age.
#[cfg(test)]
fn cumulative(hazards: &BinHazards, age_secs: f64) -> f64 {
    let mut sum = 0.0;
    for (bin, hazard) in hazards.iter().enumerate().take(age_bin(age_secs) + 1) {
        sum += hazard * (upper_edge(bin).min(age_secs) - super::bins::AGE_EDGES_SECS[bin]);
    }
    sum
}

/// NaN and negative durations count as 0.
fn not_negative(secs: f64) -> f64 {
    if secs > 0.0 { secs } else { 0.0 }
}
