//! `[notify]`: who is told of what administrators should know.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::rule::ConfigRule;
use super::secrets::{not_absolute, read_secret};

/// `[notify]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyConfig {
    /// A program and its arguments, which gets the event on its standard input; empty for none.
    pub command: Vec<String>,
    /// An address that the event is posted to; empty for none.
    pub url: String,
    /// File with that address, where it is a secret; empty for none.
    pub url_file: PathBuf,
}

/// Whether notices can be posted there.
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
            "expected a program by its whole path, and its arguments",
        ),
        ConfigRule::custom_check(
            "notify.url",
            |c| (!c.url.is_empty() && !is_address(&c.url)).then(|| format!("{:?}", c.url)),
            "expected http://… or https://…",
        ),
        ConfigRule::custom_check("notify.url_file", |c| not_absolute(&c.url_file), "expected a whole path"),
        ConfigRule::custom_check(
            "notify.url_file",
            |c| {
                let both = !c.url.is_empty() && !c.url_file.as_os_str().is_empty();
                both.then(|| format!("{:?}", c.url_file))
            },
            "notify.url is set, too: expected one of them",
        ),
    ];
}

impl NotifyConfig {
    /// Where notices are posted to: `url`, or what `url_file` holds; empty for nowhere.
    ///
    /// # Errors
    /// When that file cannot be read, others may read it, or it holds no address.
    pub fn notice_url(&self) -> Result<String, ConfigError> {
        if self.url_file.as_os_str().is_empty() {
            return Ok(self.url.clone());
        }
        let key = "notify.url_file";
        let url = read_secret(key, &self.url_file)?;
        let what = "expected http://… or https://…";
        let wrong = || ConfigError::Secret { key, path: self.url_file.clone(), what };
        if is_address(&url) { Ok(url) } else { Err(wrong()) }
    }

    /// Whether anybody is told of anything.
    pub fn is_disabled(&self) -> bool {
        self.command.is_empty() && self.url.is_empty() && self.url_file.as_os_str().is_empty()
    }
}
