//! What all answers have in common.

use serde::{Deserialize, Serialize};

use infill_model::Credential;

/// Version of every JSON document that infill prints or serves.
pub const SCHEMA: u32 = 1;

/// Any failed request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What was wrong.
    pub error: String,
}

/// Proof of who sends a hello or an order, in its body: of those who know of no sealed sessions. Others show
/// it in headers, as readers do, and bind the digest of the body into it ([`crate::seal`]).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct BodyProof {
    /// The credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// Bound into the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}
