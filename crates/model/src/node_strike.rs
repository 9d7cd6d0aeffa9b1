//! What counts against a node.

use super::{JobId, UnixTime, UserId};

/// Something that went wrong on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStrike {
    /// To which job.
    pub job: JobId,
    /// Whose job that is.
    pub user: UserId,
    /// What it was.
    pub why: String,
    /// When.
    pub at: UnixTime,
}
