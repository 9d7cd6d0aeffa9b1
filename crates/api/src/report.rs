//! What came of lending idle nodes, in numbers.

use serde::{Deserialize, Serialize};

use infill_model::{NodeTimeRow, NodeUsageSecs, ReportConfig, UnixTime};

/// Most main jobs whose delays are told at once: the first of the stretch.
pub const MOST_DELAYS: u32 = 200_000;

/// Longest stretch, seconds.
pub const LONGEST_REPORT_SECS: i64 = 400 * 86_400;

/// `GET /v1/report?from=…&to=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportQuery {
    /// Begin, seconds since 1970.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
}

/// What nodes were used for, in node-seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsesView {
    /// Hours of which something is known.
    pub hours: u32,
    /// Node-seconds of these.
    #[serde(flatten)]
    pub secs: NodeUsageSecs,
}

/// What the daemon knows of a stretch of time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReportView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// The malleable partition.
    pub partition: String,
    /// Whether this reader may be shown less than there is, also by Slurm's accounting.
    pub is_partial: bool,
    /// Whether parts of nodes are lent: what is called nodes here are parts then.
    pub lends_parts: bool,
    /// What node-time costs here.
    pub prices: ReportConfig,
    /// What became of the node-time that malleable jobs held, from the begin of an hour on.
    pub spent: Vec<NodeTimeRow>,
    /// What nodes were used for, as far back as that is kept.
    pub uses: UsesView,
    /// Main jobs that started on nodes that malleable jobs were on, the earliest first: seconds for which
    /// each had waited for these, and whether it was planned to start there.
    pub delays: Vec<(f64, bool)>,
    /// Whether there were more of them than are told.
    pub delays_cut: bool,
}
