//! Files of the repository that a test writes, such as generated pages of the documentation.

use std::path::{Path, PathBuf};

/// If this variable is set, tests write their files instead of comparing them.
const UPDATE: &str = "INFILL_UPDATE_GOLDENS";

/// The root of this repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Checks that a file of the repository has this text. `update` is the command that writes it.
///
/// # Panics
///
/// If the file differs, or cannot be written.
#[track_caller]
pub fn check_golden(name: &str, text: &str, update: &str) {
    let path = repository().join(name);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("cannot write {name}: {e}"));
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept != text {
        let differs = kept.lines().zip(text.lines()).position(|(old, new)| old != new);
        let at = differs.unwrap_or_else(|| kept.lines().count().min(text.lines().count()));
        let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
        panic!(
            "{name} is not what the program says, from line {}:\n  file:    {}\n  program: {}\nTo write it: {UPDATE}=1 {update}",
            at + 1,
            line(&kept),
            line(text)
        );
    }
}
