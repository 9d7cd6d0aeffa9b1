//! What benches share.

use std::path::PathBuf;

/// The folder of logs and scaling tables that are not part of this repository: `INFILL_DATA`, else the one
/// beside it. `None`, and a word on stderr, where there is none.
#[allow(dead_code, reason = "not every bench needs all of this")]
pub fn data() -> Option<PathBuf> {
    let root = std::env::var_os("INFILL_DATA").map(PathBuf::from);
    let root = root.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data").into());
    if root.is_dir() {
        return Some(root);
    }
    eprintln!("skipped: no data at {} (INFILL_DATA says where)", root.display());
    None
}

/// Most memory that the process has had so far, KiB, by the kernel's book: the solver's too, which is not
/// Rust's.
#[allow(dead_code, reason = "not every bench needs all of this")]
pub fn most_resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
