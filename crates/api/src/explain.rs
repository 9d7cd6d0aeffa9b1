//! Why a job or a node has what it has, in words.

use serde::{Deserialize, Serialize};

/// `GET /v1/explain/{subject}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExplainQuery {
    /// Offset of the reader's time zone from UTC, seconds; positive to the east.
    #[serde(default)]
    pub zone: i64,
}

/// What `infill explain` says about a job or node now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExplainView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// The explanation, line by line.
    pub lines: Vec<String>,
}
