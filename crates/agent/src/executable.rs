//! Finds the path of this program. The program starts itself again: in wings, on a main job's other nodes, as
//! a sentry, and when its job step was killed.
//!
//! An upgrade replaces the file while jobs run. Linux then calls the running file
//! `/usr/bin/infill (deleted)`, which cannot be started. So the path is noted when the process starts. It is
//! the name with which the program was called, with its symbolic links, because a link outlives the version
//! that it pointed to.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The text that Linux appends to the name of a file that is gone.
const DELETED: &[u8] = b" (deleted)";

/// This process's own file, for as long as it runs.
const OWN_FILE: &str = "/proc/self/exe";

static OWN_PATH: OnceLock<PathBuf> = OnceLock::new();

/// Remembers the path. Call it when the process starts; later calls change nothing.
pub fn remember_path() {
    if let Ok(path) = resolve_own_path() {
        OWN_PATH.get_or_init(|| path);
    }
}

/// The path with which this program is started on other nodes.
///
/// # Errors
/// When `/proc` does not show the file of this process.
pub(crate) fn program_path() -> io::Result<PathBuf> {
    OWN_PATH.get().map_or_else(resolve_own_path, |path| Ok(path.clone()))
}

/// The path with which this program is started on this node. If the file is gone and has not been replaced,
/// it is the file that this process still runs.
///
/// # Errors
/// As [`program_path`].
pub(crate) fn program_path_here() -> io::Result<PathBuf> {
    let path = program_path()?;
    Ok(if is_program(&path) { path } else { PathBuf::from(format!("/proc/{}/exe", std::process::id())) })
}

fn resolve_own_path() -> io::Result<PathBuf> {
    let called = std::env::args_os().next().unwrap_or_default();
    let search = std::env::var_os("PATH").unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    let own = std::fs::metadata(OWN_FILE)?;
    let named = candidate_paths(&called, &search, &here)
        .into_iter()
        // A name below `/proc` is valid only on this node, and only while another process runs.
        .filter(|path| !path.starts_with("/proc"))
        .find(|path| {
            std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
        });
    named.map_or_else(|| std::env::current_exe().map(strip_deleted_mark), Ok)
}

/// The paths at which a program that was called with this name may be, in the order of a shell's search.
fn candidate_paths(called: &OsString, search: &OsString, here: &Path) -> Vec<PathBuf> {
    if called.as_bytes().contains(&b'/') {
        return vec![here.join(called)];
    }
    std::env::split_paths(search).map(|dir| here.join(dir).join(called)).collect()
}

/// The path that a deleted file had; any other path as it is.
fn strip_deleted_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(DELETED) {
        Some(before) if !path.exists() => PathBuf::from(OsString::from_vec(before.to_vec())),
        _ => path,
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_directory_is_looked_for_in_path() {
        let here = Path::new("/home/alice");
        let found = |called: &str| candidate_paths(&called.into(), &"/usr/local/bin:bin".into(), here);
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(found("infill"), paths(&["/usr/local/bin/infill", "/home/alice/bin/infill"]));
        assert_eq!(found("./infill"), paths(&["/home/alice/./infill"]));
        assert_eq!(found("/opt/infill/infill"), paths(&["/opt/infill/infill"]));
    }

    #[test]
    fn a_file_that_was_replaced_has_its_old_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("infill");
        let marked = dir.path().join("infill (deleted)");
        assert_eq!(strip_deleted_mark(marked.clone()), path);
        assert_eq!(strip_deleted_mark(path.clone()), path);
        // A program may have such a name.
        std::fs::write(&marked, "").unwrap();
        assert_eq!(strip_deleted_mark(marked.clone()), marked);
    }

    #[test]
    fn only_what_can_be_executed_is_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("infill");
        assert!(!is_program(&path));
        std::fs::write(&path, "").unwrap();
        assert!(!is_program(&path));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_program(&path));
        assert!(!is_program(dir.path()));
    }

    #[test]
    fn this_process_knows_its_program() {
        assert!(is_program(&program_path().unwrap()));
        assert_eq!(program_path_here().unwrap(), program_path().unwrap());
    }
}
