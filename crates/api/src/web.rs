//! Links to the page, and the sessions of those who open one.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::Secret;

/// Asks for a link: `POST /v1/web/links`. The credential's purpose is [`LINK_PURPOSE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkRequest {
    /// Proof of who speaks.
    #[serde(flatten)]
    pub proof: BodyProof,
}

/// Purpose of a credential for a link.
pub const LINK_PURPOSE: &str = "web";

/// What makes a link: it goes into the fragment, which no browser sends anywhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebLink {
    /// Opens a session, once.
    pub ticket: Secret,
    /// For how long it does, seconds.
    pub lasts_secs: u64,
}

/// Opens a session: `POST /v1/web/sessions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionRequest {
    /// The link's.
    pub ticket: Secret,
}

/// A session, which reads as the user who asked for the link, and changes nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebSession {
    /// To be shown as `Authorization: Bearer` with each request.
    pub secret: Secret,
    /// Whose it is.
    pub user: Option<String>,
    /// For how long it counts, seconds.
    pub lasts_secs: u64,
}

/// Ends all sessions of a user, and links that were not opened: `POST /v1/web/revoke`. The credential's
/// purpose is [`REVOKE_PURPOSE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeRequest {
    /// Of older commands.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// Whose; none: those of who speaks. Only administrators and Slurm's operators end other users'.
    pub user: Option<String>,
}

/// Purpose of a credential that ends sessions.
pub const REVOKE_PURPOSE: &str = "web-revoke";

/// What was ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokedSessions {
    /// Sessions that counted until then.
    pub sessions: u32,
}
