//! What all answers have in common.

use serde::{Deserialize, Serialize};

/// Version of every JSON document that infill prints or serves.
pub const SCHEMA: u32 = 1;

/// Any failed request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What was wrong.
    pub error: String,
}
