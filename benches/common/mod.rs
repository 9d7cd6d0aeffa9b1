//! Code that the benches share.

use std::path::PathBuf;

/// The folder of logs and scaling tables that are not part of this repository: `INFILL_DATA`, else the folder
/// beside the repository. Returns `None`, with a message on stderr, when it does not exist.
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

/// Peak memory of the process so far, KiB, as the kernel counts it. It includes what the solver allocates
/// outside of Rust's allocator.
#[allow(dead_code, reason = "not every bench needs all of this")]
pub fn most_resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
