//! What users have had of the gaps lately, and what that leaves them: their shares by decayed use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::facts::JobFacts;
use crate::model::UnixTime;

/// Longest time between two looks that counts: what happened in a longer one nobody saw.
const LONGEST_SECS: f64 = 600.0;

/// Node-seconds that all users count as having had in equal parts: at first nobody has had anything.
const AT_FIRST_SECS: f64 = 600.0;

/// Exponent of how far a user's use is from its share.
const FORCE: f64 = 2.0;

/// No user counts more than so many times as much because of it, or less.
const MOST: f64 = 64.0;

/// Less use than that is forgotten, node-seconds.
const NEXT_TO_NOTHING_SECS: f64 = 1.0;

/// Most users that are kept.
const MOST_USERS: usize = 100_000;

/// Node-seconds of users, of which half count after each half-life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    used_secs: BTreeMap<String, f64>,
    /// As of when.
    at: UnixTime,
}

impl Usage {
    /// Takes in what jobs hold at a look.
    pub(super) fn look(&mut self, jobs: &[JobFacts], half_life_secs: f64, now: UnixTime) {
        let passed = now.secs_since(self.at);
        self.at = now;
        let keeps = (-passed.max(0.0) / half_life_secs).exp2();
        self.used_secs.values_mut().for_each(|used| *used *= keeps);
        self.used_secs.retain(|_, used| *used >= NEXT_TO_NOTHING_SECS);
        let secs = if passed <= LONGEST_SECS { passed.max(0.0) } else { 0.0 };
        for job in jobs.iter().filter(|j| !j.place.held.is_empty()) {
            let nodes = job.place.held.len().saturating_sub(job.place.own.len()) as f64;
            let held = nodes * f64::from(job.place.block.max(1)) * secs;
            if self.used_secs.len() < MOST_USERS || self.used_secs.contains_key(&job.program.user) {
                *self.used_secs.entry(job.program.user.clone()).or_default() += held;
            }
        }
    }

    /// How many times as much the jobs of each of these users count, by its share and what it has had. Alone,
    /// a user has had what it ought to.
    pub(super) fn factors<'a>(&self, shares: &BTreeMap<&'a str, f64>) -> BTreeMap<&'a str, f64> {
        let all: f64 = shares.values().sum();
        let used = |user: &str| self.used_secs.get(user).copied().unwrap_or(0.0);
        let sum: f64 = shares.keys().map(|user| used(user)).sum();
        let factor = |(user, share): (&&'a str, &f64)| {
            let fair = share / all;
            let had = (used(user) + fair * AT_FIRST_SECS) / (sum + AT_FIRST_SECS);
            (*user, (fair / had).powf(FORCE).clamp(MOST.recip(), MOST))
        };
        shares.iter().map(factor).collect()
    }

    /// Node-seconds that a user counts as having had.
    pub fn of(&self, user: &str) -> f64 {
        self.used_secs.get(user).copied().unwrap_or(0.0)
    }
}
