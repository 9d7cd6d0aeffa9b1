//! The headings of options in the help.

/// Options that every command has, and that come last in its help.
pub const GLOBAL_OPTIONS: &str = "Global options";

pub(super) const SIZE: &str = "Size of the job";
pub(super) const SAVING: &str = "Saving and restarting";
pub(super) const PROCESSES: &str = "Processes on each node";
pub(super) const PROGRESS: &str = "Progress and output";
pub(super) const MEASUREMENTS: &str = "Speed and measurements";
pub(super) const WITHOUT_DAEMON: &str = "Without the daemon";
