//! Keys that older versions took. A file that still has one is read for one more release, with a warning. So
//! an upgrade does not keep the daemon from starting.

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A removed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{section}.{key} was removed in version {since} and does nothing: {advice}")]
pub struct RemovedKey {
    /// The section that had the key.
    pub section: &'static str,
    /// The name of the key in its section.
    pub key: &'static str,
    /// The first version without the key. The next release refuses it.
    pub since: &'static str,
    /// What the administrator should do.
    pub advice: &'static str,
}

/// All removed keys that this release still accepts.
const REMOVED: &[RemovedKey] = &[RemovedKey {
    section: "daemon",
    key: "early_death_secs",
    since: "0.1.0",
    advice: "it never had an effect; delete the line",
}];

/// Blanks out removed keys, so that all other text keeps its position, and returns those keys.
pub(super) fn without_removed(text: &str) -> (String, Vec<RemovedKey>) {
    let mut bytes = text.as_bytes().to_vec();
    let mut found = Vec::new();
    // The caller refuses unparsable text later, with its line.
    let Ok(file) = DeTable::parse(text) else { return (text.to_owned(), found) };
    for removed in REMOVED {
        let Some((key, value)) = lookup(file.get_ref(), removed) else { continue };
        found.push(*removed);
        let line = text[..key.span().start].rfind('\n').map_or(0, |end| end + 1);
        // With `section.key = value`, the whole key is on this line.
        let is_dotted = text[line..key.span().start].trim_end().ends_with('.');
        let start = if is_dotted { line } else { key.span().start };
        for byte in &mut bytes[start..value.span().end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    // Only whole keys and values were blanked out, so the bytes are still valid UTF-8.
    (String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned()), found)
}

/// Parses a file without the removed keys, wherever they are. Its errors have no lines.
pub(super) fn read_without<T: DeserializeOwned>(text: &str, removed_keys: &[RemovedKey]) -> Option<T> {
    let mut file: toml::Table = text.parse().ok()?;
    for removed in removed_keys {
        file.get_mut(removed.section)?.as_table_mut()?.remove(removed.key);
    }
    file.try_into().ok()
}

type TomlEntry<'t> = (&'t Spanned<std::borrow::Cow<'t, str>>, &'t Spanned<DeValue<'t>>);

fn lookup<'t>(file: &'t DeTable<'t>, removed: &RemovedKey) -> Option<TomlEntry<'t>> {
    let (_, section) = file.iter().find(|(name, _)| name.get_ref() == removed.section)?;
    section.get_ref().as_table()?.iter().find(|(name, _)| name.get_ref() == removed.key)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn a_removed_key_gives_a_warning_and_the_rest_of_the_file_counts() {
        let mut warnings = Vec::new();
        for text in [
            "[daemon] # of old\nearly_death_secs = 60.0 # seconds\nmode = \"act\"\n",
            "daemon.early_death_secs = 60.0\ndaemon.mode = \"act\"\n",
            "daemon = { early_death_secs = 60.0, mode = \"act\" }\n",
        ] {
            let (config, removed) = Config::read_text(text, Path::new("x.toml")).unwrap();
            assert_eq!(config.daemon.mode, crate::DaemonMode::Act);
            warnings.extend(removed.iter().map(ToString::to_string));
        }
        warnings.dedup();
        let expected = "daemon.early_death_secs was removed in version 0.1.0 and does nothing: it never had an effect; delete the line";
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn an_error_beside_a_removed_key_is_refused_with_its_line() {
        for (text, line) in [
            ("[daemon]\nearly_death_secs = 60.0\npol = 3\n", "line 3"),
            ("daemon.early_death_secs = \"\u{e4}\"\ndaemon.early_deaths = 1\n", "line 2"),
            ("[gaps]\nearly_death_secs = 60.0\n", "line 2"),
        ] {
            let refused = Config::read_text(text, Path::new("x.toml")).unwrap_err().to_string();
            assert!(refused.contains(line), "{refused}");
        }
    }

    #[test]
    fn no_key_is_both_removed_and_known() {
        for removed in REMOVED {
            let default_file: toml::Table = crate::config::DEFAULT_FILE.parse().unwrap();
            let section = default_file.get(removed.section).and_then(toml::Value::as_table);
            assert!(section.is_none_or(|keys| !keys.contains_key(removed.key)), "{removed}");
        }
    }
}
