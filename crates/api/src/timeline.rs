//! What nodes were used for over time.

use serde::{Deserialize, Serialize};

use infill_model::{NodeName, UnixTime};

/// Longest stretch that is told at once, seconds.
pub const LONGEST_TIMELINE_SECS: i64 = 48 * 3600;

/// Most rows and columns.
pub const MOST_PIXELS: usize = 4096;

/// Most cells of rows and columns: of a large screen.
pub const MOST_CELLS: usize = 1_000_000;

/// `GET /v1/timeline?from=…&to=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimelineQuery {
    /// Begin, seconds since 1970.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// The first node, in the order of names.
    #[serde(default)]
    pub first: usize,
    /// How many from there on; absent: all.
    pub count: Option<usize>,
    /// Rows that there is room for: of more nodes each row is a mixture of several.
    #[serde(default = "some_rows")]
    pub rows: usize,
    /// Columns of mixtures.
    #[serde(default = "some_columns")]
    pub columns: usize,
    /// Rows are those of all nodes from this earlier moment on: of one who knows what was before.
    pub nodes_since: Option<UnixTime>,
    /// Waits until something is known of later than this.
    pub after: Option<UnixTime>,
}

fn some_rows() -> usize {
    200
}

fn some_columns() -> usize {
    1000
}

/// What nodes were used for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimelineView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Until when something is known.
    pub seen: UnixTime,
    /// How many nodes there are in all.
    pub nodes: usize,
    /// The first of those that are told.
    pub first: usize,
    /// How many are told.
    pub count: usize,
    /// The rows.
    #[serde(flatten)]
    pub rows: TimelineRows,
}

/// Rows of a timeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "detail", rename_all = "snake_case")]
pub enum TimelineRows {
    /// One a node.
    Nodes {
        /// The nodes.
        rows: Vec<NodeRow>,
    },
    /// One for several nodes.
    Mixtures {
        /// How many nodes each row stands for.
        rows: Vec<u32>,
        /// Columns.
        columns: usize,
        /// For each row and column three bytes, in base64: in four bits each the share, in fifteenths, of
        /// main jobs and malleable ones, idle and wanted, refused and down. What is missing of the whole is
        /// unknown.
        shares: String,
    },
}

/// A node's row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name.
    pub node: NodeName,
    /// Stretches: begin and end, seconds since the timeline's begin, and for what: 1 main jobs, 2 idle,
    /// 3 wanted, 4 refused, 5 down, 6 a malleable job that is not shown to this reader, from 7 on the
    /// malleable job of the number less 6.
    pub runs: Vec<(u32, u32, u64)>,
}
