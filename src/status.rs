//! `infill status`: the state of the cluster and of infill, on one screen.

use clap::Args;

use super::session::CliSession;
use super::summary::status_summary;
use super::watch;
use infill_api::{DaemonStatus, routes};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output::{self, DisplayClock},
};

/// Flags of `infill status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Print the whole document as JSON
    #[arg(long, conflicts_with_all = ["watch", "once_width"])]
    json: bool,
    /// Draw the cluster over time until `q` is pressed
    #[arg(short, long)]
    watch: bool,
    /// Seconds between two updates
    #[arg(long, default_value_t = 1, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Seconds per column of the drawing (change it with + and -)
    #[arg(long, default_value_t = 15, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    column: u32,
    /// Print the drawing once, with this width
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..=1000), conflicts_with = "watch")]
    once_width: Option<u16>,
}

/// Runs `infill status`.
pub async fn run(args: StatusArgs, session: &CliSession) -> CommandResult {
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
