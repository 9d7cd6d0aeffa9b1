//! `infill simulate`: what several policies would harvest on a machine with a recorded log. It needs neither
//! a daemon nor Slurm.

pub mod args;
mod closed;
mod command;
mod document;
mod order;
pub(crate) mod page;
pub(crate) mod setup;
mod show;
#[cfg(test)]
mod tests;
mod threads;
mod unit;

pub use args::SimulateArgs;

use std::path::Path;

use document::SimulationDocument;
use infill_model::config::Config;
use infill_present::{
    exit::{CommandResult, ProgramExit},
    output,
    progress::{ProgressLine, ProgressLines, ProgressMeasure},
};
use infill_sim as sim;
use infill_sim::{PolicyName, PolicyScore, SimulationSetup};
use page::PageInput;
use show::ScreenOptions;
pub(crate) use unit::LogUnit;

/// Policies that are compared by default.
const DEFAULT_POLICIES: [&str; 4] = ["infill", "infill-known", "freetrain", "bound"];

/// Runs `infill simulate`.
pub fn run(args: &SimulateArgs, config: Option<&Path>) -> CommandResult {
    if let Some(machine) = &args.closed.machine {
        if !args.closed.order.is_empty() {
            return order::simulate_orders(args, machine);
        }
        return closed::simulate_closed(args, machine, &Config::load(config)?);
    }
    let config = Config::load(config)?;
    let names =
        args.named_policies(&DEFAULT_POLICIES).into_iter().map(|text| PolicyName::parse(text, args.tfwd));
    let names: Vec<PolicyName> =
        names.collect::<Result<_, _>>().map_err(|e| ProgramExit::Usage.caused_by(e))?;
    show::check_format(&args.table)?;
    if let Some(path) = &args.html {
        output::check_folder(path).map_err(|e| ProgramExit::Usage.caused_by(e))?;
    }
    let (setup, subject) = setup::simulation_from_args(args)?;
    let (outcomes, bound) = simulate_all(&setup, &config, &names, subject.span_secs);
    let document = document::simulation_document(&outcomes, &bound, subject, args.timings);
    if args.table.json {
        output::print_json(&document)?;
    } else {
        let out = std::io::stdout();
        let screen = ScreenOptions { width: output::terminal_width(), colours: output::wants_colours(&out) };
        output::print_text(&show::render_text(&document, &args.table, screen)?)?;
    }
    if let Some(path) = &args.html {
        output::write_file(path, &render_page(&setup, &outcomes, &document)?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn render_page(
    setup: &SimulationSetup,
    outcomes: &[(PolicyScore, f64)],
    document: &SimulationDocument,
) -> anyhow::Result<String> {
    let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let outcomes: Vec<&PolicyScore> = outcomes.iter().map(|(outcome, _)| outcome).collect();
    page::page_html(&PageInput {
        document,
        outcomes: &outcomes,
        gaps: &sim::gap_statistics(&setup.queue, setup.most_secs),
        nodes: setup.queue.node_names(),
        start: setup.queue.time_span().0,
        command: &command::shareable_command(arguments, document.subject.seed),
    })
}

/// Simulates the policies. Returns their outcomes in order, each with the seconds that it took, and the
/// outcome of the bound.
fn simulate_all(
    setup: &SimulationSetup,
    config: &Config,
    names: &[PolicyName],
    span_secs: f64,
) -> (Vec<(PolicyScore, f64)>, PolicyScore) {
    let mut wanted: Vec<PolicyName> = names.to_vec();
    if !wanted.contains(&PolicyName::Bound) {
        wanted.push(PolicyName::Bound);
    }
    let progress = ProgressLines::new(ProgressMeasure::Time(span_secs));
    let mut done = threads::simulate_each(&wanted, &progress, |name: PolicyName, line: &mut ProgressLine| {
        sim::run_simulation(setup, name.build_policy(config), &mut |share| line.set_share(share))
    });
    let bound = wanted.iter().position(|n| *n == PolicyName::Bound).and_then(|at| done.get(at));
    let bound = bound.map(|(outcome, _)| outcome.clone()).unwrap_or_default();
    done.truncate(names.len());
    (done, bound)
}
