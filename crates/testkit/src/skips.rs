//! Reports of tests that cannot run here.
//!
//! | variable | effect |
//! |---|---|
//! | `INFILL_SKIPS` | names a file to which each skipped test adds its line |
//! | `INFILL_TEST_NO_SKIPS` | if set and not empty, a test that cannot run fails |

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// Variable that names the file to which each skipped test adds its line.
pub const SKIPS: &str = "INFILL_SKIPS";

/// Variable that turns each skipped test into a failure.
pub const NO_SKIPS: &str = "INFILL_TEST_NO_SKIPS";

/// Reports that the test of this thread is skipped. The reason names what is missing, and the variable that
/// says where it is. The test must return after this call.
///
/// The line goes to the standard error stream directly. The harness captures what `eprintln` writes, and
/// shows it only if the test fails.
///
/// # Panics
/// If [`NO_SKIPS`] is set and not empty.
pub fn skip_test(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test without a name");
    let text = format!("SKIPPED {}{name}: {reason}", crate_prefix());
    assert!(non_empty_variable(NO_SKIPS).is_none(), "{text} ({NO_SKIPS} is set)");
    let line = text + "\n";
    std::io::stderr().write_all(line.as_bytes()).expect("stderr takes a line");
    if let Some(path) = non_empty_variable(SKIPS) {
        append_line(Path::new(&path), &line);
    }
}

fn non_empty_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The prefix of the test's name: `gaps::` in the binary of that crate's unit tests. Empty in the binaries of
/// `tests/`, whose names do not begin with `infill_`.
fn crate_prefix() -> String {
    let binary = std::env::current_exe().unwrap_or_default();
    let name = binary.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.split('-').next().unwrap_or_default();
    name.strip_prefix("infill_").map_or_else(String::new, |name| format!("{name}::"))
}

/// Adds the line in one write, because several processes may add lines at the same moment.
fn append_line(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|e| panic!("{SKIPS}={}: {e}", path.display()));
}
