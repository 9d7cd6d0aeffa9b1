//! The progress of a malleable job.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Steps after which the number of samples per step can be computed.
const FEW_STEPS: u64 = 5;

/// Totals above this are ignored.
const MAX_TOTAL: f64 = 1e15;

/// A total counts as raised if it grows by more than this share.
const RAISE_TOLERANCE: f64 = 0.01;

/// The weights that a job may have among its owner's jobs.
pub const OWNER_WEIGHTS: RangeInclusive<f64> = 0.1..=10.0;

/// A job's progress, and its own estimates of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobProgress {
    /// Samples that it has made, as far as agents have reported.
    pub samples: f64,
    /// Node-seconds for which it has held nodes while it trained.
    pub held_secs: f64,
    /// The last step that it reported.
    pub step: Option<u64>,
    /// The first step that it reported, and the samples until then.
    pub from: Option<(u64, f64)>,
    /// The total number of steps, in the job's own words. In samples if it reports no steps.
    pub total: Option<f64>,
    /// Whether it has raised that total: then its estimates are no longer believed.
    pub raised: bool,
    /// The total samples that follow from its first estimate.
    pub first_said: Option<f64>,
    /// The total samples after which its loss will be flat, predicted from its loss curve so far.
    pub flat: Option<f64>,
    /// The first value of `flat`.
    pub first_flat: Option<f64>,
    /// How much it counts among its owner's jobs, by its own words. `None` counts as 1.
    pub weight: Option<f64>,
}

/// Estimates of a job's length, as seconds on one node: what the job declares, and what infill extrapolates
/// from its loss curve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UserEstimate {
    /// The length that it declares.
    pub declared_secs: Option<f64>,
    /// The length after which its loss will be flat. infill extrapolates it from the loss curve.
    pub flat_loss_secs: Option<f64>,
}

impl JobProgress {
    /// Its own estimate of the total samples, if it can be believed. For each step to come, it assumes the
    /// mean samples per step since the first reported step.
    pub(crate) fn estimated_samples(&self) -> Option<f64> {
        let total = self.total.filter(|_| !self.raised)?;
        let samples = match (self.step, self.from) {
            (Some(step), Some((from, before))) if step >= from + FEW_STEPS => {
                let samples_per_step = (self.samples - before) / (step - from) as f64;
                self.samples + (total - step as f64).max(0.0) * samples_per_step
            }
            (Some(_), _) => return None,
            (None, _) => total,
        };
        if samples.is_finite() && samples > 0.0 { Some(samples) } else { None }
    }

    /// Adds progress: the new samples, the last step, and the job's own total.
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

    /// Records how much the job counts among its owner's jobs. Weights out of [`OWNER_WEIGHTS`] are ignored.
    pub fn record_weight(&mut self, weight: Option<f64>) {
        self.weight = weight.filter(|weight| OWNER_WEIGHTS.contains(weight)).or(self.weight);
    }

    /// How much it counts among its owner's jobs.
    pub fn owner_weight(&self) -> f64 {
        self.weight.filter(|weight| OWNER_WEIGHTS.contains(weight)).unwrap_or(1.0)
    }

    /// Records when its loss will be flat. Without a prediction, nothing changes.
    pub fn record_plateau(&mut self, samples: Option<f64>) {
        self.flat = samples.or(self.flat);
        self.first_flat = self.first_flat.or(self.flat);
    }

    /// Its present estimates, if it makes `unit` samples a second on one node.
    pub fn current_estimate(&self, unit: f64) -> UserEstimate {
        UserEstimate {
            declared_secs: samples_to_secs(self.estimated_samples(), unit),
            flat_loss_secs: samples_to_secs(self.flat, unit),
        }
    }

    /// Its first estimates. The accuracy of estimates is judged by the first ones, because later ones know
    /// more.
    pub fn first_estimate(&self, unit: f64) -> UserEstimate {
        UserEstimate {
            declared_secs: samples_to_secs(self.first_said, unit),
            flat_loss_secs: samples_to_secs(self.first_flat, unit),
        }
    }

    /// The work that it has done, as seconds on one node if it makes `unit` samples a second there. For a job
    /// that reports no samples, the node-seconds that it has trained.
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
    fn a_total_of_steps_is_converted_to_samples() {
        let mut progress = JobProgress::default();
        // It resumes from a checkpoint.
        progress.record_progress(64.0, Some(9000), Some(10_000.0));
        let estimates = (progress.estimated_samples(), progress.first_said);
        assert_eq!(estimates, (None, None), "one step is not enough for an estimate");
        progress.record_progress(640.0, Some(9010), Some(10_000.0));
        assert_eq!(progress.estimated_samples(), Some(704.0 + 990.0 * 64.0));
        progress.record_progress(640.0, Some(9020), Some(f64::NAN));
        progress.record_progress(64.0, Some(9015), Some(1e300));
        assert_eq!((progress.step, progress.total), (Some(9020), Some(10_000.0)));
        assert_eq!(progress.first_said, Some(704.0 + 990.0 * 64.0));
        let mut samples = JobProgress::default();
        samples.record_progress(10.0, None, Some(50.0));
        assert_eq!(samples.estimated_samples(), Some(50.0));
        let held = JobProgress { held_secs: 7.0, ..JobProgress::default() };
        assert_eq!((samples.work_secs(2.0), held.work_secs(2.0)), (5.0, 7.0));
    }

    #[test]
    fn a_weight_lasts_until_the_next_one_that_makes_sense() {
        let mut progress = JobProgress::default();
        assert_eq!(progress.owner_weight(), 1.0);
        for (reported, weight) in
            [(Some(2.0), 2.0), (None, 2.0), (Some(f64::NAN), 2.0), (Some(0.0), 2.0), (Some(0.5), 0.5)]
        {
            progress.record_weight(reported);
            assert_eq!(progress.owner_weight(), weight, "after {reported:?}");
        }
    }

    #[test]
    fn the_first_estimate_is_kept() {
        let mut progress = JobProgress::default();
        progress.record_plateau(None);
        progress.record_progress(10.0, None, Some(50.0));
        for flat in [Some(300.0), None, Some(200.0)] {
            progress.record_plateau(flat);
        }
        progress.record_progress(10.0, None, Some(40.0));
        let current = UserEstimate { declared_secs: Some(20.0), flat_loss_secs: Some(100.0) };
        let first = UserEstimate { declared_secs: Some(25.0), flat_loss_secs: Some(150.0) };
        assert_eq!(progress.current_estimate(2.0), current);
        assert_eq!(progress.first_estimate(2.0), first);
        assert_eq!(progress.current_estimate(0.0), UserEstimate::default());
    }

    #[test]
    fn an_estimate_that_was_raised_is_not_believed() {
        let mut progress = JobProgress::default();
        for step in 0..20 {
            progress.record_progress(8.0, Some(step), Some((step + 1) as f64));
        }
        assert_eq!(progress.estimated_samples(), None);
        let mut shortened = JobProgress::default();
        for (step, total) in [(0, 100.0), (10, 100.0), (20, 60.0)] {
            shortened.record_progress(80.0, Some(step), Some(total));
        }
        assert_eq!(shortened.estimated_samples(), Some(240.0 + 40.0 * 8.0));
    }
}
