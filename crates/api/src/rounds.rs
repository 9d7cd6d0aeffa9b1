//! Queries for finished rounds.

use serde::{Deserialize, Serialize};

use infill_model::{RoundSummary, UnixTime};

/// Number of rounds in an answer if the query sets no limit.
pub const DEFAULT_ROUNDS: u32 = 20;

/// Largest number of rounds in one answer: about a megabyte with their notes.
pub const MAX_ROUNDS: u32 = 1000;

/// Selects rounds: the query of `GET /v1/rounds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RoundsQuery {
    /// Only rounds earlier than this, seconds since 1970. The newest, if it is left out.
    pub before: Option<UnixTime>,
    /// Largest number of rounds, up to [`MAX_ROUNDS`]. If it is left out, [`DEFAULT_ROUNDS`].
    pub limit: Option<u32>,
}

/// Answer to `GET /v1/rounds`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RoundsView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// The rounds, newest first.
    pub rounds: Vec<RoundSummary>,
}
