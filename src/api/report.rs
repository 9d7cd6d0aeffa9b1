//! What came of lending idle nodes, in numbers.

use serde::{Deserialize, Serialize};

use crate::model::{SpentRow, UnixTime};

/// Most main jobs whose delays are told at once: the first of the stretch.
pub const MOST_DELAYS: u32 = 200_000;

/// `GET /v1/report?from=…&to=…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportQuery {
    /// Begin, seconds since 1970.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
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
    /// What became of the node-time that malleable jobs held.
    pub spent: Vec<SpentRow>,
    /// Main jobs that started on nodes that malleable jobs were on, the earliest first: seconds for which each
    /// had waited for these, and whether it was planned to start there.
    pub delays: Vec<(f64, bool)>,
}
