//! `[notify]`: who is told of what administrators should know.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::rule::Rule;
use super::secrets::not_absolute;

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
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
}

impl NotifyConfig {
    pub(super) const RULES: &[Rule<Self>] = &[
        Rule::other(
            "notify.command",
            |c| {
                let program = c.command.first()?;
                (!program.starts_with('/')).then(|| format!("{program:?}"))
            },
            "expected a program by its whole path, and its arguments",
        ),
        Rule::other(
            "notify.url",
            |c| (!c.url.is_empty() && !is_address(&c.url)).then(|| format!("{:?}", c.url)),
            "expected http://… or https://…",
        ),
        Rule::other("notify.url_file", |c| not_absolute(&c.url_file), "expected a whole path"),
        Rule::other(
            "notify.url_file",
            |c| {
                let both = !c.url.is_empty() && !c.url_file.as_os_str().is_empty();
                both.then(|| format!("{:?}", c.url_file))
            },
            "notify.url is set, too: expected one of them",
        ),
    ];
}
