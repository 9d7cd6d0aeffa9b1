//! `infill advise`: tries the advisor on recorded tables. It needs no daemon.
//!
//! - For a curve: the sizes that the advisor would measure, and the errors of the predicted curve.
//! - For execution plans: the plans that it would measure, and the errors for the others.
//! - For types of GPUs: the errors of estimates, and of predictions from one measurement per type.

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

use infill_advisor::curve_trial::{ComparedSize, CurveTrial, CurveTrialResult, TriedSize};
use infill_api::{CurveRow, SCHEMA_VERSION};
use infill_model::{CurvePoint, MAX_NODES_A_JOB, config::Config};
use infill_present::{
    charts::CurveFigure,
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter, output,
    phrases::percent,
    table::TableColumn,
    terminal_curve,
};
use infill_traces as traces;
use infill_traces::MeasuredThroughputs;

/// Largest noise that is accepted. Training jobs have less.
const MAX_NOISE: f64 = 1.0;

/// The heading of options for all kinds of trials.
const TRIAL: &str = "All trials";

/// Flags of `infill advise`.
#[derive(Clone, Debug, Args)]
pub struct AdviseArgs {
    /// CSV with the columns `nodes` and `throughput` (samples/s; 0 or empty for sizes without a measurement)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["plans", "types"], conflicts_with_all = ["plans", "types"], help_heading = "Scaling curve")]
    curve: Option<PathBuf>,
    #[command(flatten)]
    plans: plans::PlanTrialArgs,
    #[command(flatten)]
    types: types::TypeTrialArgs,
    /// How much a report of one second, or a measurement of a plan, varies (standard deviation of its
    /// logarithm)
    #[arg(long, default_value_t = 0.05, value_name = "SHARE", allow_negative_numbers = true, help_heading = TRIAL, value_parser = parse_noise)]
    noise: f64,
    /// Seed of the noise: with the same one, the output is the same
    #[arg(long, default_value_t = 1, value_name = "NUMBER", help_heading = TRIAL)]
    seed: u64,
    /// Leave out sizes above this one
    #[arg(long, default_value_t = MAX_NODES_A_JOB, value_name = "NODES", hide_default_value = true, help_heading = TRIAL)]
    max_nodes: u32,
    /// Also draw the curve
    #[arg(long, conflicts_with_all = ["json", "plans", "types"], help_heading = "Output")]
    draw: bool,
    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// `infill advise --json`.
#[derive(Serialize)]
struct AdviseDocument<'a> {
    schema: u32,
    #[serde(flatten)]
    verdict: &'a CurveTrialResult,
    unmeasured: usize,
}

struct TrialRow {
    what: &'static str,
    probe: TriedSize,
}

const TRIED_COLUMNS: &[TableColumn<TrialRow>] = &[
    TableColumn { letter: 'w', header: "SIZE", help: "", cell: |t| t.what.to_owned() },
    TableColumn { letter: 'n', header: "NODES", help: "", cell: |t| t.probe.nodes.to_string() },
    TableColumn {
        letter: 's',
        header: "SECONDS",
        help: "",
        cell: |t| output::format_number(t.probe.seconds),
    },
    TableColumn { letter: 'r', header: "RATE", help: "", cell: |t| output::format_number(t.probe.rate) },
];

const SIZE_COLUMNS: &[TableColumn<ComparedSize>] = &[
    TableColumn { letter: 'n', header: "NODES", help: "", cell: |r| r.nodes.to_string() },
    TableColumn { letter: 't', header: "TRUE", help: "", cell: |r| output::format_number(r.truth) },
    TableColumn { letter: 'p', header: "PREDICTED", help: "", cell: |r| output::format_number(r.predicted) },
    TableColumn { letter: 'l', header: "LOW", help: "", cell: |r| output::format_number(r.low) },
    TableColumn { letter: 'h', header: "HIGH", help: "", cell: |r| output::format_number(r.high) },
    TableColumn {
        letter: 'e',
        header: "ERROR",
        help: "",
        cell: |r| percent::signed_percent(r.predicted / r.truth - 1.0),
    },
];

