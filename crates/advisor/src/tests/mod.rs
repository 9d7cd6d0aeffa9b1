//! The advisor as a whole: curves against tables, drifts, stalls, many trials of one script.

use infill_model::{NodeName, ProgressReport};

mod curves;
mod layers;
mod plans;
mod programs;
mod simulated_jobs;
mod types;

/// One worker's report of one second, with one host for each node.
fn one_second(generation: u64, nodes: u32, samples: f64, node: &NodeName) -> ProgressReport<'_> {
    ProgressReport {
        generation,
        nodes,
        hosts: nodes,
        crosses: false,
        node,
        samples,
        secs: 1.0,
        step: None,
        startup: None,
    }
}
