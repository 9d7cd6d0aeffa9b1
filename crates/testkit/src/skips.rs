//! Tests that cannot run here say so.
//!
//! | variable | what it does |
//! |---|---|
//! | `INFILL_SKIPS` | names a file to which each skipped test adds its line |
//! | `INFILL_TEST_NO_SKIPS` | if set and not empty, a test that cannot run fails |

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// The file that collects the lines of all skipped tests.
pub const SKIPS: &str = "INFILL_SKIPS";

/// Makes a failure of each skipped test.
pub const NO_SKIPS: &str = "INFILL_TEST_NO_SKIPS";

/// Says that the test of this thread is skipped. The reason names what is missing, and the variable that says
/// where it is. The test must return after this call.
///
/// The line goes to stderr itself: the harness captures what `eprintln` writes, and shows it only of tests
/// that fail.
pub fn skip_test(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test without a name");
    let text = format!("SKIPPED {}{name}: {reason}", crate_prefix());
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    assert!(variable(NO_SKIPS).is_none(), "{text} ({NO_SKIPS} is set)");
    let line = text + "\n";
    std::io::stderr().write_all(line.as_bytes()).expect("stderr takes a line");
    if let Some(path) = variable(SKIPS) {
        append_line(Path::new(&path), &line);
    }
}

/// `gaps::` where this is the binary of that crate's unit tests. Binaries of `tests/` have other names.
fn crate_prefix() -> String {
    let binary = std::env::current_exe().unwrap_or_default();
    let name = binary.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.split('-').next().unwrap_or_default();
    name.strip_prefix("infill_").map_or_else(String::new, |name| format!("{name}::"))
}

/// Several processes may add lines at the same moment, so each line is one write.
fn append_line(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|e| panic!("{SKIPS}={}: {e}", path.display()));
}
