//! Keeps a second daemon off a database: a lock on a file beside it. The lock ends with its process, however
//! that ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The lock, held while this value lives.
pub(super) struct FileLock(File);

impl FileLock {
    /// Takes the lock of the database at `path`; `None` if another process has it.
    pub(super) fn try_acquire(path: &Path) -> io::Result<Option<FileLock>> {
        // Does not lock the database's own file: on a network file system that would be the same kind of lock
        // as SQLite's own.
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
    /// Releases the lock explicitly. Closing the file alone would leave the lock to a child that was forked
    /// meanwhile and has not yet executed its program.
    fn drop(&mut self) {
        // SAFETY: as in `try_acquire`. If it fails, closing the file releases the lock.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}
