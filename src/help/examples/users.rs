//! Examples of the commands for users.

use super::entry::{CommandExamples, example};

/// These examples, by command.
pub const EXAMPLES: &[CommandExamples] = &[
    CommandExamples {
        command: "infill run",
        examples: &[
            example(
                "In a batch script: train on as many nodes as sbatch asked for",
                "infill run -- python train.py",
            ),
            example(
                "On 2 to 8 nodes, with 120 s to save",
                "infill run --nodes 2-8 --grace 120 -- torchrun train.py",
            ),
            example(
                "Read progress from lines such as `step 12 loss 0.7`",
                r"infill run --progress-regex 'step (?<step>\d+)' -- python train.py",
            ),
            example(
                "In a job of the main queue: add up to 16 idle nodes",
                "infill run --extend 1-16 -- python train.py",
            ),
        ],
    },
    CommandExamples {
        command: "infill rehearse",
        examples: &[
            example(
                "Start, save and go on at another size, on this machine",
                "infill rehearse -- python train.py",
            ),
            example(
                "At three sizes, with 30 s of training each",
                "infill rehearse --sizes 1,2,1 --train-secs 30 -- python train.py",
            ),
        ],
    },
    CommandExamples {
        command: "infill jobs",
        examples: &[
            example("My jobs, and why each has its nodes", "infill jobs --me"),
            example("When jobs will end, without a header", "infill jobs --noheader -o '%i %t %E'"),
            example("The jobs on one node, as JSON", "infill jobs -n n17 --json"),
        ],
    },
    CommandExamples {
        command: "infill explain",
        examples: &[
            example("Why job 4711 has its nodes, or waits", "infill explain 4711"),
            example("Why task 3 of an array does", "infill explain 4711_3"),
            example("Who had node n17 ten minutes ago, and why", "infill explain n17 --at now-10minutes"),
        ],
    },
    CommandExamples {
        command: "infill status",
        examples: &[
            example("Is everything all right? The first line says it", "infill status"),
            example("For a monitoring system: one line and its exit code", "infill status --check"),
            example("Live, as a drawing", "infill status --watch"),
        ],
    },
    CommandExamples {
        command: "infill web",
        examples: &[
            example("A link to the page, for one browser", "infill web"),
            example("End the sessions of all my browsers", "infill web --revoke"),
        ],
    },
    CommandExamples {
        command: "infill profiles",
        examples: &[
            example("The measurements of my programs", "infill profiles --me"),
            example("The curve of one program", "infill profiles show bert"),
            example("Forget it, because the program has changed", "infill profiles forget -n bert --me"),
        ],
    },
    CommandExamples {
        command: "infill profiles list",
        examples: &[
            example("The measurements of my programs", "infill profiles list --me"),
            example(
                "Names and measured sizes on one node type",
                "infill profiles list --node-type a100 -o '%n %s'",
            ),
        ],
    },
    CommandExamples {
        command: "infill profiles show",
        examples: &[
            example("The curve in the terminal", "infill profiles show bert"),
            example("The curve as a picture", "infill profiles show bert --svg bert.svg"),
        ],
    },
    CommandExamples {
        command: "infill profiles export",
        examples: &[
            example(
                "Everything, for `infill profiles import` elsewhere",
                "infill profiles export > profiles.json",
            ),
            example("My measured sizes as a table", "infill profiles export --me --csv > sizes.csv"),
        ],
    },
    CommandExamples {
        command: "infill profiles import",
        examples: &[
            example("Profiles of another cluster", "infill profiles import profiles.json"),
            example("From standard input", "infill profiles import -"),
        ],
    },
    CommandExamples {
        command: "infill profiles forget",
        examples: &[
            example("My profiles of one program", "infill profiles forget -n bert --me"),
            example("All profiles on nodes that were replaced", "infill profiles forget --node-type v100"),
        ],
    },
    CommandExamples {
        command: "infill plans",
        examples: &[
            example(
                "A file to start from, for a model of 1.5 billion parameters",
                "infill plans suggest --params 1500 --layers 48 --hidden 1600 --sequence 1024 --batch 64 --nodes 1-8 > plans.toml",
            ),
            example("Whether infill can read a file, and what it offers", "infill plans check plans.toml"),
        ],
    },
    CommandExamples {
        command: "infill plans check",
        examples: &[
            example("The plans of a file, and the sizes of each", "infill plans check plans.toml"),
            example(
                "For nodes with four GPUs and 1 to 8 nodes",
                "infill plans check plans.toml --workers-per-node 4 --nodes 1-8",
            ),
        ],
    },
    CommandExamples {
        command: "infill plans suggest",
        examples: &[
            example(
                "For a model of 1.5 billion parameters",
                "infill plans suggest --params 1500 --layers 48 --hidden 1600 --sequence 1024 --batch 64 --nodes 1-8 > plans.toml",
            ),
            example(
                "For nodes with four GPUs of 80 GiB",
                "infill plans suggest --params 1500 --layers 48 --hidden 1600 --sequence 1024 --batch 64 --nodes 1-8 --gpus-per-node 4 --gpu-memory 80",
            ),
        ],
    },
    CommandExamples {
        command: "infill python",
        examples: &[
            example("Into the active environment", "infill python install"),
            example("For another Python", "infill python install --python ~/venv/bin/python"),
        ],
    },
    CommandExamples {
        command: "infill python install",
        examples: &[
            example("Into the active environment", "infill python install"),
            example("For another Python", "infill python install --python ~/venv/bin/python"),
        ],
    },
];
