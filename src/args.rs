//! The grammar of the command line, from which clap makes the help.

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};

use super::{
    collectives, config, doctor, explain, gaps, generate, history, jobs, nodes, notify, observe, plan, plans,
    profiles, python, rehearse, report, rounds, status, stop_all, web,
};
use infill_agent as agent;
use infill_lab::{advise, simulate};
use infill_present::exit;

/// Fills the idle nodes of a Slurm cluster with malleable deep-learning jobs, without delaying the main
/// queue.
#[derive(Debug, Parser)]
#[command(name = "infill", version, after_help = exit::EXIT_CODE_HELP, max_term_width = 100)]
pub struct Cli {
    /// Configuration file [default: /etc/infill/infill.toml]
    #[arg(long, global = true, env = "INFILL_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// The daemon's URL [default: agent.url of the configuration]
    #[arg(long, global = true, env = "INFILL_URL", value_name = "URL", hide_env_values = true)]
    pub url: Option<String>,
    /// Log more to stderr; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// The subcommand
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The subcommands. Their doc comments are the help texts.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the daemon
    Serve,
    /// In a batch script: run a training command as a malleable job
    Run(Box<agent::RunArgs>),
    /// Without Slurm: try whether a training command saves, exits and goes on at another size, as a
    /// malleable job must
    Rehearse(Box<rehearse::RehearseCommand>),
    /// In a wing: serve a malleable job on more nodes (infill starts this itself)
    Worker(agent::WorkerArgs),
    /// In a batch script, after `infill run`: end the script when the main queue needs its node (infill
    /// starts this itself)
    #[command(hide = true)]
    Sentry(agent::SentryArgs),
    /// On a further node of a main job that infill extends: run the command (infill starts this itself)
    #[command(hide = true)]
    OwnNode(agent::OwnNodeArgs),
    /// Show the state of the cluster and of infill, once or live
    Status(status::StatusArgs),
    /// Print a link to a page that shows nodes and jobs in a browser, or end the sessions of browsers
    Web(web::WebArgs),
    /// List the gaps: nodes that the main queue does not use now, and until when. Or show how long the gaps
    /// in a log last
    Gaps(gaps::GapsArgs),
    /// List the nodes of infill's partition, with the failures of malleable jobs on them
    Nodes(nodes::NodesArgs),
    /// List the malleable jobs
    Jobs(jobs::JobsArgs),
    /// Watch Slurm without changing anything, and say what infill would have harvested
    Observe(Box<observe::ObserveArgs>),
    /// Show what a round would do now, without doing it
    Plan(plan::PlanArgs),
    /// List past rounds, with their plans and how good these were
    Rounds(rounds::RoundsArgs),
    /// Show the effect of lending idle nodes: main jobs' waits, and node-hours by user and by use
    Report(report::ReportArgs),
    /// Explain why a job has its nodes or a node its job, now or at an earlier moment
    Explain(explain::ExplainArgs),
    /// Show how jobs scale: measurements, and the curves fitted to them
    Profiles(profiles::ProfilesArgs),
    /// Read or suggest files of execution plans, for `infill run --plans`
    Plans(plans::PlansArgs),
    /// Measure how long collectives take on the nodes of a job, or manage the site's table of these times
    Collectives(collectives::CollectivesArgs),
    /// Install infill's package for Python programs
    Python(python::PythonArgs),
    /// Import ended jobs from Slurm's accounting, or show how well the run times of a log's jobs can be
    /// predicted
    History(history::HistoryArgs),
    /// Show what infill would learn about a job whose throughput is known, and how accurately
    Advise(advise::AdviseArgs),
    /// Simulate several policies on a machine's log, and show how much idle time each would use
    Simulate(Box<simulate::SimulateArgs>),
    /// Stop starting and growing jobs; running jobs continue
    Pause,
    /// Return to work as configured, after `pause` or `drain`
    Resume,
    /// Save and park all malleable jobs
    Drain,
    /// Take all malleable jobs off their nodes, even without the daemon
    StopAll(stop_all::StopAllArgs),
    /// Test whether notices reach the receivers in the configuration
    Notify(notify::NotifyArgs),
    /// Check the site for known problems, and say how to fix them
    Doctor(doctor::DoctorArgs),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print the completions of a shell
    Completions(generate::CompletionsArgs),
    /// Print the man page, or write all of them into a directory
    Man(generate::ManArgs),
}

