//! What is expected of the jobs that are here: learned from those that ended, looked up once when a job
//! comes, and held against what it says of itself.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::calibration::Calibration;
use super::distribution::{Lengths, log_of};
use super::forest::{FEWEST, Forest, ForestError};
use super::history::{Glance, History};
use super::pooled::pooled;
use super::word::Words;
use crate::model::{JobId, Past, Submission, UnixTime};

/// Ended jobs that a forest is grown from: the last so many.
const WINDOW: usize = 20_000;

/// What a forest is grown from, apart from everything else: growing takes seconds, and is done elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    rows: Vec<Vec<f64>>,
    missed: Vec<f64>,
}

impl Ground {
    /// A forest; `None` while too little is known.
    ///
    /// # Errors
    /// [`ForestError`] where the library refuses the numbers.
    pub fn grow(self, seed: u64) -> Result<Option<Forest>, ForestError> {
        if self.rows.len() < FEWEST {
            return Ok(None);
        }
        let rows: Vec<&[f64]> = self.rows.iter().map(Vec::as_slice).collect();
        Forest::grow(&rows, self.missed, seed).map(Some)
    }
}

/// What is expected of a job that is here.
#[derive(Clone, Debug)]
struct Expected {
    submission: Submission,
    glance: Glance,
    /// Before it is held to what intervals promise.
    raw: Lengths,
    lengths: Lengths,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Outlook {
    history: History,
    forest: Option<Forest>,
    calibration: Calibration,
    expected: FxHashMap<JobId, Expected>,
    words: Words,
    /// What was known of the jobs that ended when they came, and by how much the logarithm of their length
    /// then differed from the mixture's median.
    seen: VecDeque<(Vec<f64>, f64)>,
}

impl Outlook {
    /// Learns from jobs that ended before, the first to end first.
    pub fn remember(&mut self, past: &[Past]) {
        for past in past {
            let glance = self.history.look(&past.job);
            self.learn(&glance, past);
        }
    }

    /// Looks a job up that is here, if it is new, or known by another name or size now.
    pub fn meet(&mut self, job: JobId, submission: &Submission) {
        if self.expected.get(&job).is_some_and(|e| e.submission == *submission) {
            return;
        }
        let glance = self.history.look(submission);
        let said = self.forest.as_ref().and_then(|f| f.samples(&[&glance.features]).ok());
        let raw = pooled(&glance.mixture, said.as_ref().and_then(|all| all.first()).map(Vec::as_slice));
        let lengths = self.calibration.applied(&raw);
        self.expected.insert(job, Expected { submission: submission.clone(), glance, raw, lengths });
    }

    /// Work that a job is expected to do in all. `said_secs`: what it says itself of that.
    pub fn of(&self, job: JobId, said_secs: Option<f64>) -> Lengths {
        let expected = self.expected.get(&job);
        let user = expected.map_or("", |e| &e.submission.user);
        let said = said_secs.and_then(|secs| self.words.lengths(user, secs));
        said.or_else(|| expected.map(|e| e.lengths.clone())).unwrap_or_else(|| self.history.of_the_site())
    }

    /// Takes in that a job that was met has ended, how long it was, and what it first said of that.
    pub fn ended(&mut self, job: JobId, at: UnixTime, secs: f64, said_secs: Option<f64>) {
        let Some(expected) = self.expected.remove(&job) else { return };
        if let Some(said) = said_secs {
            self.words.ended(&expected.submission.user, said, secs);
        }
        let past = Past { job: expected.submission, ended_at: at.0 as f64, secs };
        self.calibration.ended(&expected.raw, log_of(past.secs));
        self.learn(&expected.glance, &past);
    }

    /// Forgets jobs that are not here any more, and of which nothing is known.
    pub fn retain(&mut self, is_here: impl Fn(JobId) -> bool) {
        self.expected.retain(|job, _| is_here(*job));
    }

    fn learn(&mut self, glance: &Glance, past: &Past) {
        if self.seen.len() == WINDOW {
            self.seen.pop_front();
        }
        self.seen.push_back((glance.features.clone(), glance.missed(past)));
        self.history.ended(&past.job, past.ended_at, past.secs);
    }

    /// What a forest would be grown from now.
    pub fn ground(&self) -> Ground {
        let (rows, missed) = self.seen.iter().cloned().unzip();
        Ground { rows, missed }
    }

    /// Takes over a forest: it counts for those who come from now on.
    pub fn plant(&mut self, forest: Forest) {
        self.forest = Some(forest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(user: &str, secs: f64) -> Past {
        let job = Submission { user: user.to_owned(), nodes: 4, ..Submission::default() };
        Past { job, ended_at: 0.0, secs }
    }

    #[test]
    fn who_comes_is_expected_to_be_like_those_that_ended() {
        let mut outlook = Outlook::default();
        outlook.remember(&vec![past("alice", 1000.0); 5]);
        outlook.remember(&vec![past("bob", 50.0); 5]);
        let alice = past("alice", 0.0).job;
        outlook.meet(JobId(1), &alice);
        let median = |o: &Outlook, said| o.of(JobId(1), said).secs(0.5);
        assert!((median(&outlook, None) - 1000.0).abs() < 1.0);
        assert!((median(&outlook, Some(300.0)) - 300.0).abs() < 1.0, "its own word counts most");
        // What ends meanwhile changes nothing of what was expected.
        for job in 10..19 {
            outlook.meet(JobId(job), &alice);
            outlook.ended(JobId(job), UnixTime(5), 10.0, None);
        }
        outlook.meet(JobId(1), &alice);
        assert!((median(&outlook, None) - 1000.0).abs() < 1.0);
        outlook.meet(JobId(2), &alice);
        assert!(outlook.of(JobId(2), None).secs(0.5) < 20.0);
        outlook.retain(|job| job == JobId(2));
        assert_eq!(outlook.expected.len(), 1);
    }

    #[test]
    fn a_word_that_was_false_is_believed_less() {
        let mut outlook = Outlook::default();
        let alice = past("alice", 0.0).job;
        for job in 1..6 {
            outlook.meet(JobId(job), &alice);
            outlook.ended(JobId(job), UnixTime(9), 5000.0, Some(100.0));
        }
        outlook.meet(JobId(7), &alice);
        let said = outlook.of(JobId(7), Some(100.0)).secs(0.5);
        assert!(said > 2000.0, "{said}");
        let other = outlook.words.lengths("bob", 100.0).unwrap();
        assert!((other.secs(0.5) - 100.0).abs() < 1e-6);
    }

    #[test]
    fn a_forest_grows_from_what_ended_and_counts_for_newcomers() {
        let mut outlook = Outlook::default();
        assert!(outlook.ground().grow(1).unwrap().is_none());
        // What is alike by user differs by what only the forest looks at.
        let of = |i: usize| {
            let secs = [100.0, 3000.0][(i * 7919 % 13) % 2];
            let mut past = past("alice", secs);
            past.job.more = vec![secs];
            past
        };
        outlook.remember(&(0..800).map(of).collect::<Vec<_>>());
        let forest = outlook.ground().grow(1).unwrap().unwrap();
        outlook.plant(forest);
        let mut medians = Vec::new();
        for i in 0..2 {
            outlook.meet(JobId(i as u32 + 1), &of([0, 7][i]).job);
            medians.push(outlook.of(JobId(i as u32 + 1), None).secs(0.5));
        }
        assert!(medians[0] * 3.0 < medians[1], "{medians:?}");
    }
}
