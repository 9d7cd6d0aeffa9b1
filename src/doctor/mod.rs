//! `infill doctor`: checks a site for known problems, and says how to fix them.
//!
//! `probe` runs commands and asks the daemon. `site` judges the output of Slurm's commands and `host` that of
//! this machine; both are pure.

mod finding;
mod host;
mod probe;
mod site;

use clap::Args;
use serde::Serialize;

use super::session::CliSession;
use finding::{Finding, FindingLevel};
pub use host::check_token_secrecy;
use infill_api::SCHEMA_VERSION;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// Flags of `infill doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show only warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

/// `infill doctor --json`.
#[derive(Serialize)]
struct DoctorDocument<'a> {
    schema: u32,
    findings: &'a [Finding],
}

/// Runs `infill doctor`.
pub async fn run(args: DoctorArgs, session: &CliSession) -> CommandResult {
    let mut findings = match session.load_config() {
        Ok(config) => {
            let url = session.url.clone().unwrap_or_else(|| config.agent.url.clone());
            let mut findings = vec![Finding::ok("config", "the configuration is valid")];
            findings.extend(probe::run_checks(&config, &url, config.agent.ca.as_deref()).await);
            findings
        }
        Err(error) => {
            let fix =
                "fix the file and run `infill config check`; all other checks need a valid configuration";
            vec![Finding::error("config", format!("{:#}", anyhow::Error::new(error)), fix)]
        }
    };
    let exit = if findings.iter().any(|f| f.level == FindingLevel::Error) {
        ProgramExit::Failed
    } else {
        ProgramExit::Ok
    };
    if args.quiet {
        findings.retain(|f| f.level != FindingLevel::Ok);
    }
    if args.json {
        output::print_json(&DoctorDocument { schema: SCHEMA_VERSION, findings: &findings })?;
    } else {
        output::print_text(&finding::render_findings(&findings, output::wants_colours(&std::io::stdout())))?;
    }
    Ok(exit.code())
}
