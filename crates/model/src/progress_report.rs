//! What workers report of their progress.

use super::NodeName;

/// What a worker told of its progress.
#[derive(Clone, Copy, Debug)]
pub struct ProgressReport<'a> {
    /// The generation.
    pub generation: u64,
    /// Its number of nodes.
    pub nodes: u32,
    /// On how many hosts they are: fewer, where parts of nodes are lent.
    pub hosts: u32,
    /// Whether these hang on several leaf switches.
    pub crosses: bool,
    /// The worker.
    pub node: &'a NodeName,
    /// Samples since its last word.
    pub samples: f64,
    /// Seconds since its last word.
    pub secs: f64,
    /// Its step.
    pub step: Option<u64>,
    /// If it is the first of its generation: how that came about.
    pub opening: Option<GenerationStartup>,
}

/// How a generation came about, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationStartup {
    /// From the signal until the checkpoint was saved, if that is known.
    pub saved_secs: Option<f64>,
    /// From the signal until the old command had exited; `None` for a first start.
    pub stop_secs: Option<f64>,
    /// From there until the new command was started.
    pub idle_secs: f64,
    /// From there until its last word in this report.
    pub start_secs: f64,
    /// Samples that it had done by then.
    pub samples: f64,
    /// Whether it tells what a change costs; not where a command was started again because it had failed.
    pub counts: bool,
}
