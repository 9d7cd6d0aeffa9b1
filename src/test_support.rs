//! For unit tests only.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::model::{EndedJob, JobId, UnixTime};

/// A file of the logs and tables that are not part of this repository: in `INFILL_DATA`, else in the folder
/// beside it. `None`, and a word on stderr, where it is not there.
pub fn data(name: &str) -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data");
    let dir = std::env::var_os("INFILL_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let path = dir.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not here (INFILL_DATA says where the data is)", path.display());
    None
}

/// Makes an executable shell script.
///
/// A child process writes it: a file that this process has open for writing is inherited by whatever another
/// test's thread forks at that moment, and cannot be executed meanwhile ("text file busy").
pub fn script(path: impl AsRef<Path>, body: &str) -> PathBuf {
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

/// A job of alice's that has ended.
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
