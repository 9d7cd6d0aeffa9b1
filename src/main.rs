//! The `infill` program: the command line, with a file for each subcommand.

mod args;
mod client;
mod collectives;
mod command;
mod command_line;
mod config;
mod control;
mod doctor;
mod explain;
mod gaps;
mod generate;
mod help;
mod history;
mod jobs;
mod logging;
mod misplaced_options;
mod nodes;
mod notify;
mod observe;
mod plan;
mod plans;
mod profiles;
mod proofs;
mod python;
#[cfg(test)]
mod reference_pages;
mod rehearse;
mod report;
mod rounds;
#[cfg(test)]
mod samples;
mod session;
mod settings_page;
mod status;
mod stop_all;
mod summary;
#[cfg(test)]
mod tests;
mod watch;
mod web;

use std::future::Future;
use std::process::ExitCode;

use clap::error::ErrorKind;

use args::{Cli, CliCommand};
use infill_daemon::listen_socket::{self, PassedSockets};
use infill_present::exit::{self, CommandFailure, CommandResult, ProgramExit};
use infill_slurm::SlurmError;
use session::CliSession;

fn main() -> ExitCode {
    ExitCode::from(run_program())
}

/// Runs the program and returns its exit code.
fn run_program() -> u8 {
    let cli = match command_line::parse_words(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    logging::start_logging(cli.verbose, cli.command.log_level());
    match dispatch_command(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("infill: {failure}");
            failure.exit.code()
        }
    }
}

/// Prints clap's message and returns the exit code: success for help and version, else wrong usage.
fn report_usage(error: &clap::Error) -> u8 {
    // If even the message cannot be written, there is nothing left to do.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ProgramExit::Ok.code(),
        _ => ProgramExit::Usage.code(),
    }
}

fn dispatch_command(cli: Cli) -> CommandResult {
    infill_agent::executable::remember_path();
    infill_agent::http_client::install_crypto();
    let session = CliSession { config: cli.config, url: cli.url };
    match cli.command {
        CliCommand::Serve => {
            let passed = listen_socket::take_passed_sockets();
            block_on(async { serve_daemon(&session, passed).await })
        }
        CliCommand::Run(mut args) => {
            let configured = session.configure_agent(&mut args.common);
            block_on(async {
                let code = match configured {
                    Ok(()) => infill_agent::run(*args).await?,
                    Err(error) => infill_agent::run_without_config(*args, error.into()).await?,
                };
                Ok(exit::command_exit_code(code))
            })
        }
        CliCommand::Worker(mut args) => {
            session.configure_agent(&mut args.common)?;
            block_on(async { Ok(exit::command_exit_code(infill_agent::worker(args).await?)) })
        }
        CliCommand::Rehearse(args) => block_on(rehearse::run(*args)),
        CliCommand::Sentry(args) => {
            block_on(async { Ok(exit::command_exit_code(infill_agent::run_sentry(args).await?)) })
        }
        CliCommand::OwnNode(args) => {
            block_on(async { Ok(exit::command_exit_code(infill_agent::run_own_node(args).await?)) })
        }
        CliCommand::Status(args) => block_on(status::run(args, &session)),
        CliCommand::Web(args) => block_on(web::run(args, &session)),
        CliCommand::Gaps(args) => block_on(gaps::run(args, &session)),
        CliCommand::Nodes(args) => block_on(nodes::run(args, &session)),
        CliCommand::Jobs(args) => block_on(jobs::run(args, &session)),
        CliCommand::Observe(args) => block_on(observe::run(*args, &session)),
        CliCommand::Plan(args) => block_on(plan::run(args, &session)),
        CliCommand::Plans(args) => plans::run(args),
        CliCommand::Collectives(args) => block_on(collectives::run(args, &session)),
        CliCommand::Python(args) => python::run(&args),
        CliCommand::Rounds(args) => block_on(rounds::run(args, &session)),
        CliCommand::Report(args) => block_on(report::run(args, &session)),
        CliCommand::Explain(args) => block_on(explain::run(args, &session)),
        CliCommand::Profiles(args) => block_on(profiles::run(args, &session)),
        CliCommand::History(args) => block_on(history::run(args, &session)),
        CliCommand::Advise(args) => infill_lab::advise::run(&args, session.config.as_deref()),
        CliCommand::Simulate(args) => infill_lab::simulate::run(&args, session.config.as_deref()),
        CliCommand::Pause => block_on(control::run(control::ControlOrder::Pause, &session)),
        CliCommand::Resume => block_on(control::run(control::ControlOrder::Resume, &session)),
        CliCommand::Drain => block_on(control::run(control::ControlOrder::Drain, &session)),
        CliCommand::StopAll(args) => block_on(stop_all::run(args, &session)),
        CliCommand::Notify(_) => block_on(notify::run(&session)),
        CliCommand::Doctor(args) => block_on(doctor::run(args, &session)),
        CliCommand::Config(command) => config::run(command, &session),
        CliCommand::Completions(args) => generate::run_completions(&args, &mut help::grammar()),
        CliCommand::Man(args) => generate::run_man(&args, help::grammar()),
    }
}

async fn serve_daemon(session: &CliSession, passed: PassedSockets) -> CommandResult {
    infill_daemon::serve::run_daemon(session.load_config()?, passed).await.map_err(daemon_failure)?;
    Ok(ProgramExit::Ok.code())
}

/// Gives a failure that Slurm's denial caused its own exit code.
fn daemon_failure(error: anyhow::Error) -> CommandFailure {
    if error.chain().any(|cause| matches!(cause.downcast_ref(), Some(SlurmError::Denied { .. }))) {
        ProgramExit::Denied.caused_by(error)
    } else {
        error.into()
    }
}

fn block_on(work: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    // A blocking thread that is still solving or reading must not keep the process alive.
    runtime.shutdown_background();
    outcome
}
