//! The version of infill's Python package, which a program reports once with its progress.

/// This infill's version. The package of the same version belongs to it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The key of the version in a datagram of progress.
const KEY: &str = "package";

/// Longest version that is believed.
const MAX_VERSION_CHARS: usize = 32;

/// The version in a datagram, if it is another one than this infill's.
pub(crate) fn other_version(datagram: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(datagram).ok()?;
    let mut pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
    let (_, version) = pairs.find(|(key, _)| *key == KEY)?;
    (is_version(version) && version != VERSION).then_some(version)
}

fn is_version(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ".+!-_".contains(c);
    (1..=MAX_VERSION_CHARS).contains(&text.len()) && text.chars().all(is_allowed)
}

/// Warns of a program that uses another version.
pub(crate) fn warn_of_other_version(version: &str) {
    tracing::warn!(
        package = version,
        infill = VERSION,
        "the Python package of the command is of another version than infill; \
         `infill python install` installs the one that belongs to it"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_version_counts() {
        assert_eq!(other_version(b"samples=0 package=0.0.7"), Some("0.0.7"));
        assert_eq!(other_version(b"samples=0 package=9.0.0rc1+local"), Some("9.0.0rc1+local"));
        assert_eq!(other_version(format!("samples=3 package={VERSION}").as_bytes()), None);
        assert_eq!(other_version(b"samples=3 step=7"), None);
    }

    #[test]
    fn nonsense_is_no_version() {
        for said in ["package=", "package=a;b", "package=\u{1b}[2J", "packages=1", "package 1"] {
            assert_eq!(other_version(said.as_bytes()), None, "{said}");
        }
        assert_eq!(other_version(format!("package={}", "1".repeat(33)).as_bytes()), None);
        assert_eq!(other_version(b"package=1.\xff"), None);
    }
}
