//! How long collective operations take on the site's nodes.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::{CollectiveRow, TypeCollectives};

/// Replaces the measurements of one node type: `POST /v1/collectives/import`, for administrators. The
/// credential's purpose is `collectives`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ImportCollectivesRequest {
    /// Proof of the sender's identity.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The node type, or a word that stands for it.
    pub node_type: String,
    /// The measurements.
    pub rows: Vec<CollectiveRow>,
}

/// The site's table: answers `GET /v1/collectives`, and an import with the table after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CollectivesView {
    /// [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema: u32,
    /// The measurements of each node type.
    pub types: Vec<TypeCollectives>,
}
