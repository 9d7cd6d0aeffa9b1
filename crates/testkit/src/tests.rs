//! A test that cannot run here says so once, past the capture of the harness.

use std::path::Path;
use std::process::{Command, Output};

use super::skips::{NO_SKIPS, SKIPS};
use super::{DATA_VARIABLE, data_files};

const HERE: [&str; 2] = ["first.csv", "second.csv"];

/// Runs in a process of its own, without data. With the data of this machine it has nothing to do.
#[test]
fn skipped_without_data() {
    if std::env::var_os(DATA_VARIABLE).is_some_and(|dir| dir == NOWHERE) {
        assert_eq!(data_files(HERE), None);
    }
}

/// No run of the tests has its data here.
const NOWHERE: &str = "/nonexistent/of-this-test";

/// Runs the test above as the harness runs it, which captures what tests print.
fn skipped(skips: Option<&Path>, no_skips: &str) -> Output {
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
    let output = skipped(None, "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), LINE);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_skipped_test_adds_its_line_to_the_file_of_skips() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skips");
    for _ in 0..2 {
        assert_eq!(String::from_utf8_lossy(&skipped(Some(&path), "").stderr), LINE);
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), LINE.repeat(2));
}

#[test]
fn where_skips_are_forbidden_a_skipped_test_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skips");
    let output = skipped(Some(&path), "1");
    assert!(!output.status.success(), "{output:?}");
    // The harness shows what a failed test said.
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains(&format!("{} ({NO_SKIPS} is set)", LINE.trim_end())), "{shown}");
    assert!(!path.exists(), "it has failed, and was not skipped");
}
