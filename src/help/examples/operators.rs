//! Examples of the commands for operators.

use super::entry::{CommandExamples, example};

/// These examples, by command.
pub const EXAMPLES: &[CommandExamples] = &[
    CommandExamples {
        command: "infill doctor",
        examples: &[
            example("As the daemon's user: everything, with the commands that fix it", "infill doctor"),
            example("Only what needs attention", "infill doctor --quiet"),
        ],
    },
    CommandExamples {
        command: "infill config",
        examples: &[
            example("Check the file before a restart", "infill config check /etc/infill/infill.toml"),
            example("The settings in effect, without passwords", "infill config show"),
            example("A commented file with all keys", "infill config default > infill.toml"),
        ],
    },
    CommandExamples {
        command: "infill config check",
        examples: &[
            example("The file in use", "infill config check"),
            example("A file before it is installed", "infill config check infill.toml"),
        ],
    },
    CommandExamples {
        command: "infill config show",
        examples: &[
            example("The settings in effect, without passwords", "infill config show"),
            example("The same as JSON", "infill config show --json"),
        ],
    },
    CommandExamples {
        command: "infill config default",
        examples: &[
            example("A commented file with all keys", "infill config default"),
            example("As a start for your own", "infill config default > infill.toml"),
        ],
    },
    CommandExamples {
        command: "infill nodes",
        examples: &[
            example("All nodes of infill's partition", "infill nodes"),
            example("Nodes that fail, or that infill refuses", "infill nodes --bad"),
            example("Names and reasons of two nodes", "infill nodes -n n17,n18 -o '%N %r'"),
        ],
    },
    CommandExamples {
        command: "infill pause",
        examples: &[
            example("Before a maintenance: let running jobs continue, start nothing", "infill pause"),
            example("Who gave the order, and when", "infill status"),
        ],
    },
    CommandExamples {
        command: "infill resume",
        examples: &[
            example("After the maintenance", "infill resume"),
            example("Whether it works again", "infill status"),
        ],
    },
    CommandExamples {
        command: "infill drain",
        examples: &[
            example("Let all jobs save and wait in the queue", "infill drain"),
            example("How many still hold nodes", "infill status"),
        ],
    },
    CommandExamples {
        command: "infill stop-all",
        examples: &[
            example("Drain, and use Slurm's commands if the daemon does not answer", "infill stop-all"),
            example("At once, without asking the daemon", "infill stop-all --now"),
            example("Only print what would be run", "infill stop-all --dry-run"),
        ],
    },
    CommandExamples {
        command: "infill notify",
        examples: &[
            example("As the daemon's user: send a test notice", "infill notify --test"),
            example("With a file that is not installed yet", "infill --config new.toml notify --test"),
        ],
    },
    CommandExamples {
        command: "infill collectives",
        examples: &[
            example("In a job: measure", "infill collectives measure --out table.csv"),
            example(
                "As one of `daemon.admins`: give the daemon the table",
                "infill collectives import table.csv --node-type a100",
            ),
            example("What the daemon knows", "infill collectives show"),
        ],
    },
    CommandExamples {
        command: "infill collectives measure",
        examples: &[
            example(
                "In a malleable job, on four GPUs of each node",
                "infill run --workers-per-node 4 -- infill collectives measure --out table.csv",
            ),
            example("Only tensors of 1 and 16 MiB", "infill collectives measure --bytes 1M,16M"),
        ],
    },
    CommandExamples {
        command: "infill collectives import",
        examples: &[
            example("A table from nodes with a100", "infill collectives import table.csv --node-type a100"),
            example(
                "For a whole type, as `infill nodes` prints it",
                "infill collectives import table.csv --node-type gpu:a100:4/cpu64",
            ),
        ],
    },
    CommandExamples {
        command: "infill collectives show",
        examples: &[
            example("All tables", "infill collectives show"),
            example("One node type, as JSON", "infill collectives show --node-type a100 --json"),
        ],
    },
];
