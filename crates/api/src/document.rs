//! Parts that all messages have in common.

use serde::{Deserialize, Serialize};

use infill_model::Credential;

/// Version of every JSON document that infill prints or serves.
pub const SCHEMA_VERSION: u32 = 1;

/// The answer to a failed request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// What was wrong, as a sentence.
    pub error: String,
}

/// Proof of identity in the body of a hello or an order, from senders without sealed sessions. Other senders
/// show it in headers, as readers do, and bind the digest of the body into it ([`crate::seal`]).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct BodyProof {
    /// The credential; `None` if the headers carry the proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// The nonce that is bound into the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}
