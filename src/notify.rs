//! `infill notify --test`: sends a test notice.

use clap::Args;

use super::session::CliSession;
use infill_daemon::notices;
use infill_model::clock::now;
use infill_present::exit::{CommandResult, ProgramExit};
use infill_present::output;

/// Flags of `infill notify`.
#[derive(Args, Clone, Debug)]
pub struct NotifyArgs {
    /// Send a test notice to all receivers in the configuration
    #[arg(long, required = true)]
    pub test: bool,
}

/// Runs `infill notify --test`.
pub async fn run(session: &CliSession) -> CommandResult {
    let config = session.load_config()?.notify;
    if config.is_disabled() {
        return Err(ProgramExit::Config.caused_by(anyhow::anyhow!(
            "notify.command, notify.url and notify.url_file are empty, so there is no receiver; set one of them"
        )));
    }
    let failures = notices::send_test_notice(&config, now()).await;
    if failures.is_empty() {
        output::print_text("the test notice was sent")?;
        return Ok(ProgramExit::Ok.code());
    }
    Err(ProgramExit::Failed.caused_by(anyhow::anyhow!("{}", failures.join("; "))))
}
