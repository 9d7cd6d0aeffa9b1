//! `infill simulate`: what would be harvested on a machine whose log is known, under several policies side by
//! side. Needs neither a daemon nor Slurm.

pub mod args;
mod command;
mod document;
mod page;
mod progress;
pub mod setup;
mod show;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub use args::SimulateArgs;

use super::exit::{CommandResult, Exit};
use super::output;
use super::session::Session;
use crate::config::Config;
use crate::sim::{self, Balance, PolicyName, Setup};
use document::Document;
use page::Material;
use progress::Progress;
pub use show::Days;
use show::Screen;
pub use unit::Unit;

/// Simulates.
pub fn run(args: &SimulateArgs, session: &Session) -> CommandResult {
    let config = session.config()?;
    let names = args.policy.iter().map(|text| PolicyName::parse(text, args.tfwd));
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
    let queue: Mutex<VecDeque<(usize, PolicyName)>> =
        Mutex::new(wanted.iter().copied().enumerate().collect());
    let done: Mutex<Vec<(usize, Balance, f64)>> = Mutex::new(Vec::new());
    let progress = Progress::new(span_secs);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(wanted.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((place, name)) = next else { break };
                    let (clock, mut line) = (Instant::now(), progress.line(name));
                    let outcome = sim::run(setup, name.build(config), &mut |share| line.at(share));
                    let secs = clock.elapsed().as_secs_f64();
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, outcome, secs));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, ..)| *place);
    for (_, outcome, secs) in &done {
        tracing::debug!(policy = outcome.policy, secs, rounds = outcome.rounds, "simulated");
    }
    let bound_place = wanted.iter().position(|n| *n == PolicyName::Bound);
    let bound = done.iter().find(|(place, ..)| Some(*place) == bound_place).map(|(_, o, _)| o.clone());
    let outcomes = done.into_iter().filter(|(place, ..)| *place < names.len()).map(|(_, o, s)| (o, s));
    (outcomes.collect(), bound.unwrap_or_default())
}
