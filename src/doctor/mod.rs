//! `infill doctor`: checks a site for known problems, and says how to fix them.
//!
//! `plan` says what a site still needs. `probe` runs commands and asks the daemon. `site` judges the output
//! of Slurm's commands and `host` that of this machine; both are pure.

mod finding;
mod host;
mod plan;
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
use plan::PlanForm;

/// Flags of `infill doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show only warnings and errors
    #[arg(short, long)]
    quiet: bool,
    /// Print the changes that this site still needs, in order, each with its check and its way back. It works
    /// before anything of infill is there, and changes nothing
    #[arg(long, conflicts_with = "quiet")]
    plan: bool,
    /// With --plan: print only the ways back of what is there, from the last step to the first
    #[arg(long, requires = "plan", conflicts_with = "json")]
    undo: bool,
    /// Print job_submit.lua, with its constants set for --share and --own-account
    #[arg(long, conflicts_with_all = ["plan", "quiet", "json"])]
    plugin: bool,
    /// Print a job_submit.lua that calls infill's functions (infill.lua), then the site's own
    /// (job_submit_site.lua)
    #[arg(long, conflicts_with_all = ["plan", "plugin", "quiet", "json"])]
    plugin_wrapper: bool,
    /// The decisions of the plan.
    #[command(flatten, next_help_heading = "Decisions of the plan")]
    choices: plan::ChoiceArgs,
}

/// `infill doctor --json`.
#[derive(Serialize)]
struct DoctorDocument<'a> {
    schema: u32,
    findings: &'a [Finding],
}

/// Runs `infill doctor`.
pub async fn run(args: DoctorArgs, session: &CliSession) -> CommandResult {
    if args.plan {
        let form = match (args.undo, args.json) {
            (true, _) => PlanForm::Undo,
            (false, true) => PlanForm::Json,
            (false, false) => PlanForm::Text,
        };
        return plan::run(&args.choices, session, form).await;
    }
    if args.plugin || args.plugin_wrapper {
        let text = if args.plugin {
            plan::plugin_text(args.choices.share, args.choices.own_account())
        } else {
            plan::wrapper_text().to_owned()
        };
        output::print_text(&text)?;
        return Ok(ProgramExit::Ok.code());
    }
    check_site(&args, session).await
}

async fn check_site(args: &DoctorArgs, session: &CliSession) -> CommandResult {
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
