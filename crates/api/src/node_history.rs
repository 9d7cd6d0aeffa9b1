//! One node: its present state, and its uses over time.

use serde::{Deserialize, Serialize};

use super::operator::NodeView;
use infill_model::UnixTime;

/// `GET /v1/nodes/{name}?from=…&to=…`: a stretch of at most
/// [`MAX_TIMELINE_SECS`](super::MAX_TIMELINE_SECS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeHistoryQuery {
    /// Begin of the period, seconds since 1970.
    pub from: UnixTime,
    /// End of the period, seconds since 1970.
    pub to: UnixTime,
}

/// Answer to a [`NodeHistoryQuery`]. A node now, and what it was used for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeHistoryView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Begin of the period.
    pub from: UnixTime,
    /// End of the period.
    pub to: UnixTime,
    /// Time of the latest data. Later uses are planned.
    pub seen: UnixTime,
    /// The node as it is now. With parts of nodes (`gaps.lend`), one view for each part. Empty for a node
    /// that the malleable partition does not have.
    pub now: Vec<NodeView>,
    /// Index of the node among the nodes of the period, in the order of names; `None` without data.
    pub index: Option<usize>,
    /// Its uses as in [`NodeRow::runs`](super::NodeRow::runs).
    pub runs: Vec<(u32, u32, u64)>,
}
