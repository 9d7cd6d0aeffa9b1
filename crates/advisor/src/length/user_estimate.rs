//! What jobs say of their own length, and how far that was to be believed of their owner so far.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::distribution::LengthDistribution;
use super::length_history::HISTORY_ATOMS;

/// Last words of a user that count.
const RECENT_ESTIMATES: usize = 20;

/// What each further step back counts for.
const FADE_FACTOR: f64 = 0.8;

/// Most users; beyond that all words count as true again.
const MOST_USERS: usize = 50_000;

/// A false word counts as false by so much at most, as a logarithm.
const MOST_WRONG: f64 = 12.0;

/// By how much what was said differed from what came.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserEstimateErrors {
    /// Logarithms of true to said lengths, by user, the oldest first.
    wrong: FxHashMap<String, VecDeque<f64>>,
}

impl UserEstimateErrors {
    /// Takes in what a job that ended had said first, and what it was.
    pub fn record_estimate(&mut self, user: &str, said: f64, was: f64) {
        let wrong = (was / said).ln();
        if !wrong.is_finite() {
            return;
        }
        if self.wrong.len() >= MOST_USERS && !self.wrong.contains_key(user) {
            self.wrong.clear();
        }
        let recent = self.wrong.entry(user.to_owned()).or_default();
        if recent.len() == RECENT_ESTIMATES {
            recent.pop_front();
        }
        recent.push_back(wrong.clamp(-MOST_WRONG, MOST_WRONG));
    }

    /// What is to be expected when a user's job says that it will be so long: what it says, and that as
    /// false as the last words were. `None` where it says nothing sensible.
    pub fn predict_lengths(&self, user: &str, said: f64) -> Option<LengthDistribution> {
        let middle = said.ln();
        let recent = self.wrong.get(user).into_iter().flat_map(|recent| recent.iter().rev());
        let recent = recent.enumerate().map(|(back, wrong)| (middle + wrong, FADE_FACTOR.powi(back as i32)));
        LengthDistribution::from_weighted(recent.chain([(middle, 1.0)]).collect(), HISTORY_ATOMS)
    }
}
