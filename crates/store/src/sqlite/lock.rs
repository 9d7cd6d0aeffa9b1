//! One daemon to a file: a lock on a file beside it, which ends with its process however that ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Held for as long as it lives.
pub(super) struct FileLock(File);

impl FileLock {
    /// Takes the lock of the database at `path`; `None` if another process has it.
    pub(super) fn try_acquire(path: &Path) -> io::Result<Option<FileLock>> {
        // Not on the database's own file: on a network file system that would be the kind of lock that SQLite
        // takes.
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(name)?;
        // SAFETY: the descriptor is open as long as `file` lives; flock touches no memory.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Some(FileLock(file)));
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            e => Err(e),
        }
    }
}

impl Drop for FileLock {
    /// Given back in so many words: closing would leave it to a child that was forked meanwhile and has not
    /// become its program yet.
    fn drop(&mut self) {
        // SAFETY: as in `take`. If it fails, closing the file gives the lock back.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}
