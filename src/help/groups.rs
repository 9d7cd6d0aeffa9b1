//! The commands in groups, by who needs them.

/// Commands for the same readers.
pub struct CommandGroup {
    /// For whom they are.
    pub title: &'static str,
    /// The names, the most used first.
    pub commands: &'static [&'static str],
}

/// All commands that help shows.
pub const COMMAND_GROUPS: &[CommandGroup] = &[
    CommandGroup {
        title: "For users",
        commands: &["run", "rehearse", "jobs", "explain", "status", "web", "profiles", "plans", "python"],
    },
    CommandGroup {
        title: "For administrators",
        commands: &[
            "doctor",
            "config",
            "nodes",
            "pause",
            "resume",
            "drain",
            "stop-all",
            "notify",
            "collectives",
        ],
    },
    CommandGroup {
        title: "For analysts",
        commands: &["observe", "gaps", "plan", "rounds", "report", "history", "simulate", "advise"],
    },
    CommandGroup { title: "For services and packages", commands: &["serve", "worker", "completions", "man"] },
];
