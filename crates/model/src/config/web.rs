//! `[web]`: the page behind a site's own web server.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rule::ConfigRule;

/// `[web]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    /// The Unix socket on which the web server asks; empty for none.
    pub socket: PathBuf,
    /// The number or name of the group that may open it, besides the daemon's own user; empty for that
    /// user's.
    pub group: String,
    /// The header in which it says whom it knows the reader to be.
    pub user_header: String,
}

impl Default for WebConfig {
    fn default() -> Self {
        let user_header = "X-Remote-User".to_owned();
        WebConfig { socket: PathBuf::new(), group: String::new(), user_header }
    }
}

impl WebConfig {
    pub(super) const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::custom_check(
            "web.socket",
            |c| {
                let is_sound = c.socket.as_os_str().is_empty() || c.socket.is_absolute();
                (!is_sound).then(|| format!("{:?}", c.socket.display()))
            },
            "expected a whole path",
        ),
        ConfigRule::custom_check(
            "web.user_header",
            |c| c.user_header.parse::<http::HeaderName>().is_err().then(|| format!("{:?}", c.user_header)),
            "expected the name of a header",
        ),
    ];
}
