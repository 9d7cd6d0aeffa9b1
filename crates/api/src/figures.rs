//! Figures: a drawing, and its numbers as a table.

use serde::{Deserialize, Serialize};

use infill_model::UnixTime;
use infill_model::words;

/// Longest period of a figure, seconds.
pub const MAX_FIGURE_SECS: i64 = 400 * 86_400;

words! {
    /// What a figure shows over time.
    #[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
    pub enum FigureKind {
        /// How many nodes had each use.
        Nodes = "nodes",
        /// What became of the node-time that malleable jobs held.
        NodeTime = "node_time",
        /// How long main jobs waited for nodes that malleable jobs were on.
        Delays = "delays",
    }
}

/// `GET /v1/figures/{kind}?from=…&to=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FigureQuery {
    /// Begin of the period, seconds since 1970.
    pub from: UnixTime,
    /// End of the period, seconds since 1970.
    pub to: UnixTime,
    /// Offset of the reader's time zone from UTC, seconds; positive to the east.
    #[serde(default)]
    pub zone: i64,
}

/// Answer to a [`FigureQuery`] or a [`ProfileFigureQuery`](super::ProfileFigureQuery). A drawing and its
/// numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FigureView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Title of the figure.
    pub title: String,
    /// Heads of the table's columns.
    pub heads: Vec<String>,
    /// The table, row by row. Times are seconds since 1970, in a first column named `from` or `at`.
    #[cfg_attr(any(test, feature = "schema"), schemars(schema_with = "rows_schema"))]
    pub rows: Vec<Vec<serde_json::Value>>,
    /// The drawing, as SVG; `None` if there is nothing to draw.
    pub svg: Option<String>,
}

/// The schema of a table whose cells are numbers and words.
#[cfg(any(test, feature = "schema"))]
fn rows_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let cell = serde_json::json!({ "type": ["number", "string"] });
    schemars::json_schema!({ "type": "array", "items": { "type": "array", "items": cell } })
}
