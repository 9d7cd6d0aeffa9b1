//! The cost of changing from one option of a job to another between two steps.
//!
//! The cost depends only on the option that follows and on the kind of change. So it is kept in three columns
//! instead of a matrix.

use std::ops::Range;

use super::job_option::JobOption;
use infill_model::{ChangeKind, MalleableJob};

/// The changes between the options of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ChangeCosts {
    /// Options among which a job can change and keep its lead: ranges of options, by rising size. Option 0,
    /// which holds nothing, is in none.
    pub classes: Vec<Range<usize>>,
    /// For each option the first one of the same class and size.
    pub first_of_size: Vec<usize>,
    /// For each option the weighted samples lost on a change from one of its class that is no larger.
    pub up: Vec<f64>,
    /// For each option the weighted samples lost on a change from a larger one of its class.
    pub down: Vec<f64>,
    /// For each option the weighted samples lost on a change from another class, or from nothing.
    pub start: Vec<f64>,
    /// The class of each option.
    class: Vec<usize>,
}

impl ChangeCosts {
    /// The changes between `options`, whose first one holds nothing. A change that takes nodes costs
    /// `reluctance` in addition.
    pub fn between_options(job: &MalleableJob, options: &[JobOption], reluctance: f64) -> Self {
        let mut found = ChangeCosts {
            up: costs_by_option(job, options, ChangeKind::Grow, reluctance),
            down: costs_by_option(job, options, ChangeKind::Shrink, reluctance),
            start: costs_by_option(job, options, ChangeKind::Start, reluctance),
            first_of_size: (0..options.len()).collect(),
            class: vec![usize::MAX; options.len()],
            ..ChangeCosts::default()
        };
        for at in 1..options.len() {
            let before = &options[at - 1];
            let here = &options[at];
            match found.classes.last_mut() {
                Some(class) if before.continues_as(here) => class.end = at + 1,
                _ => found.classes.push(at..at + 1),
            }
            found.class[at] = found.classes.len() - 1;
            if before.continues_as(here) && before.nodes == here.nodes {
                found.first_of_size[at] = found.first_of_size[at - 1];
            }
        }
        found
    }

    /// Weighted samples lost on a change from one option to another.
    pub fn cost_between(&self, from: usize, to: usize) -> f64 {
        if from == to || to == 0 {
            return 0.0;
        }
        if self.class[from] != self.class[to] {
            return self.start[to];
        }
        if self.first_of_size[from] <= self.first_of_size[to] { self.up[to] } else { self.down[to] }
    }
}

/// For each option the weighted samples lost on a change of this kind to it.
fn costs_by_option(
    job: &MalleableJob,
    options: &[JobOption],
    change: ChangeKind,
    reluctance: f64,
) -> Vec<f64> {
    let reluctance = if change.takes_nodes() { reluctance } else { 0.0 };
    options
        .iter()
        .map(
            |spec| {
                if spec.nodes == 0 {
                    0.0
                } else {
                    job.change_loss(change, spec.rate) * job.weight + reluctance
                }
            },
        )
        .collect()
}
