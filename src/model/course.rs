//! How far a malleable job has come.

use serde::{Deserialize, Serialize};

/// What a job has done, and what it says of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Course {
    /// Samples that it has made.
    pub samples: f64,
    /// Node-seconds for which it has trained.
    pub held_secs: f64,
    /// Its last step.
    pub step: Option<u64>,
    /// How many steps it will make in all, by its own word; of samples, where it tells of no steps.
    pub total: Option<f64>,
    /// Samples in all that follow from what it said first.
    pub first_said: Option<f64>,
}

impl Course {
    /// Samples that it will have made in all, by its own word. Of steps as many samples are to come each as
    /// came so far.
    pub fn said_samples(&self) -> Option<f64> {
        let total = self.total.filter(|total| total.is_finite() && *total > 0.0)?;
        let samples = match self.step {
            Some(step) if step > 0 && self.samples > 0.0 => self.samples * total / step as f64,
            Some(_) => return None,
            None => total,
        };
        samples.is_finite().then_some(samples)
    }

    /// Takes in further progress: samples, the last step, and what is said of the total.
    pub fn add(&mut self, samples: f64, step: Option<u64>, total: Option<f64>) {
        self.samples = (self.samples + samples).min(f64::MAX);
        self.step = step.or(self.step).max(self.step);
        self.total = total.filter(|t| t.is_finite() && *t > 0.0).or(self.total);
        self.first_said = self.first_said.or(self.said_samples());
    }

    /// Work that it has done: seconds that it would have taken on one node where it makes `unit` samples a
    /// second; of a job that tells of none, the node-seconds that it has trained.
    pub fn work_secs(&self, unit: f64) -> f64 {
        if self.samples > 0.0 && unit > 0.0 { self.samples / unit } else { self.held_secs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_of_steps_is_one_of_samples() {
        let mut course = Course::default();
        course.add(0.0, Some(0), Some(100.0));
        assert_eq!((course.said_samples(), course.first_said), (None, None), "nothing to reckon with");
        course.add(640.0, Some(10), Some(100.0));
        assert_eq!(course.said_samples(), Some(6400.0));
        course.add(640.0, Some(20), Some(200.0));
        assert_eq!((course.said_samples(), course.first_said), (Some(12_800.0), Some(6400.0)));
        course.add(64.0, Some(15), Some(f64::NAN));
        assert_eq!((course.step, course.total), (Some(20), Some(200.0)));
        let mut samples = Course::default();
        samples.add(10.0, None, Some(50.0));
        assert_eq!(samples.said_samples(), Some(50.0));
        assert_eq!(
            (samples.work_secs(2.0), Course { held_secs: 7.0, ..Course::default() }.work_secs(2.0)),
            (5.0, 7.0)
        );
    }
}