fn parse_noise(text: &str) -> Result<f64, String> {
    let noise = text.parse().ok().filter(|n| (0.0..=MAX_NOISE).contains(n));
    noise.ok_or_else(|| format!("expected a number from 0 to {MAX_NOISE}"))
}

/// Runs `infill advise` with the site's settings of the advisor.
pub fn run(args: &AdviseArgs, config: Option<&Path>) -> CommandResult {
    match (&args.curve, args.types.is_wanted()) {
        (Some(curve), _) => advise_curve(args, curve, config),
        (None, true) => types::advise_types(args),
        (None, false) if args.plans.held_out => held_out::advise_held_out(args),
        (None, false) => plans::advise_plans(args),
    }
}

fn advise_curve(args: &AdviseArgs, curve: &Path, config: Option<&Path>) -> CommandResult {
    let config = Config::load(config)?;
    let table =
        traces::read_throughputs(curve, args.max_nodes).map_err(|e| ProgramExit::Input.caused_by(e))?;
    let verdict = run_curve_trial(args, &config, &table)?;
    if args.json {
        let document =
            AdviseDocument { schema: SCHEMA_VERSION, verdict: &verdict, unmeasured: table.unmeasured };
        output::print_json(&document)?;
    } else {
        let mut text = render_trial(&verdict, &table)?;
        if args.draw {
            let width = output::terminal_width().unwrap_or(output::DEFAULT_WIDTH);
            let drawn = terminal_curve::draw_terminal_curve(
                &curve_picture(&verdict),
                width,
                output::wants_colours(&std::io::stdout()),
            );
            text = format!("{text}\n{drawn}");
        }
        output::print_text(&text)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn run_curve_trial(
    args: &AdviseArgs,
    config: &Config,
    table: &MeasuredThroughputs,
) -> Result<CurveTrialResult, CommandFailure> {
    let trial = CurveTrial {
        table: table.points.clone(),
        noise: args.noise,
        seed: args.seed,
        costs: config.planner.costs,
        settings: config.advisor.clone(),
    };
    trial.run().ok_or_else(|| {
        ProgramExit::Failed.caused_by(anyhow::anyhow!("nothing can be measured with such noise"))
    })
}

fn render_trial(verdict: &CurveTrialResult, table: &MeasuredThroughputs) -> Result<String, CommandFailure> {
    let start = [TrialRow { what: "start", probe: verdict.start }];
    let probes = verdict.probes.iter().map(|p| TrialRow { what: "probe", probe: *p });
    let tries: Vec<TrialRow> = start.into_iter().chain(probes).collect();
    let unmeasured = match table.unmeasured {
        0 => String::new(),
        n => format!(" ({n} more without a measurement)"),
    };
    Ok(format!(
        "sizes   {}{unmeasured}\nprobes  {}, {} s in all\nmodel   {}\nerror   {} on average over all sizes\n\n{}\n{}",
        table.points.len(),
        verdict.probes.len(),
        output::format_number(verdict.probe_secs),
        verdict.model,
        percent::sentence_percent(verdict.mape),
        filter::render_full_table("%w %.n %.s %.r", TRIED_COLUMNS, &tries)?,
        filter::render_full_table("%.n %.t %.p %.l %.h %.e", SIZE_COLUMNS, &verdict.curve)?,
    ))
}

fn curve_picture(verdict: &CurveTrialResult) -> CurveFigure {
    let mut tried: Vec<TriedSize> = verdict.probes.iter().copied().chain([verdict.start]).collect();
    tried.sort_by_key(|p| p.nodes);
    CurveFigure {
        title: "advise".to_owned(),
        measured: tried
            .into_iter()
            .map(|p| CurveRow { nodes: p.nodes, rate: p.rate, low: p.rate, high: p.rate })
            .collect(),
        curve: verdict
            .curve
            .iter()
            .map(|r| CurveRow { nodes: r.nodes, rate: r.predicted, low: r.low, high: r.high })
            .collect(),
        truth: verdict.curve.iter().map(|r| CurvePoint { nodes: r.nodes, rate: r.truth }).collect(),
        now: None,
    }
}
