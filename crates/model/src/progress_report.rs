//! Reports of workers on their progress.

use super::NodeName;

/// A worker's report on its progress.
#[derive(Clone, Copy, Debug)]
pub struct ProgressReport<'a> {
    /// The generation of the worker.
    pub generation: u64,
    /// The number of nodes in the generation.
    pub nodes: u32,
    /// The number of hosts of these nodes. It may be smaller if parts of nodes are lent.
    pub hosts: u32,
    /// Whether these hosts are on several leaf switches.
    pub crosses: bool,
    /// The worker's node.
    pub node: &'a NodeName,
    /// Samples since its last report. In a report with a `startup`, samples since the command's start.
    pub samples: f64,
    /// Seconds since its last report. In a report with a `startup`, seconds since the command's start.
    pub secs: f64,
    /// Its last step, if it reports steps.
    pub step: Option<u64>,
    /// In the first report of a generation: how the generation came about.
    pub startup: Option<GenerationStartup>,
}

/// How a generation came about. All times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationStartup {
    /// From the signal until the checkpoint was saved, if known.
    pub saved_secs: Option<f64>,
    /// From the signal until the old command had exited; `None` for a first start.
    pub stop_secs: Option<f64>,
    /// From that exit until the new command was started.
    pub idle_secs: f64,
    /// From that start until the last message of this report.
    pub start_secs: f64,
    /// Samples that it had made by then.
    pub samples: f64,
    /// Whether it counts as a measurement of a change. `false` if a command was started again after a
    /// failure.
    pub counts: bool,
}
