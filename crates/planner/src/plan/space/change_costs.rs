//! What going over from one option of a job to another costs between two steps.
//!
//! That depends only on the option it leads to and on the kind of change, so it is kept in three columns, not
//! in a matrix.

use std::ops::Range;

use super::job_option::JobOption;
use infill_model::{ChangeKind, MalleableJob};

/// The changes between the options of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ChangeCosts {
    /// Options that keep the lead among each other: ranges of options, by rising size. The first option of
    /// all, to hold nothing, is in none.
    pub classes: Vec<Range<usize>>,
    /// The first option of the same class and size.
    pub first_of_size: Vec<usize>,
    /// Weighted samples that it costs to go over to each option from one of its class that is no larger.
    pub up: Vec<f64>,
    /// The same from one that is larger.
    pub down: Vec<f64>,
    /// The same from any other class, or from nothing.
    pub start: Vec<f64>,
    /// The class of each option.
    class: Vec<usize>,
}

impl ChangeCosts {
    /// The changes between `options`, of which the first is to hold nothing. A change that takes nodes costs
    /// `reluctance` besides.
    pub fn between_options(job: &MalleableJob, options: &[JobOption], reluctance: f64) -> Self {
        let cost = |change: ChangeKind| {
            let reluctance = if change.takes_nodes() { reluctance } else { 0.0 };
            let loss = |spec: &JobOption| job.change_loss(change, spec.rate) * job.weight + reluctance;
            options.iter().map(|spec| if spec.nodes == 0 { 0.0 } else { loss(spec) }).collect()
        };
        let mut found = ChangeCosts {
            up: cost(ChangeKind::Grow),
            down: cost(ChangeKind::Shrink),
            start: cost(ChangeKind::Start),
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

    /// Weighted samples lost by going over from one option to another.
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
