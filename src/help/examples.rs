//! Examples of all commands, for the end of their help.

use std::fmt;

use infill_present::table::HELP_WIDTH;

/// One example.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// What it does, as a comment of a shell.
    pub purpose: &'static str,
    /// The line to type.
    pub line: &'static str,
}

/// The examples of one command.
#[derive(Clone, Copy, Debug)]
pub struct CommandExamples {
    /// The words that name the command: `infill profiles show`.
    pub command: &'static str,
    /// The examples, the most common first.
    pub examples: &'static [Example],
}

impl CommandExamples {
    /// The examples of the command that these words name.
    pub fn of_command(path: &str) -> Option<&'static CommandExamples> {
        EXAMPLES.iter().find(|entry| entry.command == path)
    }
}

impl fmt::Display for CommandExamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Examples:")?;
        for example in self.examples {
            write!(f, "\n  # {}\n{}", example.purpose, broken_line(example.line))?;
        }
        Ok(())
    }
}

/// A command that a terminal of 80 columns shows as it is typed: a long one goes on after a backslash.
fn broken_line(line: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        let width = word.chars().count();
        if column == 0 {
            text.push_str("  ");
            column = 2;
        } else if column + 1 + width + 2 > HELP_WIDTH {
            text.push_str(" \\\n      ");
            column = 6;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text
}

/// An example, in the order in which it is read.
const fn example(purpose: &'static str, line: &'static str) -> Example {
    Example { purpose, line }
}

/// The examples of all commands.
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
            example("What is known of my programs", "infill profiles --me"),
            example("The curve of one program", "infill profiles show bert"),
            example("Forget it, because the program has changed", "infill profiles forget -n bert --me"),
        ],
    },
    CommandExamples {
        command: "infill profiles list",
        examples: &[
            example("What is known of my programs", "infill profiles list --me"),
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
    CommandExamples {
        command: "infill doctor",
        examples: &[
            example("As the daemon's user: everything, with the commands that mend it", "infill doctor"),
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
                "As an administrator: give the daemon the table",
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
    CommandExamples {
        command: "infill observe",
        examples: &[
            example("Look every 10 s, report every 10 min, until Ctrl-C", "infill observe"),
            example(
                "One report on a day of two partitions, as JSON",
                "infill observe -p gpu,cpu --for 24h --json",
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
