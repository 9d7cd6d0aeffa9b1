//! Uses of nodes over time.

use serde::{Deserialize, Serialize};

use infill_model::{NodeName, UnixTime};

/// Longest period of one answer, seconds.
pub const MAX_TIMELINE_SECS: i64 = 48 * 3600;

/// Largest number of rows, and of columns.
pub const MAX_TIMELINE_PIXELS: usize = 4096;

/// Largest number of cells, rows times columns: enough for a large screen.
pub const MAX_TIMELINE_CELLS: usize = 1_000_000;

/// The query of `GET /v1/timeline?from=…&to=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TimelineQuery {
    /// Begin of the period, seconds since 1970.
    pub from: UnixTime,
    /// End of the period, seconds since 1970.
    pub to: UnixTime,
    /// Index of the first node, in the order of names.
    #[serde(default)]
    pub first: usize,
    /// Number of nodes. If it is left out, all from `first` on.
    pub count: Option<usize>,
    /// Number of rows that fit on the screen. If there are more nodes, each row is a mixture of several
    /// nodes.
    #[serde(default = "default_rows")]
    pub rows: usize,
    /// Number of columns of mixtures.
    #[serde(default = "default_columns")]
    pub columns: usize,
    /// The rows are those of all nodes since this earlier time, seconds since 1970, for a reader that already
    /// has the data before `from`.
    pub nodes_since: Option<UnixTime>,
    /// The daemon answers only after it has data later than this time, seconds since 1970.
    pub after: Option<UnixTime>,
}

fn default_rows() -> usize {
    200
}

fn default_columns() -> usize {
    1000
}

/// Answer to a [`TimelineQuery`]. Nodes and what they were used for, row by row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TimelineView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Begin of the period.
    pub from: UnixTime,
    /// End of the period.
    pub to: UnixTime,
    /// Time of the latest data.
    pub seen: UnixTime,
    /// Number of nodes in all.
    pub nodes: usize,
    /// Index of the first node in `rows`, in the order of names.
    pub first: usize,
    /// Number of nodes that `rows` covers.
    pub count: usize,
    /// The rows, each for one node or for several.
    #[serde(flatten)]
    pub rows: TimelineRows,
}

/// Rows of a timeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "detail", rename_all = "snake_case")]
pub enum TimelineRows {
    /// One row for each node.
    Nodes {
        /// The nodes' rows, in the order of names.
        rows: Vec<NodeRow>,
    },
    /// One row for several nodes.
    Mixtures {
        /// Number of nodes in each row.
        rows: Vec<u32>,
        /// Number of columns.
        columns: usize,
        /// Three bytes for each row and column, in base64. Each byte holds two shares in fifteenths, four
        /// bits each: main jobs and malleable jobs, idle and wanted, refused and down. The rest of the whole
        /// is unknown.
        shares: String,
    },
}

/// The row of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeRow {
    /// The node's name.
    pub node: NodeName,
    /// Intervals as (begin, end, use), with begin and end in seconds since the timeline's begin. The use is
    /// 1 main jobs, 2 idle, 3 wanted, 4 refused, 5 down, 6 a malleable job that is hidden from this reader.
    /// A use of 7 or more is a malleable job: its job id plus 6.
    pub runs: Vec<(u32, u32, u64)>,
}
