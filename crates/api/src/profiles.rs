//! Messages that show and change profiles.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::{BatchMode, JobId, Profile, ProfileFilter, ProfileKey, UnixTime};

/// Largest number of profiles in one answer.
pub const MAX_PROFILES: u32 = 1000;

/// Largest number of profiles in one request. A larger import is sent in parts.
pub const MAX_IMPORTED: usize = 64;

/// Answer to `GET /v1/profiles`. The query can select by `user`, `name`, `node_type` and `exec_plan`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ProfilesView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// The profiles, most recently changed first.
    pub profiles: Vec<ProfileView>,
}

/// A profile with the scaling curve that was fitted to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ProfileView {
    /// The profile with its measurements.
    #[serde(flatten)]
    pub profile: Profile,
    /// The batch mode, declared or recognised from the measurements.
    pub batch_seen: BatchMode,
    /// The fitted curve; empty before the first measurement.
    pub curve: Vec<CurveRow>,
    /// The formula of the best model, as text.
    pub model: String,
}

/// The estimate for one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CurveRow {
    /// Number of nodes.
    pub nodes: u32,
    /// Rate, samples a second.
    pub rate: f64,
    /// Lower end of the 90 % interval of the rate, samples a second.
    pub low: f64,
    /// Upper end of the 90 % interval of the rate, samples a second.
    pub high: f64,
}

/// The query of `GET /v1/profiles/figure`: all fields of a profile's key, and a point to mark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ProfileFigureQuery {
    /// The profile to draw.
    #[serde(flatten)]
    pub key: ProfileKey,
    /// The present number of nodes of a job with this profile.
    #[serde(default)]
    pub at: Option<u32>,
    /// The job's rate at that size, samples a second.
    #[serde(default)]
    pub rate: Option<f64>,
}

/// Largest number of rows of a profile's history in one answer.
pub const MAX_HISTORY: u32 = 100;

/// The measurements of one profile, row by row: answers `GET /v1/profiles/history`. The query has all fields
/// of the profile's key: `user`, `name`, `node_type`, `exec_plan`, `batch`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HistoryView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// The profile's key.
    pub profile: ProfileKey,
    /// The rows, newest first, at most [`MAX_HISTORY`].
    pub rows: Vec<HistoryRow>,
}

/// One measured period of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HistoryRow {
    /// End of the period.
    pub at: UnixTime,
    /// The lead's job id.
    pub job: JobId,
    /// Number of nodes.
    pub nodes: u32,
    /// Samples processed in the period.
    pub samples: f64,
    /// Length of the period, seconds.
    pub secs: f64,
    /// Whether the job had this size only to measure it.
    pub probe: bool,
}

/// Deletes profiles: `POST /v1/profiles/forget`. The credential's purpose is `profiles`. Users may delete
/// their own profiles, administrators all profiles.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ForgetRequest {
    /// Proof of the sender's identity.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// Selects the profiles that match each given field.
    pub filter: ProfileFilter,
}

/// Imports profiles, which replace those with the same key: `POST /v1/profiles/import`. The credential's
/// purpose is `profiles`. Users may import their own profiles, administrators all profiles.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ImportRequest {
    /// Proof of the sender's identity.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The profiles to import, at most [`MAX_IMPORTED`].
    pub profiles: Vec<Profile>,
}

/// Answer to a [`ForgetRequest`] or an [`ImportRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ProfileCount {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Number of profiles that were deleted or imported.
    pub profiles: u64,
}
