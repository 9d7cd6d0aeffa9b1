//! `infill status`: the state of the cluster and of infill, on one screen.

use clap::Args;

use super::session::CliSession;
use super::summary::status_summary;
use super::watch;
use infill_api::{DaemonStatus, routes};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    output::{self, DisplayClock},
    phrases::status_headline::StatusHeadline,
};

/// The exit code of `--check` when nothing is known, as monitoring plugins have it.
const CHECK_UNKNOWN: u8 = 3;

/// The end of the help text.
const ABOUT_CHECKS: &str = "\
Exit codes of --check, as monitoring plugins have them:

  0  ok, or observing
  1  paused, draining or starting
  2  there is a problem
  3  unknown: the daemon cannot be asked

Without --check the exit code is 0 whenever the daemon answers.";

/// The heading of the drawing's options.
const DRAWING: &str = "Drawing";

/// Flags of `infill status`.
#[derive(Clone, Debug, Args)]
#[command(after_help = ABOUT_CHECKS)]
pub struct StatusArgs {
    /// Print only the first line, with an exit code for a monitoring system
    #[arg(long, conflicts_with_all = ["json", "watch", "once_width"])]
    check: bool,
    /// Print the whole document as JSON
    #[arg(long, conflicts_with_all = ["watch", "once_width"])]
    json: bool,
    /// Draw the cluster over time until `q` is pressed
    #[arg(short, long, help_heading = DRAWING)]
    watch: bool,
    /// Seconds between two updates
    #[arg(long, default_value_t = 1, value_name = "SECS", help_heading = DRAWING, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Seconds per column of the drawing (change it with + and -)
    #[arg(long, default_value_t = 15, value_name = "SECS", help_heading = DRAWING, value_parser = clap::value_parser!(u32).range(1..=3600))]
    column: u32,
    /// Print the drawing once, with this width
    #[arg(long, value_name = "COLUMNS", help_heading = DRAWING, value_parser = clap::value_parser!(u16).range(20..=1000), conflicts_with = "watch")]
    once_width: Option<u16>,
}

/// Runs `infill status`.
pub async fn run(args: StatusArgs, session: &CliSession) -> CommandResult {
    if args.check {
        return check_status(session).await;
    }
    let client = session.daemon_client()?;
    if args.watch {
        return watch::run(&client, args.interval, args.column).await;
    }
    let status: DaemonStatus = client.get(routes::STATUS).await?;
    if args.json {
        output::print_json(&status)?;
    } else if let Some(width) = args.once_width {
        output::print_text(&watch::render_once(&status, width, args.column, DisplayClock::now())?)?;
    } else {
        output::print_text(&status_summary(&status, &client.joined_urls(), DisplayClock::now())?)?;
    }
    Ok(ProgramExit::Ok.code())
}

/// Prints the first line. All that keeps it from being known is a line too, because monitoring systems read
/// standard output.
async fn check_status(session: &CliSession) -> CommandResult {
    let client = session.daemon_client();
    let answer = match client {
        Ok(client) => client.get(routes::STATUS).await.map_err(CommandFailure::from),
        Err(failure) => Err(failure),
    };
    let status: DaemonStatus = match answer {
        Ok(status) => status,
        Err(failure) => {
            let why = failure.to_string();
            output::print_text(&format!("unknown: {}", why.lines().next().unwrap_or_default()))?;
            return Ok(CHECK_UNKNOWN);
        }
    };
    let headline = StatusHeadline::from_status(&status, DisplayClock::now());
    output::print_text(&headline.to_string())?;
    Ok(headline.check_code())
}
