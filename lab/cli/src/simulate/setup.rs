//! From flags and files to what is simulated.

use std::path::Path;

use anyhow::anyhow;

use super::args::{LogArgs, LogFormat, SimulateArgs, SupplyArgs};
use super::command::file_name;
use super::document::Replayed;
use super::unit::Unit;
use infill_model::{
    RescaleCosts,
    trace::{IdleLog, JobLog, NamedCurve},
};
use infill_present::{
    exit::{Exit, Failure},
    input::told,
    output,
};
use infill_sim::{
    Setup,
    job::Checkpoints,
    queue::{IdleQueue, LogQueue, MainQueue, by_gpu},
    supply::{Halving, Nas, Supply},
};
use infill_traces as traces;
use infill_traces::SwfOptions;

const YEAR_SECS: i64 = 365 * 86_400;

/// Longest time that is simulated: a log that spans more has a wrong time in it.
const MAX_SPAN_SECS: i64 = 20 * YEAR_SECS;

/// Nodes that a page's timeline shows.
const TIMELINE_NODES: u32 = 128;

/// How many jobs never end, unless the user says.
const ENDLESS_JOBS: u32 = 10;

/// Most curves that are named where the jobs are described.
const MOST_CURVES_NAMED: usize = 6;

/// A log, as it was read.
pub(crate) enum Log {
    /// Intervals.
    Idle(IdleLog),
    /// Jobs.
    Jobs(JobLog),
}

/// Reads the log that the flags name, and tells of lines that were passed over.
pub(crate) fn read_log(args: &LogArgs) -> Result<Log, Failure> {
    match (&args.idle, &args.log) {
        (Some(path), _) => Ok(Log::Idle(told(path, traces::read_idle(path))?)),
        (None, Some(path)) => {
            let sacct =
                args.log_format == Some(LogFormat::Sacct) || (args.log_format.is_none() && is_sacct(path)?);
            let options = SwfOptions {
                layout: LogFormat::layout(args.log_format),
                procs_per_node: args.procs_per_node,
            };
            let reading = if sacct { traces::read_sacct(path) } else { traces::read_swf(path, options) };
            Ok(Log::Jobs(told(path, reading)?))
        }
        (None, None) => Err(Exit::Usage.because(anyhow!("name a log: --log FILE or --idle FILE"))),
    }
}

/// The main queue of a log, in the unit that the flags name.
pub(crate) fn main_queue(log: &Log, args: &LogArgs) -> Result<MainQueue, Failure> {
    if args.gpus_per_node.is_some() && args.unit != Unit::Gpu {
        return Err(Exit::Usage.because(anyhow!("--gpus-per-node is for --unit gpu")));
    }
    Ok(match log {
        Log::Idle(log) => MainQueue::Idle(IdleQueue::new(log, args.nodes.unwrap_or(usize::MAX))),
        Log::Jobs(log) if args.unit == Unit::Gpu => {
            let log = by_gpu(log, args.gpus_per_node).map_err(|e| Exit::Input.because(e))?;
            MainQueue::Log(LogQueue::new(&log, args.nodes))
        }
        Log::Jobs(log) => MainQueue::Log(LogQueue::new(log, args.nodes)),
    })
}

/// Whether the first line names sacct's columns.
fn is_sacct(path: &Path) -> Result<bool, Failure> {
    traces::first_line(path).map(|line| line.contains('|')).map_err(|e| Exit::Input.because(e))
}

/// Everything that the flags say, and what is said of it.
pub(crate) fn of(args: &SimulateArgs) -> Result<(Setup, Replayed), Failure> {
    let log = read_log(&args.log)?;
    let queue = main_queue(&log, &args.log)?;
    let curves = curves(&args.supply)?;
    let setup = setup(args, queue, supply(args, &curves)?);
    let (start, end) = setup.queue.span();
    let span_secs = setup.most_secs.map_or(end - start, |most| most.min(end - start));
    if span_secs > MAX_SPAN_SECS {
        let years = span_secs / YEAR_SECS;
        let what = anyhow!("the log spans {years} years: one of its times must be wrong; or choose --days");
        return Err(Exit::Input.because(what));
    }
    let subject = Replayed {
        log: args.log.file_name(),
        idle_log: matches!(log, Log::Idle(_)),
        unit: args.log.unit,
        nodes: setup.queue.names().len(),
        span_secs: span_secs as f64,
        malleable: malleable(&args.supply, &curves, args.log.unit),
        rescales: setup.costs,
        warm_secs: args.changes.warm,
        seed: args.seed,
    };
    Ok((setup, subject))
}

fn setup(args: &SimulateArgs, queue: MainQueue, supply: Supply) -> Setup {
    let changes = &args.changes;
    Setup {
        queue,
        supply,
        costs: RescaleCosts { up_secs: changes.up, down_secs: changes.down, start_secs: changes.start },
        warm_secs: changes.warm.unwrap_or(0.0),
        accounting: changes.accounting.into(),
        checkpoints: Checkpoints {
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
fn malleable(args: &SupplyArgs, curves: &[NamedCurve], unit: Unit) -> String {
    let (min, max) = args.sizes();
    let sizes = format!("of {min} to {max} {}", unit.plural());
    let what = if let Some(path) = &args.workload {
        format!("the jobs of {}", file_name(&path.to_string_lossy()))
    } else if let Some((trials, eta)) = args.hpo {
        format!("a search by successive halving, {trials} trials, 1 of {eta} goes on, {sizes}")
    } else if let Some(at_once) = args.nas {
        format!("a search for architectures, {at_once} at a time, {sizes}")
    } else {
        format!("{} that never end, {sizes}", output::counted(endless(args).into(), "job"))
    };
    let named: Vec<&str> = curves.iter().take(MOST_CURVES_NAMED).map(|c| c.name.as_str()).collect();
    let more = match curves.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{what}, with the curves {}{more}", named.join(", "))
}

fn endless(args: &SupplyArgs) -> u32 {
    args.endless.unwrap_or(ENDLESS_JOBS)
}

fn curves(args: &SupplyArgs) -> Result<Vec<NamedCurve>, Failure> {
    let mut curves: Vec<NamedCurve> = Vec::new();
    for path in &args.curves {
        curves.extend(told(path, traces::read_curves(path))?);
    }
    if let Some(missing) = args.only.iter().find(|name| curves.iter().all(|c| c.name != **name)) {
        let known: Vec<&str> = curves.iter().map(|c| c.name.as_str()).collect();
        let what = anyhow!("no curve is called {missing:?}; there are {}", known.join(", "));
        return Err(Exit::Usage.because(what));
    }
    curves.retain(|c| args.only.is_empty() || args.only.contains(&c.name));
    Ok(curves)
}

fn supply(args: &SimulateArgs, curves: &[NamedCurve]) -> Result<Supply, Failure> {
    let (wanted, sizes, worth) = (&args.supply, args.supply.sizes(), args.worth.into());
    let of = if let Some(path) = &wanted.workload {
        Supply::list(&told(path, traces::read_workload(path))?, curves, worth)
    } else if let Some((trials, eta)) = wanted.hpo {
        Supply::halving(Halving::new(trials, eta, curves, sizes, args.seed), worth)
    } else if let Some(at_once) = wanted.nas {
        Supply::nas(Nas::new(at_once, curves, sizes, args.seed), worth)
    } else {
        Supply::endless(endless(wanted), curves, sizes, worth)
    };
    of.map_err(|e| Exit::Input.because(e))
}
