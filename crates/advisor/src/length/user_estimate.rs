//! The users' own estimates of job lengths, and how reliable each user's estimates were so far.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::distribution::LengthDistribution;
use super::length_history::HISTORY_ATOMS;

/// The number of a user's last estimates that count.
const RECENT_ESTIMATES: usize = 20;

/// Factor to the weight of an estimate for each newer one.
const FADE_FACTOR: f64 = 0.8;

/// Most users. Beyond that all errors are forgotten, and all estimates count as right.
const MOST_USERS: usize = 50_000;

/// Largest error that counts, as a logarithm.
const MOST_WRONG: f64 = 12.0;

/// The errors of the users' last estimates.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserEstimateErrors {
    /// Logarithms of true over estimated lengths, by user, the oldest first.
    by_user: FxHashMap<String, VecDeque<f64>>,
}

impl UserEstimateErrors {
    /// Takes in the first estimate of a job that has ended, and its true length.
    pub fn record_estimate(&mut self, user: &str, estimated: f64, actual: f64) {
        let error = (actual / estimated).ln();
        if !error.is_finite() {
            return;
        }
        if self.by_user.len() >= MOST_USERS && !self.by_user.contains_key(user) {
            self.by_user.clear();
        }
        let recent = self.by_user.entry(user.to_owned()).or_default();
        if recent.len() == RECENT_ESTIMATES {
            recent.pop_front();
        }
        recent.push_back(error.clamp(-MOST_WRONG, MOST_WRONG));
    }

    /// The prediction for a user's job with this estimate: the estimate itself, and the estimate corrected by
    /// each of the user's last errors. `None` where the estimate is not a positive number.
    pub fn predict_lengths(&self, user: &str, estimated: f64) -> Option<LengthDistribution> {
        let center = estimated.ln();
        let errors = self.by_user.get(user).into_iter().flat_map(|recent| recent.iter().rev());
        let corrected =
            errors.enumerate().map(|(back, error)| (center + error, FADE_FACTOR.powi(back as i32)));
        LengthDistribution::from_weighted(corrected.chain([(center, 1.0)]).collect(), HISTORY_ATOMS)
    }
}
