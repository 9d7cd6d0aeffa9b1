//! `infill doctor`: what can be wrong on a site, and how to mend it.
//!
//! `site` judges what Slurm's commands print and `host` what this machine says, both pure; `probe` runs and
//! looks.

mod finding;
mod host;
mod probe;
mod site;

use clap::Args;
use serde::Serialize;

use super::session::CliSession;
use finding::{Finding, FindingLevel};
pub use host::check_token_secrecy;
use infill_api::SCHEMA;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};

/// Flags of `infill doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Show only what is not in order
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
            let mut findings = vec![Finding::ok("config", "the configuration is sound")];
            findings.extend(probe::run_checks(&config, (&url, config.agent.ca.as_deref())).await);
            findings
        }
        Err(error) => {
            let mend = "mend the file and try `infill config check`; all other checks need it";
            vec![Finding::error("config", format!("{:#}", anyhow::Error::new(error)), mend)]
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
        output::print_json(&DoctorDocument { schema: SCHEMA, findings: &findings })?;
    } else {
        output::print_text(&finding::render_findings(&findings, output::wants_colours(&std::io::stdout())))?;
    }
    Ok(exit.code())
}
