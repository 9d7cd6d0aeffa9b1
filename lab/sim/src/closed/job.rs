//! A job on a closed machine: its work, its progress, and its GPUs.

use super::machine::GpuAllocation;
use super::speeds::RunChoice;
use infill_model::ClosedJob;

/// A job that has been submitted and has not ended.
#[derive(Clone, Debug)]
pub struct ActiveJob {
    /// Its index among the workload's jobs.
    pub id: usize,
    /// The job as it was submitted.
    pub submitted: ClosedJob,
    /// When it was submitted, s.
    pub submitted_secs: f64,
    /// Total number of steps that it has to do.
    pub steps: f64,
    /// Steps that are done.
    pub done: f64,
    /// Its GPUs and its plan; `None` while it waits.
    pub run: Option<ActiveRun>,
    /// When it first got GPUs, s.
    pub first_start: Option<f64>,
    /// How often it was started or moved.
    pub starts: u32,
}

/// The GPUs of a running job, and its speed on them.
#[derive(Clone, Debug)]
pub struct ActiveRun {
    /// Plan, type and number of GPUs.
    pub choice: RunChoice,
    /// Its GPUs.
    pub seat: GpuAllocation,
    /// Steps a second once it runs.
    pub rate: f64,
    /// When it makes its first step there, s.
    pub ready: f64,
    /// The time since which its speed was not measured, s.
    pub unmeasured: f64,
}

impl ActiveJob {
    /// A job that waits. `work` is the factor on its steps.
    pub fn new(id: usize, submitted: ClosedJob, work: f64, submitted_secs: f64) -> ActiveJob {
        let steps = submitted.steps * work;
        ActiveJob { id, submitted, submitted_secs, steps, done: 0.0, run: None, first_start: None, starts: 0 }
    }

    /// Steps that are left.
    pub fn remaining_steps(&self) -> f64 {
        (self.steps - self.done).max(0.0)
    }

    /// When it ends if its GPUs stay the same, s; infinite while it waits.
    pub(crate) fn ends_at(&self, now: f64) -> f64 {
        self.run.as_ref().map_or(f64::INFINITY, |run| run.ready.max(now) + self.remaining_steps() / run.rate)
    }

    /// Advances the job. Returns the GPU-seconds that it held.
    pub(super) fn advance_between(&mut self, from: f64, to: f64) -> f64 {
        let ends = self.ends_at(from);
        let Some(run) = &self.run else { return 0.0 };
        self.done = (self.done + run.rate * (to - run.ready.max(from)).max(0.0)).min(self.steps);
        if ends <= to {
            // Late in a long simulation, times are too coarse for the last steps of a short job.
            self.done = self.steps;
        }
        f64::from(run.choice.gpus) * (to - from)
    }

    /// Whether all steps are done, except for rounding errors.
    pub(super) fn is_over(&self) -> bool {
        self.remaining_steps() <= self.steps * 1e-9
    }
}
