//! What users have had of the gaps lately, and what that leaves them: their shares by decayed use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use infill_model::JobFacts;
use infill_model::UnixTime;

/// Longest time between two looks that counts: what happened in a longer one nobody saw.
const LONGEST_SECS: f64 = 600.0;

/// Node-seconds that all users count as having had in equal parts: at first nobody has had anything.
const AT_FIRST_SECS: f64 = 600.0;

/// Exponent of how far a user's use is from its share.
const FORCE: f64 = 12.0;

/// No user counts more than so many times as much because of it, or less.
const MOST: f64 = 64.0;

/// Less use than that is forgotten, node-seconds.
const NEXT_TO_NOTHING_SECS: f64 = 1.0;

/// Time between two moments in which it is stored, seconds.
const SAVED_EVERY_SECS: f64 = 60.0;

/// Most users that are kept.
const MOST_USERS: usize = 100_000;

/// Node-seconds of users, of which half count after each half-life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    used_secs: BTreeMap<String, f64>,
    /// As of when.
    at: UnixTime,
    /// When it was last given to be stored.
    #[serde(skip)]
    saved_at: UnixTime,
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

    /// Takes up what was remembered before, as [`Usage::take_unsaved`] gave it. What cannot be read is
    /// forgotten.
    pub fn load(&mut self, text: &str) {
        *self = serde_json::from_str(text).unwrap_or_default();
        self.used_secs.retain(|_, used| used.is_finite() && *used >= 0.0);
    }

    /// What is to be remembered, if the last time is a while ago.
    pub fn take_unsaved(&mut self) -> Option<String> {
        if self.used_secs.is_empty() || self.at.secs_since(self.saved_at) < SAVED_EVERY_SECS {
            return None;
        }
        self.saved_at = self.at;
        serde_json::to_string(self).ok()
    }

    /// Says that it could not be stored after all.
    pub fn not_saved(&mut self) {
        self.saved_at = UnixTime::default();
    }

    /// Node-seconds that a user counts as having had.
    pub fn of(&self, user: &str) -> f64 {
        self.used_secs.get(user).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(at: i64, of: &[(&str, f64)]) -> Usage {
        let used_secs = of.iter().map(|(user, secs)| ((*user).to_owned(), *secs)).collect();
        Usage { used_secs, at: UnixTime(at), ..Usage::default() }
    }

    fn factors(usage: &Usage, shares: &[(&str, f64)]) -> Vec<f64> {
        let shares = shares.iter().copied().collect();
        usage.factors(&shares).into_values().map(|f| (f * 100.0).round() / 100.0).collect()
    }

    #[test]
    fn who_had_more_than_a_fair_share_counts_less() {
        let usage = used(0, &[("alice", 9000.0), ("bob", 3000.0)]);
        assert_eq!(factors(&usage, &[("alice", 1.0), ("bob", 1.0)]), [0.02, 64.0]);
        assert_eq!(factors(&usage, &[("alice", 3.0), ("bob", 1.0)]), [1.0, 1.0], "as their shares are");
        assert_eq!(factors(&usage, &[("alice", 1.0)]), [1.0], "alone");
        assert_eq!(factors(&Usage::default(), &[("alice", 1.0), ("bob", 1.0)]), [1.0, 1.0]);
        let much = used(0, &[("alice", 1e9)]);
        assert_eq!(factors(&much, &[("alice", 1.0), ("bob", 1.0)])[1], MOST);
    }

    #[test]
    fn half_of_it_counts_after_a_half_life() {
        let mut usage = used(0, &[("alice", 800.0), ("bob", 1.5)]);
        usage.look(&[], 100.0, UnixTime(200));
        assert_eq!((usage.of("alice"), usage.of("bob")), (200.0, 0.0));
        usage.look(&[], 100.0, UnixTime(100));
        assert_eq!(usage.of("alice"), 200.0, "a clock that was set back gives nothing back");
    }

    #[test]
    fn it_outlives_the_daemon() {
        let mut usage = used(1000, &[("alice", 800.0)]);
        let text = usage.take_unsaved().unwrap();
        assert_eq!(usage.take_unsaved(), None, "not so soon again");
        usage.not_saved();
        assert!(usage.take_unsaved().is_some());
        let mut next = Usage::default();
        next.load(&text);
        assert_eq!((next.of("alice"), next.at), (800.0, UnixTime(1000)));
        next.load("nonsense");
        assert_eq!(next, Usage::default());
    }
}
