//! Sizes of malleable jobs over time.

use serde::{Deserialize, Serialize};

use infill_model::{JobId, UnixTime};

/// Largest number of lanes in one answer: the jobs with the most node-time.
pub const MAX_LANES: usize = 200;

/// Largest number of stretches in one lane: more could not be distinguished.
pub const MAX_LANE_SPANS: usize = 400;

/// Largest number of changes in one answer: the last ones.
pub const MAX_LANE_CHANGES: u32 = 5000;

/// `GET /v1/lanes?from=…&to=…`: a stretch of at most
/// [`MAX_TIMELINE_SECS`](super::MAX_TIMELINE_SECS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LanesQuery {
    /// Begin of the period, seconds since 1970.
    pub from: UnixTime,
    /// End of the period, seconds since 1970.
    pub to: UnixTime,
}

/// Answer to a [`LanesQuery`]. Jobs and their sizes, a lane each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LanesView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Begin of the period.
    pub from: UnixTime,
    /// End of the period.
    pub to: UnixTime,
    /// Time of the latest data. Later stretches are planned.
    pub seen: UnixTime,
    /// One lane a job, by job id.
    pub lanes: Vec<JobLane>,
    /// Number of jobs that are hidden from this reader.
    pub hidden: u32,
    /// Number of jobs that were left out because of [`MAX_LANES`].
    pub omitted: u32,
}

/// The sizes of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct JobLane {
    /// The lead's job id.
    pub job: JobId,
    /// The job's name in Slurm; empty if it is unknown.
    pub name: String,
    /// The owner's user name; empty if it is unknown or hidden.
    pub user: String,
    /// When the job ended; `None` if it has not, or if that is unknown.
    pub ended_at: Option<UnixTime>,
    /// Stretches as (begin, end, nodes), with begin and end in seconds since the period's begin. The job
    /// holds no node between them.
    pub spans: Vec<(u32, u32, u32)>,
    /// The generations that began in the period, oldest first.
    pub changes: Vec<LaneChange>,
}

/// A new generation of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LaneChange {
    /// When it began.
    pub at: UnixTime,
    /// Its number.
    pub generation: u64,
    /// Its number of nodes.
    pub nodes: u32,
    /// Why it began, in words.
    pub why: String,
}
