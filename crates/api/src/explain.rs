//! Why a job or a node has what it has, in words.

use serde::{Deserialize, Serialize};

/// `GET /v1/explain/{subject}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainQuery {
    /// By how many seconds the reader's clock is ahead of UTC.
    #[serde(default)]
    pub zone: i64,
}

/// What `infill explain` says of it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// Line by line.
    pub lines: Vec<String>,
}
