//! `[web]`: the page behind a site's own web server.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rule::ConfigRule;

/// `[web]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    /// The Unix socket to which the web server connects; empty for none.
    pub socket: PathBuf,
    /// The group that may open the socket besides the daemon's user, as number or name. Empty for that user's
    /// group.
    pub group: String,
    /// The header in which the web server names the reader.
    pub user_header: String,
}

impl Default for WebConfig {
    fn default() -> Self {
        WebConfig { socket: PathBuf::new(), group: String::new(), user_header: "X-Remote-User".to_owned() }
    }
}

impl WebConfig {
    pub(super) const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::custom_check(
            "web.socket",
            |c| {
                let is_valid = c.socket.as_os_str().is_empty() || c.socket.is_absolute();
                (!is_valid).then(|| format!("{:?}", c.socket.display()))
            },
            "expected an absolute path",
        ),
        ConfigRule::custom_check(
            "web.user_header",
            |c| {
                let is_valid = c.user_header.parse::<http::HeaderName>().is_ok();
                (!is_valid).then(|| format!("{:?}", c.user_header))
            },
            "expected the name of a header",
        ),
    ];
}
