//! For unit tests only.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
