//! A plan as text.

use std::fmt::Write;

use super::choices::DeployChoices;
use super::step::{PlanCommand, PlanStep, StepState};

/// The parts of a plan that are printed.
pub struct PlanText<'a> {
    /// The name of the cluster.
    pub cluster: &'a str,
    /// The decisions.
    pub choices: &'a DeployChoices,
    /// The steps in order.
    pub steps: &'a [PlanStep],
    /// What could not be read.
    pub unread: &'a [String],
}

/// The plan as text. Steps that are done have one line.
pub fn render_plan(plan: &PlanText<'_>) -> String {
    let mut text = String::new();
    let needed = plan.steps.iter().filter(|step| step.state != StepState::Later).count();
    let done = plan.steps.iter().filter(|step| step.state == StepState::Done).count();
    let _ = writeln!(
        text,
        "plan for cluster {}: {done} of {needed} steps done\n",
        if plan.cluster.is_empty() { "(unknown)" } else { plan.cluster }
    );
    render_choices(&mut text, plan);
    for (number, step) in (1..).zip(plan.steps) {
        render_step(&mut text, number, step);
    }
    for what in plan.unread {
        let _ = writeln!(text, "could not read: {what}");
    }
    text.push_str("The packages have the pages in /usr/share/doc/infill-daemon.\n");
    if !plan.unread.is_empty() {
        text.push_str("Run this as root on the controller to see everything.\n");
    } else {
        text.push_str("Run this again after each step. `infill doctor --plan --undo` prints the ways back of what is there.\n");
    }
    text
}

fn render_choices(text: &mut String, plan: &PlanText<'_>) {
    let choices = plan.choices;
    let is_asked = plan.steps.iter().any(|step| step.id == "config" && step.state == StepState::Decision);
    let canary = match choices.canary.as_str() {
        "" if is_asked => "(to be chosen)".to_owned(),
        "" => "(all nodes)".to_owned(),
        nodes => nodes.to_owned(),
    };
    let rows = [
        ("--preempt", choices.preempt.word().to_owned(), "docs/deploy/preemption.md"),
        ("--share", choices.share.word().to_owned(), "docs/deploy/sharing.md"),
        (
            "--own-account",
            choices.own_account.clone().unwrap_or_else(|| "none".to_owned()),
            "docs/deploy/own-account.md",
        ),
        ("--canary", canary, "docs/deploy/pilot.md"),
    ];
    text.push_str("decisions\n");
    for (flag, value, page) in rows {
        let _ = writeln!(text, "  {flag:<14} {value:<20} {page}");
    }
    text.push('\n');
}

fn render_step(text: &mut String, number: usize, step: &PlanStep) {
    let state = match step.state {
        StepState::Done => "done",
        StepState::Open => "to do",
        StepState::Unknown => "?",
        StepState::Decision => "decide",
        StepState::Later => "later",
    };
    let _ = writeln!(text, "{number:>2}. {state:<7} {}", step.title);
    if step.state == StepState::Done {
        return;
    }
    field(text, "why", &step.why);
    if let Some(page) = step.page {
        field(text, "read", page);
    }
    render_commands(text, "run", &step.commands);
    field(text, "effect", &step.effect);
    render_commands(text, "check", std::slice::from_ref(&step.check.command));
    if !step.check.prints.is_empty() {
        let wanted: Vec<String> = step.check.prints.iter().map(|part| format!("`{part}`")).collect();
        field(text, "prints", &wanted.join(" and "));
    }
    render_commands(text, "back", &step.undo);
    for note in step.undo_note.iter().chain(&step.notes) {
        field(text, "note", note);
    }
    text.push('\n');
}

fn field(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "    {name:<7} {value}");
}

/// The host and the user stand above the commands. The commands can be copied as they are.
fn render_commands(text: &mut String, name: &str, commands: &[PlanCommand]) {
    let mut last = None;
    for command in commands {
        let place = (&command.on, command.user);
        if last != Some(place) {
            let label = if last.is_none() { name } else { "" };
            let user = if command.user == "root" { "root" } else { "any user of the cluster" };
            field(text, label, &format!("on {}, as {user}:", command.on));
            last = Some(place);
        }
        for line in command.command.lines() {
            let _ = writeln!(text, "            {line}");
        }
    }
}

/// The ways back of all that is there, from the last step to the first, and why the others have none.
pub fn render_undo(steps: &[PlanStep]) -> String {
    let mut text = String::new();
    for step in steps.iter().rev().filter(|step| !step.way_back().is_empty()) {
        let _ = writeln!(text, "without {}", step.title);
        render_commands(&mut text, "back", step.way_back());
        if let Some(note) = &step.undo_note {
            field(&mut text, "note", note);
        }
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("Nothing is to be undone.\n");
    }
    for step in steps.iter().rev().filter(|step| step.way_back().is_empty()) {
        let _ = writeln!(text, "skipped: {}: {}", step.title, reason_to_skip(step));
    }
    text
}

fn reason_to_skip(step: &PlanStep) -> &str {
    match step.state {
        StepState::Done => step.undo_note.as_deref().unwrap_or("nothing of it is here to be taken away"),
        StepState::Open | StepState::Later => step.undo_note.as_deref().unwrap_or("it is not done"),
        StepState::Unknown => "whether it is done cannot be read here",
        StepState::Decision => &step.why,
    }
}
