//! Checks whether infill can work with the site, from the output of Slurm's commands. The functions are pure.

pub mod accounting;
pub mod cgroups;
pub mod limits;
pub mod partition;
pub mod plugin;
pub mod programs;
pub mod slurm_conf;

/// Whether a value is one of Slurm's words for a setting that is not set.
pub fn is_unset(value: &str) -> bool {
    matches!(value, "" | "(null)" | "N/A" | "None" | "NONE")
}

/// The settings, of a partition or in slurm.conf, for the memory of a job that does not ask for any.
pub const DEFAULT_MEMORY: [&str; 2] = ["DefMemPerCPU", "DefMemPerNode"];

/// Whether a comma-separated list contains this word, in any case.
pub fn list_contains(list: &str, word: &str) -> bool {
    list.split(',').any(|w| w.trim().eq_ignore_ascii_case(word))
}
