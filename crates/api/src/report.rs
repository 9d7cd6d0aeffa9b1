//! The results of lending idle nodes, in numbers.

use serde::{Deserialize, Serialize};

use infill_model::{NodeTimeRow, NodeUsageSecs, ReportConfig, UnixTime};

/// Largest number of main jobs whose delays one answer lists: the first ones of the period.
pub const MAX_DELAYS: u32 = 200_000;

/// Longest period of a report, seconds.
pub const MAX_REPORT_SECS: i64 = 400 * 86_400;

/// `GET /v1/report?from=…&to=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ReportQuery {
    /// Begin of the period, seconds since 1970.
    pub from: UnixTime,
    /// End of the period, seconds since 1970.
    pub to: UnixTime,
}

/// Uses of nodes, in node-seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UsesView {
    /// Number of hours with data.
    pub hours: u32,
    /// Node-seconds in these hours, by use.
    #[serde(flatten)]
    pub secs: NodeUsageSecs,
}

/// What the daemon knows about a period.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ReportView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Begin of the period.
    pub from: UnixTime,
    /// End of the period.
    pub to: UnixTime,
    /// The malleable partition.
    pub partition: String,
    /// Whether this reader may see only a part of the data; Slurm's accounting may hide some, too.
    pub is_partial: bool,
    /// Whether infill lends parts of nodes. If so, "nodes" in this report means parts of nodes.
    pub lends_parts: bool,
    /// Prices of node-time at this site.
    pub prices: ReportConfig,
    /// How malleable jobs spent the node-time that they held, from the beginning of the hour of `from` on.
    pub spent: Vec<NodeTimeRow>,
    /// Uses of nodes, as far back as the store keeps them.
    pub uses: UsesView,
    /// Main jobs that started on nodes of malleable jobs, earliest first: the seconds for which each waited
    /// for these nodes, and whether Slurm had planned it to start there.
    pub delays: Vec<(f64, bool)>,
    /// Whether there were more delays than `delays` lists ([`MAX_DELAYS`]).
    pub delays_cut: bool,
}
