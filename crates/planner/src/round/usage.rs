//! How much users have used of the gaps lately. Among users with as many nodes for their shares, the one who
//! used less comes first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use infill_model::{JobFacts, UnixTime};

/// Longest time between two snapshots that counts, seconds. A longer one was not observed.
const MAX_SECS: f64 = 600.0;

/// Usage below this is forgotten, node-seconds.
const NEXT_TO_NOTHING_SECS: f64 = 1.0;

/// Seconds between two moments at which usage is stored.
const SAVED_EVERY_SECS: f64 = 60.0;

/// The largest number of users that are remembered.
const MAX_USERS: usize = 100_000;

/// Node-seconds of users, halved after each half-life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UserUsage {
    used_secs: BTreeMap<String, f64>,
    /// The moment to which these refer.
    at: UnixTime,
    /// The moment at which they were last given to the store.
    #[serde(skip)]
    saved_at: UnixTime,
}

impl UserUsage {
    /// Adds what jobs have held since the last snapshot.
    pub(super) fn ingest_jobs(&mut self, jobs: &[JobFacts], half_life_secs: f64, now: UnixTime) {
        let passed = now.secs_since(self.at);
        self.at = now;
        let keeps = (-passed.max(0.0) / half_life_secs).exp2();
        self.used_secs.values_mut().for_each(|used| *used *= keeps);
        self.used_secs.retain(|_, used| *used >= NEXT_TO_NOTHING_SECS);
        let secs = if passed <= MAX_SECS { passed.max(0.0) } else { 0.0 };
        for job in jobs.iter().filter(|j| !j.location.held.is_empty()) {
            let nodes = job.location.held.len().saturating_sub(job.location.own.len()) as f64;
            let held = nodes * f64::from(job.location.places_per_node.max(1)) * secs;
            if self.used_secs.len() < MAX_USERS || self.used_secs.contains_key(&job.program.user) {
                *self.used_secs.entry(job.program.user.clone()).or_default() += held;
            }
        }
    }

    /// Restores the usage that [`UserUsage::take_unsaved`] returned before. Text that cannot be read is
    /// dropped.
    pub fn load(&mut self, text: &str) {
        *self = serde_json::from_str(text).unwrap_or_default();
        self.used_secs.retain(|_, used| used.is_finite() && *used >= 0.0);
    }

    /// The usage as text for the store; `None` if it was stored a short time ago.
    pub fn take_unsaved(&mut self) -> Option<String> {
        if self.used_secs.is_empty() || self.at.secs_since(self.saved_at) < SAVED_EVERY_SECS {
            return None;
        }
        self.saved_at = self.at;
        serde_json::to_string(self).ok()
    }

    /// Records that the text could not be stored, so that the next [`UserUsage::take_unsaved`] returns it
    /// again.
    pub fn mark_unsaved(&mut self) {
        self.saved_at = UnixTime::default();
    }

    /// Forgets a user. Returns the text for the store if the user had used anything.
    pub fn forget_user(&mut self, user: &str) -> Option<String> {
        self.used_secs.remove(user)?;
        serde_json::to_string(self).ok()
    }

    /// Node-seconds that a user counts as having used.
    pub fn used_by(&self, user: &str) -> f64 {
        self.used_secs.get(user).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(at: i64, of: &[(&str, f64)]) -> UserUsage {
        let used_secs = of.iter().map(|(user, secs)| ((*user).to_owned(), *secs)).collect();
        UserUsage { used_secs, at: UnixTime(at), ..UserUsage::default() }
    }

    #[test]
    fn half_of_it_counts_after_a_half_life() {
        let mut usage = used(0, &[("alice", 800.0), ("bob", 1.5)]);
        usage.ingest_jobs(&[], 100.0, UnixTime(200));
        assert_eq!((usage.used_by("alice"), usage.used_by("bob")), (200.0, 0.0));
        usage.ingest_jobs(&[], 100.0, UnixTime(100));
        assert_eq!(usage.used_by("alice"), 200.0, "a clock that was set back gives nothing back");
    }

    #[test]
    fn a_forgotten_user_is_in_no_text() {
        let mut usage = used(1000, &[("alice", 800.0), ("bob", 5.0)]);
        assert_eq!(usage.forget_user("carol"), None);
        let text = usage.forget_user("alice").unwrap();
        assert!(!text.contains("alice") && text.contains("bob"), "{text}");
        assert_eq!((usage.used_by("alice"), usage.used_by("bob")), (0.0, 5.0));
    }

    #[test]
    fn it_outlives_the_daemon() {
        let mut usage = used(1000, &[("alice", 800.0)]);
        let text = usage.take_unsaved().unwrap();
        assert_eq!(usage.take_unsaved(), None, "not so soon again");
        usage.mark_unsaved();
        assert!(usage.take_unsaved().is_some());
        let mut next = UserUsage::default();
        next.load(&text);
        assert_eq!((next.used_by("alice"), next.at), (800.0, UnixTime(1000)));
        next.load("nonsense");
        assert_eq!(next, UserUsage::default());
    }
}
