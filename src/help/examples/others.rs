//! Examples of the commands for analysts, services and packages.

use super::entry::{CommandExamples, example};

/// These examples, by command.
pub const EXAMPLES: &[CommandExamples] = &[
    CommandExamples {
        command: "infill observe",
        examples: &[
            example("Look every 10 s, report every 10 min, until Ctrl-C", "infill observe"),
            example("A week, with a page to leave open", "infill observe --for 7d --html week.html"),
            example(
                "Four nodes, with each main job that would have found one held",
                "infill observe --nodes n[1-4] --events",
            ),
            example(
                "With jobs that scale like yours (columns nodes,throughput)",
                "infill observe --curves curves.csv",
            ),
        ],
    },
    CommandExamples {
        command: "infill gaps",
        examples: &[
            example("Idle nodes now", "infill gaps"),
            example("All nodes, and the main job on each", "infill gaps --all -o '%N %t %m %r'"),
            example("How long gaps lasted, by Slurm's accounting", "infill gaps --log sacct.txt"),
        ],
    },
    CommandExamples {
        command: "infill plan",
        examples: &[
            example("What the daemon would do now", "infill plan"),
            example("Without a daemon, from Slurm alone", "infill plan --local"),
        ],
    },
    CommandExamples {
        command: "infill rounds",
        examples: &[
            example("The last rounds", "infill rounds"),
            example("Five rounds before ten past ten at night", "infill rounds --limit 5 --before 22:10"),
        ],
    },
    CommandExamples {
        command: "infill report",
        examples: &[
            example("The last whole month", "infill report"),
            example(
                "October by user, as a page to print",
                "infill report --month 2026-10 --by user --html october.html",
            ),
            example("The last week, as JSON", "infill report --since now-7days --json"),
        ],
    },
    CommandExamples {
        command: "infill history",
        examples: &[
            example("Teach infill how long jobs of this site last", "infill history import"),
            example(
                "How well that can be predicted, without a daemon",
                "infill history check --log jobs.csv",
            ),
        ],
    },
    CommandExamples {
        command: "infill history import",
        examples: &[
            example("400 days of Slurm's accounting", "infill history import"),
            example("A file that sacct has written", "infill history import --from sacct.txt"),
        ],
    },
    CommandExamples {
        command: "infill history forget",
        examples: &[
            example("All that names ann, after ann's last job has ended", "infill history forget --user ann"),
            example("The same, with the numbers as JSON", "infill history forget --user ann --json"),
        ],
    },
    CommandExamples {
        command: "infill history check",
        examples: &[
            example(
                "Train on the first 30 % of the jobs, and predict the others",
                "infill history check --log jobs.csv",
            ),
            example(
                "The first 10,000 jobs, as JSON",
                "infill history check --log jobs.csv.gz --rows 10000 --json",
            ),
        ],
    },
    CommandExamples {
        command: "infill simulate",
        examples: &[
            example(
                "Ten endless jobs in the gaps of Slurm's accounting",
                "infill simulate --log sacct.txt --curves curves.csv",
            ),
            example(
                "Two policies and the bound, as a page with figures",
                "infill simulate --log kth.swf --curves curves.csv --policy infill,freetrain,bound --html result.html",
            ),
            example(
                "A machine without a main queue: 8 nodes of 8 GPUs",
                "infill simulate --machine 8x8:a800 --workload jobs.csv --plans plans.csv",
            ),
        ],
    },
    CommandExamples {
        command: "infill advise",
        examples: &[
            example(
                "Which sizes infill would measure, and how well it then knows the curve",
                "infill advise --curve curve.csv --draw",
            ),
            example("The same for execution plans", "infill advise --plans plans.csv --model gpt2"),
        ],
    },
    CommandExamples {
        command: "infill serve",
        examples: &[
            example("As the unit infill.service does", "infill serve"),
            example("With another file and a detailed log", "infill serve --config test.toml -v"),
        ],
    },
    CommandExamples {
        command: "infill completions",
        examples: &[
            example("For bash, until the shell ends", "eval \"$(infill completions bash)\""),
            example(
                "For all users of fish",
                "infill completions fish > /usr/share/fish/vendor_completions.d/infill.fish",
            ),
        ],
    },
    CommandExamples {
        command: "infill man",
        examples: &[
            example("The page of infill itself", "infill man | man -l -"),
            example("All pages, into a folder", "infill man man1"),
        ],
    },
];
