//! `infill simulate`: what would be harvested on a machine whose log is known, under several policies side by
//! side. Needs neither a daemon nor Slurm.

pub mod args;
mod closed;
mod command;
mod document;
mod order;
mod page;
pub(crate) mod setup;
mod show;
#[cfg(test)]
mod tests;
mod threads;
mod unit;

pub use args::SimulateArgs;

use std::path::Path;

use document::Document;
use infill_model::config::Config;
use infill_present::{
    exit::{CommandResult, Exit},
    output,
    progress::{Line, Measure, Progress},
};
use infill_sim as sim;
use infill_sim::{Balance, PolicyName, Setup};
use page::Material;
use show::Screen;
pub(crate) use unit::Unit;

/// The policies that are compared where none is named.
const USUAL: [&str; 4] = ["infill", "infill-known", "freetrain", "bound"];

/// Simulates.
pub fn run(args: &SimulateArgs, config: Option<&Path>) -> CommandResult {
    if let Some(machine) = &args.closed.machine {
        if !args.closed.order.is_empty() {
            return order::run(args, machine);
        }
        return closed::run(args, machine, &Config::load(config)?);
    }
    let config = Config::load(config)?;
    let names = args.policies(&USUAL).into_iter().map(|text| PolicyName::parse(text, args.tfwd));
    let names: Vec<PolicyName> = names.collect::<Result<_, _>>().map_err(|e| Exit::Usage.because(e))?;
    show::check(&args.table)?;
    if let Some(path) = &args.html {
        output::check_folder(path).map_err(|e| Exit::Usage.because(e))?;
    }
    let (setup, subject) = setup::of(args)?;
    let (outcomes, bound) = simulate_all(&setup, &config, &names, subject.span_secs);
    let document = document::of(&outcomes, &bound, subject, args.timings);
    if args.table.json {
        output::print_json(&document)?;
    } else {
        let out = std::io::stdout();
        let screen = Screen { width: output::terminal_width(), colours: output::colours(&out) };
        output::print(&show::text(&document, &args.table, screen)?)?;
    }
    if let Some(path) = &args.html {
        output::write_file(path, &page(&setup, &outcomes, &document)?)?;
    }
    Ok(Exit::Ok.code())
}

fn page(setup: &Setup, outcomes: &[(Balance, f64)], document: &Document) -> anyhow::Result<String> {
    let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let outcomes: Vec<&Balance> = outcomes.iter().map(|(outcome, _)| outcome).collect();
    page::page(&Material {
        document,
        outcomes: &outcomes,
        gaps: &sim::gap_statistics(&setup.queue, setup.most_secs),
        nodes: setup.queue.names(),
        start: setup.queue.span().0,
        command: &command::shown(arguments, document.subject.seed),
    })
}

/// The outcomes of the policies in their order, each with the seconds that it took, and the bound's.
fn simulate_all(
    setup: &Setup,
    config: &Config,
    names: &[PolicyName],
    span_secs: f64,
) -> (Vec<(Balance, f64)>, Balance) {
    let mut wanted: Vec<PolicyName> = names.to_vec();
    if !wanted.contains(&PolicyName::Bound) {
        wanted.push(PolicyName::Bound);
    }
    let progress = Progress::new(Measure::Time(span_secs));
    let simulate =
        |name: PolicyName, line: &mut Line| sim::run(setup, name.build(config), &mut |share| line.at(share));
    let mut done = threads::each(&wanted, &progress, simulate);
    let bound = wanted.iter().position(|n| *n == PolicyName::Bound).and_then(|at| done.get(at));
    let bound = bound.map(|(outcome, _)| outcome.clone()).unwrap_or_default();
    done.truncate(names.len());
    (done, bound)
}
