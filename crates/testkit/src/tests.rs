//! Tests of the report that a skipped test makes, which the harness must not capture.

use std::path::Path;
use std::process::{Command, Output};

use super::skips::{NO_SKIPS, SKIPS};
use super::{DATA_VARIABLE, data_files};

const DATA_FILES: [&str; 2] = ["first.csv", "second.csv"];

/// The other tests run this one in a process of its own, without data. In an ordinary run it does nothing.
#[test]
fn skipped_without_data() {
    if std::env::var_os(DATA_VARIABLE).is_some_and(|dir| dir == NOWHERE) {
        assert_eq!(data_files(DATA_FILES), None);
    }
}

/// A folder that does not exist.
const NOWHERE: &str = "/nonexistent/of-this-test";

/// Runs [`skipped_without_data`] with the harness's capture of output on.
fn run_skipped_test(skips: Option<&Path>, no_skips: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::skipped_without_data"]);
    command
        .env(DATA_VARIABLE, NOWHERE)
        .env(NO_SKIPS, no_skips)
        .env_remove(SKIPS)
        .env_remove("RUST_TEST_NOCAPTURE");
    command.envs(skips.map(|path| (SKIPS, path)));
    command.output().unwrap()
}

const LINE: &str = "SKIPPED testkit::tests::skipped_without_data: \
    no /nonexistent/of-this-test/first.csv, no /nonexistent/of-this-test/second.csv; INFILL_DATA names the folder of the data\n";

#[test]
fn a_skipped_test_says_so_in_one_line_and_passes() {
    let output = run_skipped_test(None, "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), LINE);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_skipped_test_adds_its_line_to_the_file_of_skips() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skips");
    for _ in 0..2 {
        assert_eq!(String::from_utf8_lossy(&run_skipped_test(Some(&path), "").stderr), LINE);
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), LINE.repeat(2));
}

#[test]
fn where_skips_are_forbidden_a_skipped_test_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skips");
    let output = run_skipped_test(Some(&path), "1");
    assert!(!output.status.success(), "{output:?}");
    // The harness shows the output of a test that failed.
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains(&format!("{} ({NO_SKIPS} is set)", LINE.trim_end())), "{shown}");
    assert!(!path.exists(), "a failed test must not be listed as skipped");
}
