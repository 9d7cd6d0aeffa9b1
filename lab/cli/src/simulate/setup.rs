//! Reads flags and files into the input of a simulation.

use std::path::Path;

use anyhow::anyhow;

use super::args::{LogArgs, LogFormat, SimulateArgs, SupplyArgs};
use super::command::file_name;
use super::document::SimulationSubject;
use super::unit::LogUnit;
use infill_model::{
    RescaleCosts,
    trace::{IdleLog, JobLog, NamedCurve},
};
use infill_present::{
    exit::{CommandFailure, ProgramExit},
    input::parsed_with_warnings,
    output,
};
use infill_sim::{
    SimulationSetup,
    job::CheckpointCosts,
    queue::{IdleQueue, LogQueue, MainQueue, by_gpu},
    supply::{ArchitectureSearch, HalvingSearch, JobSupply},
};
use infill_traces as traces;
use infill_traces::SwfOptions;

const YEAR_SECS: i64 = 365 * 86_400;

/// Longest time that is simulated. A log that spans more contains a wrong time.
const MAX_SPAN_SECS: i64 = 20 * YEAR_SECS;

/// Number of nodes in a page's timeline.
const TIMELINE_NODES: u32 = 128;

/// Default number of endless jobs.
const ENDLESS_JOBS: u32 = 10;

/// Most curves that the description of the jobs names.
const MOST_CURVES_NAMED: usize = 6;

/// A log of either kind.
pub(crate) enum RecordedLog {
    /// The idle intervals of nodes.
    Idle(IdleLog),
    /// The jobs.
    Jobs(JobLog),
}

/// Reads the log that the flags name, and reports skipped lines.
pub(crate) fn read_log(args: &LogArgs) -> Result<RecordedLog, CommandFailure> {
    match (&args.idle, &args.log) {
        (Some(path), _) => Ok(RecordedLog::Idle(parsed_with_warnings(path, traces::read_idle(path))?)),
        (None, Some(path)) => {
            let sacct =
                args.log_format == Some(LogFormat::Sacct) || (args.log_format.is_none() && is_sacct(path)?);
            let options = SwfOptions {
                layout: LogFormat::swf_layout(args.log_format),
                procs_per_node: args.procs_per_node,
            };
            let reading = if sacct { traces::read_sacct(path) } else { traces::read_swf(path, options) };
            Ok(RecordedLog::Jobs(parsed_with_warnings(path, reading)?))
        }
        (None, None) => Err(ProgramExit::Usage.caused_by(anyhow!("name a log: --log FILE or --idle FILE"))),
    }
}

/// The main queue of a log, in the unit that the flags name.
pub(crate) fn main_queue(log: &RecordedLog, args: &LogArgs) -> Result<MainQueue, CommandFailure> {
    if args.gpus_per_node.is_some() && args.unit != LogUnit::Gpu {
        return Err(ProgramExit::Usage.caused_by(anyhow!("--gpus-per-node is for --unit gpu")));
    }
    Ok(match log {
        RecordedLog::Idle(log) => MainQueue::Idle(IdleQueue::new(log, args.nodes.unwrap_or(usize::MAX))),
        RecordedLog::Jobs(log) if args.unit == LogUnit::Gpu => {
            let log = by_gpu(log, args.gpus_per_node).map_err(|e| ProgramExit::Input.caused_by(e))?;
            MainQueue::Log(LogQueue::new(&log, args.nodes))
        }
        RecordedLog::Jobs(log) => MainQueue::Log(LogQueue::new(log, args.nodes)),
    })
}

/// Whether the first line has the separator of sacct's columns.
fn is_sacct(path: &Path) -> Result<bool, CommandFailure> {
    traces::first_line(path).map(|line| line.contains('|')).map_err(|e| ProgramExit::Input.caused_by(e))
}

