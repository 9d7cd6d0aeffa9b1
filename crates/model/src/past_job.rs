//! Jobs as they were submitted, and the outcome of past jobs.

use super::UserEstimate;

/// The facts about a job when it is submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// The submission time in seconds.
    pub submitted_at: f64,
    /// The owner's login name.
    pub user: String,
    /// The name of its profile, else its Slurm name without digits. Empty if it has none.
    pub name: String,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of GPUs.
    pub gpus: u32,
    /// Its time limit in seconds; `None` if it has none.
    pub limit_secs: Option<f64>,
    /// Further facts, as numbers. All jobs of a history have the same.
    pub further_facts: Vec<f64>,
}

/// A past job of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct PastJob {
    /// The facts at its submission.
    pub job: Submission,
    /// When it ended, in seconds.
    pub ended_at: f64,
    /// How long it ran, in seconds.
    pub secs: f64,
    /// The first estimates of its length.
    pub estimate: UserEstimate,
}
