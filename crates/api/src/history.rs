//! Imports of jobs that have ended, and the deletion of what names a user.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::EndedJob;

/// Largest number of jobs in one request. A larger import is sent in parts.
pub const MAX_ENDED: usize = 1000;

/// Imports jobs that have ended: `POST /v1/history/import`, for administrators. The credential's purpose is
/// `history`. Jobs that the store already has, by number and submission time, stay as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ImportEndedRequest {
    /// Proof of the sender's identity.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The jobs to import, at most [`MAX_ENDED`].
    pub jobs: Vec<EndedJob>,
}

/// Result of an import of ended jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct EndedImportResult {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Number of jobs that are new and were stored.
    pub taken: u64,
    /// Number of jobs that the store had already.
    pub known: u64,
}

/// Purpose of the credential of a [`ForgetUserRequest`]. With the purpose of imports, a proof of one would do
/// for the other.
pub const FORGET_USER_PURPOSE: &str = "forget";

/// Deletes everything that names a user: `POST /v1/history/forget`, for administrators. The credential's
/// purpose is [`FORGET_USER_PURPOSE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ForgetUserRequest {
    /// Proof of the sender's identity.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The user's login name. The account may be gone.
    pub user: String,
}

/// What was deleted of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ForgottenUser {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// Profiles, with their measurements.
    pub profiles: u64,
    /// Jobs that have ended.
    pub ended_jobs: u64,
    /// Rows of node-time, which stay without the name.
    pub node_time: u64,
    /// Records of ended malleable jobs. They name the user by number: 0 if the account is gone.
    pub leads: u64,
    /// Rows of node-time of the present hour, which still have the name.
    pub kept_node_time: u64,
    /// Whether the account exists.
    pub has_account: bool,
}
