//! Jobs as they were submitted, and what became of them.

use super::UserEstimate;

/// A job as it is submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// When, in seconds.
    pub at: f64,
    /// Its owner.
    pub user: String,
    /// Its profile's name, or Slurm's without its numbers; empty where it has none.
    pub name: String,
    /// Nodes.
    pub nodes: u32,
    /// GPUs.
    pub gpus: u32,
    /// Its time limit, seconds.
    pub limit_secs: Option<f64>,
    /// What else is known of all jobs of this history, as numbers.
    pub more: Vec<f64>,
}

/// A job of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct PastJob {
    /// As it was submitted.
    pub job: Submission,
    /// When it ended, seconds.
    pub ended_at: f64,
    /// How long it ran, seconds.
    pub secs: f64,
    /// What it first told of that itself.
    pub word: UserEstimate,
}
