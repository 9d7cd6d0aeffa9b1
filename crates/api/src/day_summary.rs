//! A day at a glance: uses of nodes now, and what lending idle nodes has done since the day began.

use serde::{Deserialize, Serialize};

use super::report::UsesView;
use infill_model::{NodeTimeUsage, UnixTime};

/// How far back a day may begin, seconds. A day has 25 hours when clocks are set back.
pub const MAX_DAY_SECS: i64 = 26 * 3600;

/// `GET /v1/summary?day=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SummaryQuery {
    /// When the reader's day began, seconds since 1970: at most [`MAX_DAY_SECS`] ago.
    pub day: UnixTime,
}

/// Answer to a [`SummaryQuery`]. It names no job and no user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SummaryView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// When the day began.
    pub day: UnixTime,
    /// Time of the latest data; `None` before the first trusted snapshot.
    pub seen: Option<UnixTime>,
    /// Time of the earliest data within the last 48 hours; `None` without data.
    pub since: Option<UnixTime>,
    /// Numbers of nodes by use, at `seen`.
    pub nodes: NodeCounts,
    /// Node-seconds by use, since the full hour in which the day began.
    pub uses: UsesView,
    /// How malleable jobs spent their node-time since then.
    pub spent: NodeTimeUsage,
    /// Waits of the main jobs that started on nodes of malleable jobs; `None` if no such job started.
    pub delays: Option<DelaySummary>,
    /// Number of generations that replaced another one of their job.
    pub rescales: u64,
}

/// Numbers of nodes by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeCounts {
    /// Nodes with a main job.
    pub main: u32,
    /// Nodes of malleable jobs.
    pub malleable: u32,
    /// Idle nodes that infill can use.
    pub idle: u32,
    /// Idle nodes that the main queue wants back too soon.
    pub wanted: u32,
    /// Idle nodes that infill may not use.
    pub refused: u32,
    /// Nodes that are down, drained or switched off.
    pub down: u32,
}

/// How long main jobs waited for nodes of malleable jobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DelaySummary {
    /// Number of main jobs that started on such nodes.
    pub jobs: u32,
    /// Number of them that waited longer than a second.
    pub delayed: u32,
    /// 99th percentile of the waits, seconds.
    pub p99_secs: f64,
    /// Longest wait, seconds.
    pub max_secs: f64,
    /// The wait above which a job counts as delayed for `[safety]`, seconds.
    pub limit_secs: f64,
}
