//! Keys that older versions took. A file that still has one is read, with a warning, for one more release:
//! an upgrade must not keep the daemon from starting.

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{section}.{key} is gone since version {since} and does nothing: {advice}")]
pub struct RemovedKey {
    /// The section.
    pub section: &'static str,
    /// The key in it.
    pub key: &'static str,
    /// The first version without it. The next release refuses it.
    pub since: &'static str,
    /// What to do.
    pub advice: &'static str,
}

/// All that the present release still takes.
const REMOVED: &[RemovedKey] = &[RemovedKey {
    section: "daemon",
    key: "early_death_secs",
    since: "0.1.0",
    advice: "it steered nothing; delete the line",
}];

/// The text without removed keys, in which all else stands where it stood, and these keys.
pub(super) fn without_removed(text: &str) -> (String, Vec<RemovedKey>) {
    let mut bytes = text.as_bytes().to_vec();
    let mut found = Vec::new();
    // What cannot be parsed is refused afterwards, with its line.
    let Ok(file) = DeTable::parse(text) else { return (text.to_owned(), found) };
    for removed in REMOVED {
        let Some((key, value)) = lookup(file.get_ref(), removed) else { continue };
        found.push(*removed);
        let line = text[..key.span().start].rfind('\n').map_or(0, |end| end + 1);
        // `section.key = value` is all on this line.
        let dotted = text[line..key.span().start].trim_end().ends_with('.');
        let start = if dotted { line } else { key.span().start };
        for byte in &mut bytes[start..value.span().end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    // Whole keys and values were blotted out, so it is text as before.
    (String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned()), found)
}

/// What a file says besides removed keys, wherever they stand. Its errors know no lines.
pub(super) fn read_without<T: DeserializeOwned>(text: &str, found: &[RemovedKey]) -> Option<T> {
    let mut file: toml::Table = text.parse().ok()?;
    for removed in found {
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
    fn a_removed_key_is_told_and_the_rest_of_the_file_holds() {
        let mut told = Vec::new();
        for text in [
            "[daemon] # of old\nearly_death_secs = 60.0 # seconds\nmode = \"act\"\n",
            "daemon.early_death_secs = 60.0\ndaemon.mode = \"act\"\n",
            "daemon = { early_death_secs = 60.0, mode = \"act\" }\n",
        ] {
            let (config, removed) = Config::read_text(text, Path::new("x.toml")).unwrap();
            assert_eq!(config.daemon.mode, crate::DaemonMode::Act);
            told.extend(removed.iter().map(ToString::to_string));
        }
        told.dedup();
        let said = "daemon.early_death_secs is gone since version 0.1.0 and does nothing: it steered nothing; delete the line";
        assert_eq!(told, [said]);
    }

    #[test]
    fn what_is_wrong_beside_a_removed_key_is_refused_with_its_line() {
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
            let known: toml::Table = crate::config::DEFAULT_FILE.parse().unwrap();
            let section = known.get(removed.section).and_then(toml::Value::as_table);
            assert!(section.is_none_or(|keys| !keys.contains_key(removed.key)), "{removed}");
        }
    }
}
