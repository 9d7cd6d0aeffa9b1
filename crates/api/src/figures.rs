//! What is drawn, with the numbers of it as a table.

use serde::{Deserialize, Serialize};

use infill_model::UnixTime;
use infill_model::words;

/// Longest stretch that is drawn, seconds.
pub const LONGEST_FIGURE_SECS: i64 = 400 * 86_400;

words! {
    /// What is drawn over time.
    pub enum FigureKind {
        /// How many nodes were used for what.
        Nodes = "nodes",
        /// What became of the node-time that malleable jobs held.
        NodeTime = "node_time",
        /// How long main jobs waited for nodes that malleable jobs were on.
        Delays = "delays",
    }
}

/// `GET /v1/figures/{kind}?from=…&to=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FigureQuery {
    /// Begin, seconds since 1970.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// By how many seconds the reader's clock is ahead of UTC.
    #[serde(default)]
    pub zone: i64,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// Its title.
    pub title: String,
    /// Heads of the table's columns.
    pub heads: Vec<String>,
    /// The table, row by row; times are seconds since 1970, in a first column that is called `from` or `at`.
    pub rows: Vec<Vec<serde_json::Value>>,
    /// The drawing, as SVG; `None` where there is nothing to draw.
    pub svg: Option<String>,
}
