//! `[notify]`: who is told of what administrators should know.

use serde::{Deserialize, Serialize};

use super::rule::Rule;

/// `[notify]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyConfig {
    /// A program and its arguments, which gets the event on its standard input; empty for none.
    pub command: Vec<String>,
    /// An address that the event is posted to; empty for none.
    pub url: String,
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
            |c| {
                let uri = c.url.parse::<http::Uri>();
                let is_url = uri.is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
                (!c.url.is_empty() && !is_url).then(|| format!("{:?}", c.url))
            },
            "expected http://… or https://…",
        ),
    ];
}
