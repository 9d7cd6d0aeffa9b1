//! Helpers that unit tests of several crates share: sample records, a stopped clock, certificates, and how
//! tests are skipped or scaled.

pub mod certificates;
pub mod clock;
pub mod effort;
pub mod goldens;
pub mod samples;
pub mod skips;
#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use infill_model::{EndedJob, JobId, UnixTime};

/// Variable that names the folder of the logs and tables that are not part of this repository.
const DATA_VARIABLE: &str = "INFILL_DATA";

/// A file of the folder that `INFILL_DATA` names, or of `shared/data` beside this repository. `None` if the
/// file is missing: the test is then reported as skipped.
pub fn data_file(name: &str) -> Option<PathBuf> {
    let [path] = data_files([name])?;
    Some(path)
}

/// Like [`data_file`], for a test that needs several files. `None` if any of them is missing.
pub fn data_files<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let dir = std::env::var_os(DATA_VARIABLE).map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let paths = names.map(|name| dir.join(name));
    let missing: Vec<String> =
        paths.iter().filter(|p| !p.exists()).map(|p| p.display().to_string()).collect();
    if missing.is_empty() {
        return Some(paths);
    }
    skips::skip_test(&format!("no {}; {DATA_VARIABLE} names the folder of the data", missing.join(", no ")));
    None
}

/// Makes an executable shell script.
///
/// A child process writes it. Any process that another test's thread forks inherits the files that this
/// process has open for writing, and such a file cannot be executed meanwhile ("text file busy").
pub fn write_script(path: impl AsRef<Path>, body: &str) -> PathBuf {
    let path = path.as_ref();
    let mut child = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    write!(child.stdin.take().unwrap(), "#!/bin/sh\n{body}\n").unwrap();
    assert!(child.wait().unwrap().success());
    path.to_owned()
}

/// A job of user alice that completed at `ended_at`.
pub fn ended_job(job: JobId, ended_at: UnixTime) -> EndedJob {
    EndedJob {
        job,
        submitted_at: UnixTime(0),
        ended_at,
        user: "alice".to_owned(),
        account: String::new(),
        name: "train".to_owned(),
        command_hash: String::new(),
        min_nodes: 1,
        max_nodes: 4,
        gpus_per_node: 0,
        limit_secs: None,
        work_secs: 60.0,
        said_secs: None,
        flat_secs: None,
        samples: 0.0,
        secs: 30.0,
        exit_code: Some(0),
        why: "completed".to_owned(),
    }
}
