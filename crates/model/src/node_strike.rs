//! Failures that count against a node.

use super::{JobId, UnixTime, UserId};

/// A failure of a job on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStrike {
    /// The job that failed.
    pub job: JobId,
    /// The owner of the job.
    pub user: UserId,
    /// What went wrong, in words.
    pub why: String,
    /// When it happened.
    pub at: UnixTime,
}
