//! A value for each step and option of a job.

/// Values of one job, in the order of steps and within a step in the order of options.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepTable {
    options: usize,
    values: Vec<f64>,
}

impl StepTable {
    /// A table with `options` values for each step.
    pub fn new(options: usize, values: Vec<f64>) -> Self {
        StepTable { options: options.max(1), values }
    }

    /// The values of one step; empty for a step that does not exist.
    pub fn row(&self, step: usize) -> &[f64] {
        self.values.get(step * self.options..(step + 1) * self.options).unwrap_or_default()
    }

    /// One row for each step.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &[f64]> + ExactSizeIterator {
        self.values.chunks_exact(self.options.max(1))
    }

    /// One mutable row for each step.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        self.values.chunks_exact_mut(self.options.max(1))
    }

    /// Copies another table into the memory that this one has.
    pub fn copy_from(&mut self, other: &StepTable) {
        self.options = other.options;
        self.values.clear();
        self.values.extend_from_slice(&other.values);
    }

    /// The mutable row of a step, and the row of the step after it, empty if there is none.
    pub(crate) fn with_next(&mut self, step: usize) -> (&mut [f64], &[f64]) {
        let from = self.values.len().min(step * self.options);
        let here = &mut self.values[from..];
        let (here, next) = here.split_at_mut(self.options.min(here.len()));
        (here, &next[..self.options.min(next.len())])
    }
}
