//! `infill doctor --plan`: the changes that this site still needs, in order, each with its check and its way
//! back.
//!
//! `ask` runs commands and reads files. The other modules make steps of what it found, and are pure.

mod accounting;
mod ask;
mod choices;
mod daemon;
mod facts;
mod plugin;
mod render;
mod slurm;
mod step;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_ways_back;
mod toml_lines;

use serde::Serialize;

use crate::doctor::site::slurm_conf::SlurmConf;
use crate::session::CliSession;
pub use choices::ChoiceArgs;
use choices::DeployChoices;
use facts::SiteFacts;
use infill_api::SCHEMA_VERSION;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
};
pub use plugin::{plugin_text, wrapper_text};
use render::PlanText;
use step::{PlanStep, StepState};

/// How the plan is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanForm {
    /// The steps, as text.
    Text,
    /// The steps, as JSON.
    Json,
    /// The ways back of what is there, as text.
    Undo,
}

/// `infill doctor --plan --json`.
#[derive(Serialize)]
struct PlanDocument<'a> {
    schema: u32,
    cluster: &'a str,
    /// Whether only later steps are left.
    complete: bool,
    choices: &'a DeployChoices,
    steps: &'a [PlanStep],
    could_not_read: &'a [String],
}

/// The plan for a site, in order.
fn plan_steps(site: &SiteFacts, choices: &DeployChoices) -> Vec<PlanStep> {
    if let Some(decision) = slurm::suspend_decision(site) {
        return vec![decision];
    }
    all_steps(site, choices)
}

/// All steps, also where a decision stands before them: what is there can be undone all the same.
fn all_steps(site: &SiteFacts, choices: &DeployChoices) -> Vec<PlanStep> {
    let mut steps = accounting::accounting_steps(site, choices);
    steps.push(plugin::plugin_step(site, choices));
    steps.push(slurm::conf_step(site, choices));
    steps.extend(daemon::daemon_steps(site, choices));
    steps
}

/// Runs `infill doctor --plan`.
pub async fn run(args: &ChoiceArgs, session: &CliSession, form: PlanForm) -> CommandResult {
    let site = ask::ask_site(session).await;
    let by_partition = site.conf.as_ref().is_some_and(SlurmConf::preempts_by_partition);
    let choices = args.settle(by_partition, site.usual_canary());
    if form == PlanForm::Undo {
        let installed = plugin::installed_choices(&site, choices);
        output::print_text(&render::render_undo(&all_steps(&site, &installed)))?;
        return Ok(ProgramExit::Ok.code());
    }
    let steps = plan_steps(&site, &choices);
    let is_left = |step: &PlanStep| !matches!(step.state, StepState::Done | StepState::Later);
    let complete = !steps.iter().any(is_left);
    if form == PlanForm::Json {
        output::print_json(&PlanDocument {
            schema: SCHEMA_VERSION,
            cluster: site.cluster(),
            complete,
            choices: &choices,
            steps: &steps,
            could_not_read: &site.unread,
        })?;
    } else {
        output::print_text(&render::render_plan(&PlanText {
            cluster: site.cluster(),
            choices: &choices,
            steps: &steps,
            unread: &site.unread,
        }))?;
    }
    Ok(ProgramExit::Ok.code())
}