impl CliCommand {
    /// The log level without `-v` and `INFILL_LOG`. Commands that run for long log what they do.
    pub fn log_level(&self) -> &'static str {
        match self {
            CliCommand::Serve | CliCommand::Run(_) | CliCommand::Worker(_) => "info",
            _ => "warn",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn kind(line: &str) -> Option<ErrorKind> {
        Cli::try_parse_from(line.split(' ')).err().map(|e| e.kind())
    }

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn valid_command_lines_parse() {
        for line in [
            "infill serve",
            "infill rehearse -- python train.py",
            "infill rehearse --sizes 1,2,1 --train-secs 1 --start-secs 9 --grace 5 --json -- python train.py --json",
            "infill run -- python train.py --config x -h",
            "infill status --watch --interval 2 --url http://x:1",
            "infill jobs -h -o %i -u alice,bob -j 1,2 -n n1",
            "infill web",
            "infill web --revoke",
            "infill web --revoke bob",
            "infill report --month 2026-10 --by user --csv",
            "infill report --since now-7days --json",
            "infill gaps -a --json",
            "infill nodes -n n1 --json",
            "infill gaps --log kth.swf.gz --log-format swf --procs-per-node 2 --nodes 100 --json",
            "infill gaps --log sacct.txt --unit gpu --gpus-per-node 8",
            "infill gaps --idle summit.csv.xz",
            "infill simulate --log kth.swf --curves a.csv --policy infill,bound -h -o %p|%e --html out.html",
            "infill simulate --machine 8x8:a800 --workload j.csv --plans p.csv --facts f.csv --restart 260 --speed-up 4 --json",
            "infill simulate --machine 468x1 --workload h.csv --order fcfs,gittins --stop 300 --mix 50 --json",
            "infill simulate --machine 29x4:a100,7x16:v100 --workload j.csv --plans p.csv --scale-work 0.2 --secs 150000 -h",
            "infill plan --local --json",
            "infill explain 12",
            "infill explain n7",
            "infill explain 12_3",
            "infill run --profile-by layers,hidden -- python train.py --layers=3 --hidden=64",
            "infill explain 12 --at now-10minutes",
            "infill explain n7 --json --at 2026-11-20T22:10",
            "infill history check --log h.csv.gz --train 0.3 --rows 9000 --seed 2 --json",
            "infill history import",
            "infill history import --since now-90days --json",
            "infill history import --from - --since 2026-01-01",
            "infill history forget --user ann --json",
            "infill rounds",
            "infill rounds -h -o %t|%s -n 1000 --before 22:10",
            "infill rounds --json --limit 5",
            "infill profiles",
            "infill profiles -h -o %n -u alice,bob -n bert --node-type a100 --exec-plan tp2",
            "infill plans check plans.toml -o %p --workers-per-node 4 --nodes 1-8",
            "infill plans check plans.toml --nproc-per-node 4",
            "infill plans suggest --params 1500 --layers 48 --hidden 1600 --sequence 1024 --batch 64 --nodes 1-8",
            "infill profiles list --me --json",
            "infill profiles show bert --svg bert.svg",
            "infill profiles show bert --json -u alice",
            "infill profiles show bert --history --json",
            "infill profiles export --csv --me",
            "infill profiles import -",
            "infill profiles forget -n bert --me",
            "infill profiles forget --all",
            "infill advise --curve a.csv --noise 0.1 --seed 7 --max-nodes 64 --json",
            "infill --config a.toml drain",
            "infill config check a.toml",
            "infill completions bash",
            "infill man /tmp",
            "infill notify --test",
            "infill python install",
            "infill python install --python /opt/venv/bin/python --wheel a.whl",
            "infill doctor --json -vv",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
    }

    #[test]
    fn commands_in_the_guides_exist() {
        let guides = [
            include_str!("../README.md"),
            include_str!("../docs/users.md"),
            include_str!("../docs/administrators.md"),
            include_str!("../docs/reference.md"),
            include_str!("../slurm/README.md"),
            include_str!("../contrib/python/README.md"),
        ];
        let named = guides.iter().flat_map(|text| text.split('`').skip(1).step_by(2));
        let named: Vec<String> = named
            .filter(|words| words.starts_with("infill "))
            .map(|words| {
                let words: String = words
                    .replace(['[', ']'], "")
                    .split('\'')
                    .enumerate()
                    .map(|(i, part)| if i % 2 == 1 { part.replace(' ', "_") } else { part.to_owned() })
                    .collect();
                words.split_whitespace().collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert!(named.len() > 40, "{named:?}");
        for line in named {
            let wrong =
                matches!(kind(&line), Some(ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument));
            assert!(!wrong, "{line}: {:?}", kind(&line));
        }
    }

    #[test]
    fn an_agent_gets_the_url_from_any_position() {
        for line in ["infill --url http://x:1 run -- c", "infill run --url http://x:1 -- c"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            let CliCommand::Run(mut args) = cli.command else { panic!("{line}") };
            crate::session::CliSession { config: None, url: cli.url }
                .configure_agent(&mut args.common)
                .unwrap();
            assert_eq!(args.common.url.as_deref(), Some("http://x:1"), "{line}");
        }
    }

    #[test]
    fn invalid_command_lines_are_refused() {
        assert_eq!(kind("infill jobs --help"), Some(ErrorKind::DisplayHelp));
        assert_eq!(kind("infill profiles show --help"), Some(ErrorKind::DisplayHelp));
        assert_eq!(kind("infill profiles forget -h"), Some(ErrorKind::DisplayHelp));
        assert_eq!(kind("infill --version"), Some(ErrorKind::DisplayVersion));
        assert_eq!(kind("infill jobs --me -u bob"), Some(ErrorKind::ArgumentConflict));
        assert_eq!(kind("infill jobs -o %"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill jobs -j x"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill profiles forget"), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(kind("infill profiles forget --all -n x"), Some(ErrorKind::ArgumentConflict));
        assert_eq!(kind("infill profiles show"), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(kind("infill advise --curve a.csv --noise -1"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill gaps --log-format swf"), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(kind("infill gaps --log a --idle b"), Some(ErrorKind::ArgumentConflict));
        assert_eq!(
            kind("infill simulate --idle a --curves b --json -o %p"),
            Some(ErrorKind::ArgumentConflict)
        );
        let machine = "infill simulate --workload j.csv --plans p.csv --machine";
        assert_eq!(kind(&format!("{machine} 8")), Some(ErrorKind::ValueValidation));
        assert_eq!(kind(&format!("{machine} 8x8:a --curves c.csv")), Some(ErrorKind::ArgumentConflict));
        assert_eq!(kind(&format!("{machine} 8x8:a --speed-up 0")), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill simulate --machine 8x8:a"), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(
            kind("infill simulate --idle a --curves b --restart 2"),
            Some(ErrorKind::MissingRequiredArgument)
        );
        assert_eq!(kind("infill run --profile-by a,,b -- t"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill explain 12 --at soon"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill history import --since x"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill rounds --before x"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill rounds -n 1001"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill profiles show b --history --svg -"), Some(ErrorKind::ArgumentConflict));
        assert_eq!(kind("infill explain"), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(kind("infill status --interval 0"), Some(ErrorKind::ValueValidation));
        assert_eq!(kind("infill notify"), Some(ErrorKind::MissingRequiredArgument));
        assert_eq!(kind("infill frobnicate"), Some(ErrorKind::InvalidSubcommand));
    }

    #[test]
    fn help_documents_exit_codes_and_fields() {
        let mut command = Cli::command();
        assert!(command.render_long_help().to_string().contains("5  no such job, node, profile or round"));
        let jobs = command.find_subcommand_mut("jobs").unwrap().render_long_help().to_string();
        assert!(jobs.contains("%N  NODELIST"), "{jobs}");
    }
}
