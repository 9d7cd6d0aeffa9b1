//! Looks for programs in `PATH`.

use std::ffi::OsStr;

/// Whether a program of this name is in a folder of a `PATH`.
pub(crate) fn is_in_path(path: &OsStr, program: &str) -> bool {
    std::env::split_paths(path).any(|folder| !folder.as_os_str().is_empty() && folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_any_folder_and_never_in_the_present_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tool"), "").unwrap();
        let path = format!("/no/such::{}", dir.path().display());
        assert!(is_in_path(OsStr::new(&path), "tool"));
        assert!(!is_in_path(OsStr::new(&path), "other") && !is_in_path(OsStr::new(":"), "Cargo.toml"));
    }
}
