//! `[notify]`: how administrators are notified of events.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::rule::ConfigRule;
use super::secrets::{not_absolute, read_secret};

/// `[notify]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyConfig {
    /// A program and its arguments. It gets the event on its standard input. Empty for none.
    pub command: Vec<String>,
    /// A URL to which the event is posted; empty for none.
    pub url: String,
    /// A file with that URL, if it is secret; empty for none.
    pub url_file: PathBuf,
}

/// Whether events can be posted to this URL.
fn is_address(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
}

impl NotifyConfig {
    pub(super) const RULES: &[ConfigRule<Self>] = &[
        ConfigRule::custom_check(
            "notify.command",
            |c| {
                let program = c.command.first()?;
                (!program.starts_with('/')).then(|| format!("{program:?}"))
            },
            "expected a program by its absolute path, and its arguments",
        ),
        ConfigRule::custom_check(
            "notify.url",
            |c| (!c.url.is_empty() && !is_address(&c.url)).then(|| format!("{:?}", c.url)),
            "expected http://… or https://…",
        ),
        ConfigRule::custom_check(
            "notify.url_file",
            |c| not_absolute(&c.url_file),
            "expected an absolute path",
        ),
        ConfigRule::custom_check(
            "notify.url_file",
            |c| {
                let has_both = !c.url.is_empty() && !c.url_file.as_os_str().is_empty();
                has_both.then(|| format!("{:?}", c.url_file))
            },
            "notify.url is also set: expected only one of the two",
        ),
    ];
}

impl NotifyConfig {
    /// The URL to which events are posted: `url`, or the contents of `url_file`. Empty if neither is set.
    ///
    /// # Errors
    /// If the file cannot be read, other users may read it, or it does not hold a URL.
    pub fn notice_url(&self) -> Result<String, ConfigError> {
        if self.url_file.as_os_str().is_empty() {
            return Ok(self.url.clone());
        }
        let key = "notify.url_file";
        let url = read_secret(key, &self.url_file)?;
        if is_address(&url) {
            return Ok(url);
        }
        let what = "expected http://… or https://…";
        Err(ConfigError::Secret { key, path: self.url_file.clone(), what })
    }

    /// Whether no notifications are sent at all.
    pub fn is_disabled(&self) -> bool {
        self.command.is_empty() && self.url.is_empty() && self.url_file.as_os_str().is_empty()
    }
}
