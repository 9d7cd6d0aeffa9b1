//! What people see of rounds that are over.

use serde::{Deserialize, Serialize};

use infill_model::{RoundSummary, UnixTime};

/// Rounds that one answer lists where nobody says how many.
pub const DEFAULT_ROUNDS: u32 = 20;

/// Most rounds that one answer lists: with their notes about a megabyte.
pub const MAX_ROUNDS: u32 = 1000;

/// Which rounds: the query of `GET /v1/rounds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoundsQuery {
    /// Only those earlier than this; else the newest.
    pub before: Option<UnixTime>,
    /// At most so many, at most [`MAX_ROUNDS`]; else [`DEFAULT_ROUNDS`].
    pub limit: Option<u32>,
}

/// `GET /v1/rounds`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundsView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// The newest first.
    pub rounds: Vec<RoundSummary>,
}
