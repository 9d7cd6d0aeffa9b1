//! How far a malleable job has come.

use serde::{Deserialize, Serialize};

/// Steps from which it can be told how many samples a step has.
const FEW_STEPS: u64 = 5;

/// Larger totals are none.
const MAX_TOTAL: f64 = 1e15;

/// A total is raised if it grows by more than this share.
const RAISE_TOLERANCE: f64 = 0.01;

/// What a job has done, and what it says of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobProgress {
    /// Samples that it has made, as far as anybody heard.
    pub samples: f64,
    /// Node-seconds for which it has trained.
    pub held_secs: f64,
    /// Its last step.
    pub step: Option<u64>,
    /// The first step of which anybody heard, and the samples by then.
    pub from: Option<(u64, f64)>,
    /// How many steps it will make in all, by its own word; of samples, where it tells of no steps.
    pub total: Option<f64>,
    /// Whether it has raised that: its word is not believed any more.
    pub raised: bool,
    /// Samples in all that follow from what it said first.
    pub first_said: Option<f64>,
    /// Samples in all after which its loss will be flat, by its curve so far.
    pub flat: Option<f64>,
    /// The same, as it was first.
    pub first_flat: Option<f64>,
}

/// What a job itself tells of its length, in seconds of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UserEstimate {
    /// How long it says that it will be.
    pub said_secs: Option<f64>,
    /// After how long its loss will be flat.
    pub flat_secs: Option<f64>,
}

impl JobProgress {
    /// Samples that it will have made in all, by its own word, if that can be believed. Of steps as many
    /// samples are to come each as came since it was first heard.
    pub(crate) fn estimated_samples(&self) -> Option<f64> {
        let total = self.total.filter(|_| !self.raised)?;
        let samples = match (self.step, self.from) {
            (Some(step), Some((from, before))) if step >= from + FEW_STEPS => {
                let a_step = (self.samples - before) / (step - from) as f64;
                self.samples + (total - step as f64).max(0.0) * a_step
            }
            (Some(_), _) => return None,
            (None, _) => total,
        };
        (samples.is_finite() && samples > 0.0).then_some(samples)
    }

    /// Takes in further progress: samples, the last step, and what is said of the total.
    pub fn record_progress(&mut self, samples: f64, step: Option<u64>, total: Option<f64>) {
        self.samples = (self.samples + samples).min(f64::MAX);
        self.step = step.or(self.step).max(self.step);
        self.from = self.from.or(self.step.map(|step| (step, self.samples)));
        if let Some(total) = total.filter(|total| *total > 0.0 && *total <= MAX_TOTAL) {
            self.raised |= self.total.is_some_and(|before| total > before * (1.0 + RAISE_TOLERANCE));
            self.total = Some(total);
        }
        self.first_said = self.first_said.or(self.estimated_samples());
    }

    /// Takes in when its loss will be flat; where its curve tells nothing, nothing changes.
    pub fn record_plateau(&mut self, samples: Option<f64>) {
        self.flat = samples.or(self.flat);
        self.first_flat = self.first_flat.or(self.flat);
    }

    /// What it tells now, where it makes `unit` samples a second on one node.
    pub fn current_estimate(&self, unit: f64) -> UserEstimate {
        UserEstimate {
            said_secs: samples_to_secs(self.estimated_samples(), unit),
            flat_secs: samples_to_secs(self.flat, unit),
        }
    }

    /// What it told first: how true such a word was is judged by that, for later ones know more.
    pub fn first_estimate(&self, unit: f64) -> UserEstimate {
        UserEstimate {
            said_secs: samples_to_secs(self.first_said, unit),
            flat_secs: samples_to_secs(self.first_flat, unit),
        }
    }

    /// Work that it has done: seconds that it would have taken on one node where it makes `unit` samples a
    /// second; of a job that tells of none, the node-seconds that it has trained.
    pub fn work_secs(&self, unit: f64) -> f64 {
        if self.samples > 0.0 && unit > 0.0 { self.samples / unit } else { self.held_secs }
    }
}

fn samples_to_secs(samples: Option<f64>, unit: f64) -> Option<f64> {
    samples.filter(|_| unit > 0.0).map(|samples| samples / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_of_steps_is_one_of_samples() {
        let mut course = JobProgress::default();
        // It goes on from a checkpoint.
        course.record_progress(64.0, Some(9000), Some(10_000.0));
        assert_eq!((course.estimated_samples(), course.first_said), (None, None), "nothing to reckon with");
        course.record_progress(640.0, Some(9010), Some(10_000.0));
        assert_eq!(course.estimated_samples(), Some(704.0 + 990.0 * 64.0));
        course.record_progress(640.0, Some(9020), Some(f64::NAN));
        course.record_progress(64.0, Some(9015), Some(1e300));
        assert_eq!((course.step, course.total), (Some(9020), Some(10_000.0)));
        assert_eq!(course.first_said, Some(704.0 + 990.0 * 64.0));
        let mut samples = JobProgress::default();
        samples.record_progress(10.0, None, Some(50.0));
        assert_eq!(samples.estimated_samples(), Some(50.0));
        let held = JobProgress { held_secs: 7.0, ..JobProgress::default() };
        assert_eq!((samples.work_secs(2.0), held.work_secs(2.0)), (5.0, 7.0));
    }

    #[test]
    fn what_it_told_first_is_kept() {
        let mut course = JobProgress::default();
        course.record_plateau(None);
        course.record_progress(10.0, None, Some(50.0));
        for flat in [Some(300.0), None, Some(200.0)] {
            course.record_plateau(flat);
        }
        course.record_progress(10.0, None, Some(40.0));
        let word = |said, flat| UserEstimate { said_secs: Some(said), flat_secs: Some(flat) };
        assert_eq!(
            (course.current_estimate(2.0), course.first_estimate(2.0)),
            (word(20.0, 100.0), word(25.0, 150.0))
        );
        assert_eq!(course.current_estimate(0.0), UserEstimate::default());
    }

    #[test]
    fn a_word_that_is_raised_is_none() {
        let mut course = JobProgress::default();
        for step in 0..20 {
            course.record_progress(8.0, Some(step), Some((step + 1) as f64));
        }
        assert_eq!(course.estimated_samples(), None);
        let mut shortened = JobProgress::default();
        for (step, total) in [(0, 100.0), (10, 100.0), (20, 60.0)] {
            shortened.record_progress(80.0, Some(step), Some(total));
        }
        assert_eq!(shortened.estimated_samples(), Some(240.0 + 40.0 * 8.0));
    }
}
