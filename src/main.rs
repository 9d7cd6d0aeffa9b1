//! The `infill` program: the command line, one file a subcommand.

mod args;
mod client;
mod collectives;
mod command;
mod config;
mod control;
mod doctor;
mod explain;
mod gaps;
mod generate;
mod history;
mod jobs;
mod logging;
mod nodes;
mod notify;
mod pass;
mod plan;
mod plans;
mod profiles;
mod report;
mod rounds;
#[cfg(test)]
mod samples;
mod session;
mod settings_page;
mod status;
mod summary;
#[cfg(test)]
mod tests;
mod watch;
mod web;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use infill_daemon::listening::{self, Passed};
use infill_present::exit::{self, CommandResult, Exit, Failure};
use infill_slurm::SlurmError;
use session::Session;

fn main() -> ExitCode {
    ExitCode::from(run())
}

/// Runs the program and returns its exit code.
fn run() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    logging::start(cli.verbose, cli.command.log_level());
    match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("infill: {failure}");
            failure.exit.code()
        }
    }
}

/// Help and version are no errors; everything else that clap says is.
fn usage(error: &clap::Error) -> u8 {
    // Nothing is left to do when even that cannot be written.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Ok.code(),
        _ => Exit::Usage.code(),
    }
}

fn dispatch(cli: Cli) -> CommandResult {
    infill_agent::executable::remember();
    infill_agent::http_client::install_crypto();
    let session = Session { config: cli.config, url: cli.url };
    match cli.command {
        Command::Serve => {
            let passed = listening::passed();
            block_on(async { serve(&session, passed).await })
        }
        Command::Run(mut args) => {
            let told = session.tell(&mut args.common);
            block_on(async {
                let code = match told {
                    Ok(()) => infill_agent::run(args).await?,
                    Err(error) => infill_agent::run_untold(args, error.into()).await?,
                };
                Ok(exit::of_command(code))
            })
        }
        Command::Worker(mut args) => {
            session.tell(&mut args.common)?;
            block_on(async { Ok(exit::of_command(infill_agent::worker(args).await?)) })
        }
        Command::Sentry(args) => block_on(async { Ok(exit::of_command(infill_agent::sentry(args).await?)) }),
        Command::OwnNode(args) => {
            block_on(async { Ok(exit::of_command(infill_agent::own_node(args).await?)) })
        }
        Command::Status(args) => block_on(status::run(args, &session)),
        Command::Web(args) => block_on(web::run(args, &session)),
        Command::Gaps(args) => block_on(gaps::run(args, &session)),
        Command::Nodes(args) => block_on(nodes::run(args, &session)),
        Command::Jobs(args) => block_on(jobs::run(args, &session)),
        Command::Plan(args) => block_on(plan::run(args, &session)),
        Command::Plans(args) => plans::run(args),
        Command::Collectives(args) => block_on(collectives::run(args, &session)),
        Command::Rounds(args) => block_on(rounds::run(args, &session)),
        Command::Report(args) => block_on(report::run(args, &session)),
        Command::Explain(args) => block_on(explain::run(args, &session)),
        Command::Profiles(args) => block_on(profiles::run(args, &session)),
        Command::History(args) => block_on(history::run(args, &session)),
        Command::Advise(args) => infill_lab::advise::run(&args, session.config.as_deref()),
        Command::Simulate(args) => infill_lab::simulate::run(&args, session.config.as_deref()),
        Command::Pause => block_on(control::run(control::Order::Pause, &session)),
        Command::Resume => block_on(control::run(control::Order::Resume, &session)),
        Command::Drain => block_on(control::run(control::Order::Drain, &session)),
        Command::Notify(_) => block_on(notify::run(&session)),
        Command::Doctor(args) => block_on(doctor::run(args, &session)),
        Command::Config(command) => config::run(command, &session),
        Command::Completions(args) => generate::completions(&args, &mut Cli::command()),
        Command::Man(args) => generate::man(&args, Cli::command()),
    }
}

async fn serve(session: &Session, passed: Passed) -> CommandResult {
    infill_daemon::serve::serve(session.config()?, passed).await.map_err(of_daemon)?;
    Ok(Exit::Ok.code())
}

/// What Slurm denies has an exit code of its own.
fn of_daemon(error: anyhow::Error) -> Failure {
    let is_denial =
        |cause: &(dyn Error + 'static)| matches!(cause.downcast_ref(), Some(SlurmError::Denied { .. }));
    if error.chain().any(is_denial) { Exit::Denied.because(error) } else { error.into() }
}

fn block_on(work: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    // A blocking thread that still solves or reads must not keep the process alive.
    runtime.shutdown_background();
    outcome
}
