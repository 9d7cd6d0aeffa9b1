//! What Slurm's own commands say about the site, and whether infill can live with it. Pure.

pub mod accounting;
pub mod limits;
pub mod partition;
pub mod plugin;
pub mod programs;
pub mod slurm_conf;

/// Slurm's words for "nothing set".
pub fn is_unset(value: &str) -> bool {
    matches!(value, "" | "(null)" | "N/A" | "None" | "NONE")
}

/// What says how much memory a job gets that does not ask for any, on a partition or in slurm.conf.
pub const DEFAULT_MEMORY: [&str; 2] = ["DefMemPerCPU", "DefMemPerNode"];

/// Whether a comma-separated list contains this word, in any case.
pub fn list_contains(list: &str, word: &str) -> bool {
    list.split(',').any(|w| w.trim().eq_ignore_ascii_case(word))
}
