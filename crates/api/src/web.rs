//! Links to the web page, and the sessions that they open.

use serde::{Deserialize, Serialize};

use super::document::BodyProof;
use infill_model::Secret;

/// Asks for a link: `POST /v1/web/links`. The credential's purpose is [`LINK_PURPOSE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LinkRequest {
    /// Proof of the sender's identity.
    #[serde(flatten)]
    pub proof: BodyProof,
}

/// Purpose of a credential for a link.
pub const LINK_PURPOSE: &str = "web";

/// The secret part of a link. It goes into the URL's fragment, which browsers do not send.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WebLink {
    /// Opens one session. It works once.
    pub ticket: Secret,
    /// How long the ticket is valid, seconds.
    pub lasts_secs: u64,
}

/// Opens a session: `POST /v1/web/sessions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SessionRequest {
    /// The ticket of the link ([`WebLink::ticket`]).
    pub ticket: Secret,
}

/// A session. It can read what the user who asked for the link can read, and cannot change anything.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WebSession {
    /// Sent as `Authorization: Bearer` with each request.
    pub secret: Secret,
    /// The user who asked for the link, by name.
    pub user: Option<String>,
    /// How long the session is valid, seconds.
    pub lasts_secs: u64,
}

/// Ends all sessions of a user, and revokes links that were not opened: `POST /v1/web/revoke`. The
/// credential's purpose is [`REVOKE_PURPOSE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RevokeRequest {
    /// Proof of the sender's identity, from older versions of the command line.
    #[serde(flatten)]
    pub proof: BodyProof,
    /// The user whose sessions end; `None` for the sender's own. Only administrators and Slurm's operators
    /// may name other users.
    pub user: Option<String>,
}

/// Purpose of the credential of a [`RevokeRequest`].
pub const REVOKE_PURPOSE: &str = "web-revoke";

/// Result of a [`RevokeRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RevokedSessions {
    /// Number of valid sessions that were ended.
    pub sessions: u32,
}
