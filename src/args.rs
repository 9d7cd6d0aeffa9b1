//! The grammar of the command line, from which clap makes the help.

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};

use super::{
    collectives, config, doctor, explain, gaps, generate, history, jobs, nodes, notify, observe, plan, plans,
    profiles, python, rehearse, report, rounds, status, stop_all, web,
};
use infill_agent as agent;
use infill_agent::GLOBAL_OPTIONS;
use infill_lab::{advise, simulate};

/// Fills the idle nodes of a Slurm cluster with malleable deep-learning jobs, without delaying the main
/// queue.
#[derive(Debug, Parser)]
#[command(name = "infill", version, disable_help_flag = true, max_term_width = 100)]
pub struct Cli {
    /// Configuration file [default: /etc/infill/infill.toml]
    #[arg(long, global = true, env = "INFILL_CONFIG", value_name = "FILE", hide_env_values = true, help_heading = GLOBAL_OPTIONS, display_order = 901)]
    pub config: Option<PathBuf>,
    /// The daemon's URL [default: agent.url of the configuration]
    #[arg(long, global = true, env = "INFILL_URL", value_name = "URL", hide_env_values = true, help_heading = GLOBAL_OPTIONS, display_order = 902)]
    pub url: Option<String>,
    /// Log more to stderr; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = GLOBAL_OPTIONS, display_order = 903)]
    pub verbose: u8,
    /// Print help: -h for the short form, --help for everything
    #[arg(short = 'h', long, global = true, action = ArgAction::Help, help_heading = GLOBAL_OPTIONS, display_order = 904)]
    pub help: Option<bool>,
    /// The subcommand
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The subcommands. The first paragraph of each doc comment is its line in `infill --help`.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run a training command as a malleable job, in a batch script
    Run(Box<agent::RunArgs>),
    /// Try a command without Slurm: does it save, exit and go on?
    ///
    /// A malleable job must save and exit when it gets a signal, and go on at another size.
    Rehearse(Box<rehearse::RehearseCommand>),
    /// List the malleable jobs
    Jobs(jobs::JobsArgs),
    /// Explain why a job has its nodes, or a node its job
    Explain(explain::ExplainArgs),
    /// Show whether all is well: nodes, jobs and problems
    ///
    /// The first line is the answer. It begins with ok, PROBLEM, paused, draining, observing or starting.
    Status(status::StatusArgs),
    /// Print a link to the page that shows nodes and jobs in a browser
    Web(web::WebArgs),
    /// Show how jobs scale: measurements and fitted curves
    Profiles(profiles::ProfilesArgs),
    /// Check or suggest files of execution plans, for `infill run`
    Plans(plans::PlansArgs),
    /// Install infill's package for Python programs
    Python(python::PythonArgs),
    /// Check the site for known problems, and say how to fix them
    Doctor(doctor::DoctorArgs),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// List infill's nodes, and failures of malleable jobs on them
    Nodes(nodes::NodesArgs),
    /// Stop starting and growing jobs; running jobs continue
    Pause,
    /// Return to work as configured, after `pause` or `drain`
    Resume,
    /// Save and park all malleable jobs
    Drain,
    /// Take malleable jobs off their nodes, even without the daemon
    StopAll(stop_all::StopAllArgs),
    /// Test whether notices reach the receivers in the configuration
    Notify(notify::NotifyArgs),
    /// Measure how long collectives take, or manage the site's table
    Collectives(collectives::CollectivesArgs),
    /// Watch Slurm, change nothing, and say what would be harvested
    Observe(Box<observe::ObserveArgs>),
    /// List the nodes that the main queue leaves idle, and how long
    ///
    /// With --log or --idle, show how long the gaps in a log last instead. This needs no daemon.
    Gaps(gaps::GapsArgs),
    /// Show what a round would do now, without doing it
    Plan(plan::PlanArgs),
    /// List past rounds, with their plans and how good these were
    Rounds(rounds::RoundsArgs),
    /// Show the effect on main jobs, and node-hours by user and use
    Report(report::ReportArgs),
    /// Import ended jobs, or test how well run times are predicted
    History(history::HistoryArgs),
    /// Compare policies on a machine's log: what each would harvest
    Simulate(Box<simulate::SimulateArgs>),
    /// Show what infill would learn about a job of known throughput
    Advise(advise::AdviseArgs),
    /// Run the daemon
    Serve,
    /// Serve a malleable job on more nodes; infill starts it itself
    Worker(agent::WorkerArgs),
    /// Print the completions of a shell
    Completions(generate::CompletionsArgs),
    /// Print the man page, or write all of them into a directory
    Man(generate::ManArgs),
    /// End a batch script when the main queue needs its node; infill starts it itself
    #[command(hide = true)]
    Sentry(agent::SentryArgs),
    /// Run the command on a further node of a main job that infill extends; infill starts it itself
    #[command(hide = true)]
    OwnNode(agent::OwnNodeArgs),
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
