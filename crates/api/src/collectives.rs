//! How long collectives take on the site's nodes.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::{CollectiveRow, TypeCollectives};

/// Takes in what was measured on a type of nodes, in place of what was known of it:
/// `POST /v1/collectives/import`, for administrators. The credential's purpose is `collectives`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportCollectivesRequest {
    /// Proof of who speaks.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The type of nodes, or a word that means it.
    pub node_type: String,
    /// What was measured.
    pub rows: Vec<CollectiveRow>,
}

/// The site's table: `GET /v1/collectives`; and what it is after an import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectivesView {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// By type of nodes.
    pub types: Vec<TypeCollectives>,
}
