//! `infill status`: how things stand, in a screenful.

use clap::Args;

use super::session::Session;
use super::summary::summary;
use super::watch;
use infill_api::{Status, routes};
use infill_present::{
    exit::{CommandResult, Exit},
    output::{self, When},
};

/// Flags of `infill status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The whole document as JSON
    #[arg(long, conflicts_with_all = ["watch", "once_width"])]
    json: bool,
    /// Draw the cluster over time until `q` is pressed
    #[arg(short, long)]
    watch: bool,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Seconds that a column of the drawing stands for (change it with + and -)
    #[arg(long, default_value_t = 15, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    column: u32,
    /// Print the drawing once, so many columns wide
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..=1000), conflicts_with = "watch")]
    once_width: Option<u16>,
}

/// Runs `infill status`.
pub async fn run(args: StatusArgs, session: &Session) -> CommandResult {
    let client = session.client()?;
    if args.watch {
        return watch::run(&client, args.interval, args.column).await;
    }
    let status: Status = client.get(routes::STATUS).await?;
    if args.json {
        output::print_json(&status)?;
    } else if let Some(width) = args.once_width {
        output::print(&watch::once(&status, width, args.column, When::now())?)?;
    } else {
        output::print(&summary(&status, &client.url(), When::now())?)?;
    }
    Ok(Exit::Ok.code())
}
