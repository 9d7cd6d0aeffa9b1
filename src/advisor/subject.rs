//! What the advisor is told of a job, and what it makes of it.

use super::meter::Stretch;
use crate::model::{Curve, DeclaredPlan, JobId, NodeName, ProfileKey, RescaleCosts, Sizes};

/// A job as the advisor sees it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The lead.
    pub job: JobId,
    /// Its signature, on the node type that it runs on or would most likely.
    pub key: ProfileKey,
    /// Its allowed sizes.
    pub sizes: Sizes,
    /// Execution plans among which infill chooses; none where the program has but one.
    pub plans: Vec<DeclaredPlan>,
    /// The curve that the user declares, of the first of its plans.
    pub declared: Option<Curve>,
    /// Nodes of the present generation, if it runs undisturbed.
    pub running: Option<u32>,
    /// What its rescales cost.
    pub costs: RescaleCosts,
}

/// What a worker told of its progress.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
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
    pub opening: Option<Startup>,
}

/// How a generation came about, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Startup {
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

/// What a report led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// A stretch was measured at this size.
    pub stretch: Option<(u32, Stretch)>,
    /// The job runs at another speed than before.
    pub drift: Option<f64>,
    /// It was measured because the advisor wanted to know it.
    pub probe: bool,
    /// A probe is over: the planner may choose again.
    pub probed: bool,
}
