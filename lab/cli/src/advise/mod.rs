//! `infill advise`: what the advisor would do with a job whose throughput is known at every size, and how
//! well it would know the curve then; of a table of execution plans, which it would measure, and how well it
//! would know the others; of one of types of GPUs, what estimates and a measurement a type tell. Needs no
//! daemon.

mod held_out;
#[cfg(test)]
mod memory_tests;
mod plans;
#[cfg(test)]
mod tests;
mod types;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use infill_advisor::trial::{Compared, Trial, Tried, Verdict};
use infill_api::{CurveRow, SCHEMA};
use infill_model::{CurvePoint, MAX_NODES_A_JOB, config::Config};
use infill_present::{
    charts::Picture,
    curve,
    exit::{CommandResult, Exit, Failure},
    filter, output,
    table::Column,
    words::percent,
};
use infill_traces as traces;
use infill_traces::MeasuredThroughputs;

/// Noise beyond that is no noise of a training job.
const MAX_NOISE: f64 = 1.0;

/// Flags of `infill advise`.
#[derive(Clone, Debug, Args)]
pub struct AdviseArgs {
    /// CSV with the columns `nodes` and `throughput` (samples/s; 0 or nothing for sizes that were not
    /// measured)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["plans", "types"], conflicts_with_all = ["plans", "types"])]
    curve: Option<PathBuf>,
    #[command(flatten)]
    plans: plans::PlansArgs,
    #[command(flatten)]
    types: types::TypesArgs,
    /// How much a report of one second, or a measurement of a plan, varies (standard deviation of its
    /// logarithm)
    #[arg(long, default_value_t = 0.05, value_name = "SHARE", allow_negative_numbers = true, value_parser = noise)]
    noise: f64,
    /// Seed of the noise: with the same one, the output is the same
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Leave out sizes beyond this one
    #[arg(long, default_value_t = MAX_NODES_A_JOB, value_name = "M", hide_default_value = true)]
    max_nodes: u32,
    /// Draw the curve as well
    #[arg(long, conflicts_with_all = ["json", "plans", "types"])]
    draw: bool,
    /// The verdict as JSON
    #[arg(long)]
    json: bool,
}

/// `infill advise --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    #[serde(flatten)]
    verdict: &'a Verdict,
    unmeasured: usize,
}

struct Try {
    what: &'static str,
    probe: Tried,
}

const TRIES: &[Column<Try>] = &[
    Column { letter: 'w', header: "SIZE", help: "", cell: |t| t.what.to_owned() },
    Column { letter: 'n', header: "NODES", help: "", cell: |t| t.probe.nodes.to_string() },
    Column { letter: 's', header: "SECONDS", help: "", cell: |t| output::number(t.probe.seconds) },
    Column { letter: 'r', header: "RATE", help: "", cell: |t| output::number(t.probe.rate) },
];

const SIZES: &[Column<Compared>] = &[
    Column { letter: 'n', header: "NODES", help: "", cell: |r| r.nodes.to_string() },
    Column { letter: 't', header: "TRUE", help: "", cell: |r| output::number(r.truth) },
    Column { letter: 'p', header: "PREDICTED", help: "", cell: |r| output::number(r.predicted) },
    Column { letter: 'l', header: "LOW", help: "", cell: |r| output::number(r.low) },
    Column { letter: 'h', header: "HIGH", help: "", cell: |r| output::number(r.high) },
    Column { letter: 'e', header: "ERROR", help: "", cell: |r| percent::signed(r.predicted / r.truth - 1.0) },
];

fn noise(text: &str) -> Result<f64, String> {
    let noise = text.parse().ok().filter(|n| (0.0..=MAX_NOISE).contains(n));
    noise.ok_or_else(|| format!("expected a number from 0 to {MAX_NOISE}"))
}

/// Runs `infill advise`, within the bounds that the site sets on the advisor.
pub fn run(args: &AdviseArgs, config: Option<&Path>) -> CommandResult {
    match (&args.curve, args.types.wanted()) {
        (Some(curve), _) => of_curve(args, curve, config),
        (None, true) => types::run(args),
        (None, false) if args.plans.held_out => held_out::run(args),
        (None, false) => plans::run(args),
    }
}

fn of_curve(args: &AdviseArgs, curve: &Path, config: Option<&Path>) -> CommandResult {
    let config = Config::load(config)?;
    let table = traces::read_throughputs(curve, args.max_nodes).map_err(|e| Exit::Input.because(e))?;
    let verdict = verdict(args, &config, &table)?;
    if args.json {
        let document = Document { schema: SCHEMA, verdict: &verdict, unmeasured: table.unmeasured };
        output::print_json(&document)?;
    } else {
        let mut text = show(&verdict, &table)?;
        if args.draw {
            let width = output::terminal_width().unwrap_or(output::DEFAULT_WIDTH);
            let drawn = curve::draw(&picture(&verdict), width, output::colours(&std::io::stdout()));
            text = format!("{text}\n{drawn}");
        }
        output::print(&text)?;
    }
    Ok(Exit::Ok.code())
}

fn verdict(args: &AdviseArgs, config: &Config, table: &MeasuredThroughputs) -> Result<Verdict, Failure> {
    let trial = Trial {
        table: table.points.clone(),
        noise: args.noise,
        seed: args.seed,
        costs: config.planner.costs,
        settings: config.advisor.clone(),
    };
    let nothing = || Exit::Failed.because(anyhow::anyhow!("nothing can be measured with such noise"));
    trial.run().ok_or_else(nothing)
}

fn show(verdict: &Verdict, table: &MeasuredThroughputs) -> Result<String, Failure> {
    let start = [Try { what: "start", probe: verdict.start }];
    let probes = verdict.probes.iter().map(|p| Try { what: "probe", probe: *p });
    let tries: Vec<Try> = start.into_iter().chain(probes).collect();
    let unmeasured = match table.unmeasured {
        0 => String::new(),
        n => format!(" ({n} more without a measurement)"),
    };
    Ok(format!(
        "sizes   {}{unmeasured}\nprobes  {}, {} s in all\nmodel   {}\nerror   {} on average over all sizes\n\n{}\n{}",
        table.points.len(),
        verdict.probes.len(),
        output::number(verdict.probe_secs),
        verdict.model,
        percent::in_text(verdict.mape),
        filter::whole("%w %.n %.s %.r", TRIES, &tries)?,
        filter::whole("%.n %.t %.p %.l %.h %.e", SIZES, &verdict.curve)?,
    ))
}

fn picture(verdict: &Verdict) -> Picture {
    let mut tried: Vec<Tried> = verdict.probes.iter().copied().chain([verdict.start]).collect();
    tried.sort_by_key(|p| p.nodes);
    let known = |p: Tried| CurveRow { nodes: p.nodes, rate: p.rate, low: p.rate, high: p.rate };
    let fitted = |r: &Compared| CurveRow { nodes: r.nodes, rate: r.predicted, low: r.low, high: r.high };
    Picture {
        title: "advise".to_owned(),
        measured: tried.into_iter().map(known).collect(),
        curve: verdict.curve.iter().map(fitted).collect(),
        truth: verdict.curve.iter().map(|r| CurvePoint { nodes: r.nodes, rate: r.truth }).collect(),
        now: None,
    }
}