/// The input of the simulation that the flags describe, and its description.
pub(crate) fn simulation_from_args(
    args: &SimulateArgs,
) -> Result<(SimulationSetup, SimulationSubject), CommandFailure> {
    let log = read_log(&args.log)?;
    let queue = main_queue(&log, &args.log)?;
    let curves = read_curves(&args.supply)?;
    let setup = simulation_setup(args, queue, build_supply(args, &curves)?);
    let (start, end) = setup.queue.time_span();
    let span_secs = setup.most_secs.map_or(end - start, |most| most.min(end - start));
    if span_secs > MAX_SPAN_SECS {
        let years = span_secs / YEAR_SECS;
        let what = anyhow!("the log spans {years} years: one of its times must be wrong; or choose --days");
        return Err(ProgramExit::Input.caused_by(what));
    }
    let subject = SimulationSubject {
        log: args.log.file_name(),
        idle_log: matches!(log, RecordedLog::Idle(_)),
        unit: args.log.unit,
        nodes: setup.queue.node_names().len(),
        span_secs: span_secs as f64,
        malleable: describe_supply(&args.supply, &curves, args.log.unit),
        rescales: setup.costs,
        warm_secs: args.changes.warm,
        seed: args.seed,
    };
    Ok((setup, subject))
}

fn simulation_setup(args: &SimulateArgs, queue: MainQueue, supply: JobSupply) -> SimulationSetup {
    let changes = &args.changes;
    SimulationSetup {
        queue,
        supply,
        costs: RescaleCosts { up_secs: changes.up, down_secs: changes.down, start_secs: changes.start },
        warm_secs: changes.warm.unwrap_or(0.0),
        accounting: changes.accounting.into(),
        checkpoints: CheckpointCosts {
            save_secs: changes.save,
            interval_secs: changes.checkpoint,
            grace_secs: changes.grace,
        },
        leave_secs: changes.leave,
        save_shared: changes.save_shared,
        noise: args.noise.clamp(0.0, 1.0),
        seed: args.seed,
        most_secs: args.days.map(|d| (d * 86_400.0).ceil() as i64),
        timeline_nodes: if args.html.is_some() { TIMELINE_NODES } else { 0 },
    }
}

/// The malleable jobs in words.
fn describe_supply(args: &SupplyArgs, curves: &[NamedCurve], unit: LogUnit) -> String {
    let (min, max) = args.size_range();
    let sizes = format!("of {min} to {max} {}", unit.plural());
    let what = if let Some(path) = &args.workload {
        format!("the jobs of {}", file_name(&path.to_string_lossy()))
    } else if let Some((trials, eta)) = args.hpo {
        format!("a search by successive halving, {trials} trials, 1 of {eta} goes on, {sizes}")
    } else if let Some(at_once) = args.nas {
        format!("a search for architectures, {at_once} at a time, {sizes}")
    } else {
        format!("{} that never end, {sizes}", output::counted_noun(endless_count(args).into(), "job"))
    };
    let named: Vec<&str> = curves.iter().take(MOST_CURVES_NAMED).map(|c| c.name.as_str()).collect();
    let more = match curves.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{what}, with the curves {}{more}", named.join(", "))
}

fn endless_count(args: &SupplyArgs) -> u32 {
    args.endless.unwrap_or(ENDLESS_JOBS)
}

fn read_curves(args: &SupplyArgs) -> Result<Vec<NamedCurve>, CommandFailure> {
    let mut curves: Vec<NamedCurve> = Vec::new();
    for path in &args.curves {
        curves.extend(parsed_with_warnings(path, traces::read_curves(path))?);
    }
    if let Some(missing) = args.only.iter().find(|name| curves.iter().all(|c| c.name != **name)) {
        let known: Vec<&str> = curves.iter().map(|c| c.name.as_str()).collect();
        let what = anyhow!("no curve is called {missing:?}; there are {}", known.join(", "));
        return Err(ProgramExit::Usage.caused_by(what));
    }
    curves.retain(|c| args.only.is_empty() || args.only.contains(&c.name));
    Ok(curves)
}

fn build_supply(args: &SimulateArgs, curves: &[NamedCurve]) -> Result<JobSupply, CommandFailure> {
    let wanted = &args.supply;
    let sizes = args.supply.size_range();
    let worth = args.worth.into();
    let supply = if let Some(path) = &wanted.workload {
        JobSupply::from_list(&parsed_with_warnings(path, traces::read_workload(path))?, curves, worth)
    } else if let Some((trials, eta)) = wanted.hpo {
        JobSupply::from_halving(HalvingSearch::new(trials, eta, curves, sizes, args.seed), worth)
    } else if let Some(at_once) = wanted.nas {
        JobSupply::from_nas(ArchitectureSearch::new(at_once, curves, sizes, args.seed), worth)
    } else {
        JobSupply::endless_jobs(endless_count(wanted), curves, sizes, worth)
    };
    supply.map_err(|e| ProgramExit::Input.caused_by(e))
}
