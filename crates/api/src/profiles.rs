//! What people see and change of profiles.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::{BatchMode, JobId, Profile, ProfileFilter, ProfileKey, UnixTime};

/// Most profiles that one answer lists.
pub const MAX_PROFILES: u32 = 1000;

/// Most profiles that one request may bring; an import of more is sent in parts.
pub const MAX_IMPORTED: usize = 64;

/// `GET /v1/profiles`, with `user`, `name`, `node_type` and `exec_plan` to choose some.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProfilesView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// The last changed first.
    pub profiles: Vec<ProfileView>,
}

/// A profile with the curve that follows from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProfileView {
    /// What was measured.
    #[serde(flatten)]
    pub profile: Profile,
    /// The batch mode as declared or recognised.
    pub batch_seen: BatchMode,
    /// The fitted curve; empty while nothing was measured.
    pub curve: Vec<CurveRow>,
    /// The formula of the best model.
    pub model: String,
}

/// What is believed of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveRow {
    /// Number of nodes.
    pub nodes: u32,
    /// Samples a second.
    pub rate: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// `GET /v1/profiles/figure`, with all of the profile's key as the query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileFigureQuery {
    /// Of which profile.
    #[serde(flatten)]
    pub key: ProfileKey,
    /// On how many nodes a job of it is now.
    #[serde(default)]
    pub at: Option<u32>,
    /// Its samples a second there.
    #[serde(default)]
    pub rate: Option<f64>,
}

/// Most rows of a profile's history that one answer lists.
pub const MAX_HISTORY: u32 = 100;

/// What was measured for one profile, row by row: `GET /v1/profiles/history`, with all of the profile's key
/// (`user`, `name`, `node_type`, `exec_plan`, `batch`) as the query.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HistoryView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// Of which profile.
    pub profile: ProfileKey,
    /// The newest first; at most [`MAX_HISTORY`].
    pub rows: Vec<HistoryRow>,
}

/// A stretch of a job that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// Its end.
    pub at: UnixTime,
    /// The lead's job id.
    pub job: JobId,
    /// Number of nodes.
    pub nodes: u32,
    /// Samples done.
    pub samples: f64,
    /// Seconds measured.
    pub secs: f64,
    /// Whether the size was held only to measure it.
    pub probe: bool,
}

/// Deletes profiles: `POST /v1/profiles/forget`. The credential's purpose is `profiles`. Users may name their
/// own profiles, administrators any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForgetRequest {
    /// Proof of who speaks.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// Which: all that agree with every field that is given.
    pub filter: ProfileFilter,
}

/// Takes profiles in, in place of those with the same key: `POST /v1/profiles/import`. The credential's
/// purpose is `profiles`. Users may bring their own profiles, administrators any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportRequest {
    /// Proof of who speaks.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The profiles.
    pub profiles: Vec<Profile>,
}

/// How many profiles a request concerned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProfileCount {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// So many.
    pub profiles: u64,
}
