//! The headings of options in the help, and its end.

/// Options that every command has, and that come last in its help.
pub const GLOBAL_OPTIONS: &str = "Global options";

pub(super) const SIZE: &str = "Size of the job";
pub(super) const SAVING: &str = "Saving and restarting";
pub(super) const PROCESSES: &str = "Processes on each node";
pub(super) const PROGRESS: &str = "Progress and output";
pub(super) const MEASUREMENTS: &str = "Speed and measurements";
pub(super) const WITHOUT_DAEMON: &str = "Without the daemon";

/// The end of the help of `infill run`.
pub(super) const ABOUT_COMMANDS: &str = "\
Everything from the first word that is no option is the training command. Write -- before it where one of its words could \
also be an option of infill.";
