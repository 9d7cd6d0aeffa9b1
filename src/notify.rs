//! `infill notify --test`.

use clap::Args;

use super::session::Session;
use infill_daemon::notices;
use infill_model::clock::now;
use infill_present::exit::{CommandResult, Exit};
use infill_present::output;

/// Flags of `infill notify`.
#[derive(Args, Clone, Debug)]
pub struct NotifyArgs {
    /// Send a notice that says that it is a test, to all that the configuration names
    #[arg(long, required = true)]
    pub test: bool,
}

/// Runs `infill notify --test`.
pub async fn run(session: &Session) -> CommandResult {
    let config = session.config()?.notify;
    if config.is_disabled() {
        return Err(Exit::Config.because(anyhow::anyhow!(
            "notify.command, notify.url and notify.url_file are empty: nobody is told"
        )));
    }
    let failures = notices::test(&config, now()).await;
    if failures.is_empty() {
        output::print("the test notice was sent")?;
        return Ok(Exit::Ok.code());
    }
    Err(Exit::Failed.because(anyhow::anyhow!("{}", failures.join("; "))))
}
