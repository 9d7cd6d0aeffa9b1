//! `infill simulate --machine --order`: compares orders of one queue of jobs of fixed size, with lengths that
//! are predicted at submission.

use std::hash::{Hash, Hasher};

use anyhow::anyhow;
use rustc_hash::FxHasher;
use serde::Serialize;

use super::args::SimulateArgs;
use super::show;
use super::threads;
use infill_advisor::length::{BacktestConfig, LengthDistribution, PredictedJob, run_backtest};
use infill_api::SCHEMA_VERSION;
use infill_model::{PastJob, Submission, duration};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    input::parsed_with_warnings,
    output,
    progress::{ProgressLine, ProgressLines, ProgressMeasure},
    table::TableColumn,
};
use infill_sim::{
    closed::ClosedMachine,
    order::{OrderOutcome, QueueOrder, RigidJob, simulate_order},
};
use infill_traces as traces;

/// Number of jobs before the first simulated one from which the site's distribution of lengths is computed.
const SITE_JOBS: usize = 5000;

/// Number of atoms of that distribution.
const SITE_ATOMS: usize = 16;

const DEFAULT_FORMAT: &str = "%p %.j %.m %.n %.s %.t";

const ORDER_COLUMNS: &[TableColumn<OrderRow>] = &[
    TableColumn { letter: 'p', header: "ORDER", help: "order", cell: |r| r.policy.clone() },
    TableColumn {
        letter: 'j',
        header: "JCT",
        help: "average completion time",
        cell: |r| format_time(r.jct_mean_s),
    },
    TableColumn { letter: 'm', header: "MEDIAN", help: "its median", cell: |r| format_time(r.jct_median_s) },
    TableColumn {
        letter: 'n',
        header: "P99",
        help: "its 99th percentile",
        cell: |r| format_time(r.jct_p99_s),
    },
    TableColumn {
        letter: 's',
        header: "MAKESPAN",
        help: "until the last job ended",
        cell: |r| format_time(r.makespan_s),
    },
    TableColumn {
        letter: 't',
        header: "STOPS",
        help: "stops a job",
        cell: |r| format!("{:.2}", r.stops_per_job),
    },
];

/// `infill simulate --machine --order --json`.
#[derive(Debug, Serialize)]
struct OrderDocument {
    schema: u32,
    machine: String,
    units: u32,
    jobs: usize,
    load: f64,
    stop_s: f64,
    mix: f64,
    seed: u64,
    policies: Vec<OrderRow>,
}

/// The results of one order.
#[derive(Clone, Debug, Serialize)]
struct OrderRow {
    policy: String,
    jct_mean_s: f64,
    jct_median_s: f64,
    jct_p99_s: f64,
    makespan_s: f64,
    stops_per_job: f64,
}

impl OrderRow {
    fn from_outcome(outcome: &OrderOutcome) -> OrderRow {
        OrderRow {
            policy: outcome.order.name().to_owned(),
            jct_mean_s: outcome.jct_mean(),
            jct_median_s: outcome.jct_at(0.5),
            jct_p99_s: outcome.jct_at(0.99),
            makespan_s: outcome.makespan_secs,
            stops_per_job: outcome.stops_per_job(),
        }
    }
}

fn format_time(secs: f64) -> String {
    duration::format_duration(secs.round())
}

/// Simulates the orders on this machine and prints the results.
pub fn simulate_orders(args: &SimulateArgs, machine: &ClosedMachine) -> CommandResult {
    let orders = &args.closed.order;
    args.table.check_format(ORDER_COLUMNS)?;
    let units = machine.gpu_count();
    let jobs = rigid_jobs(args, units)?;
    let progress = ProgressLines::new(ProgressMeasure::Jobs(jobs.len()));
    let outcomes = threads::simulate_each(orders, &progress, |order: QueueOrder, line: &mut ProgressLine| {
        simulate_order(&jobs, units, order, args.closed.stop, &mut |share| line.set_share(share))
    });
    let span = jobs.last().zip(jobs.first()).map_or(0.0, |(last, first)| last.at - first.at);
    let work: f64 = jobs.iter().map(|j| j.secs * f64::from(j.size)).sum();
    let document = OrderDocument {
        schema: SCHEMA_VERSION,
        machine: machine.to_string(),
        units,
        jobs: jobs.len(),
        load: work / (span * f64::from(units)).max(1.0),
        stop_s: args.closed.stop,
        mix: args.closed.mix,
        seed: args.seed,
        policies: outcomes.iter().map(|(outcome, _)| OrderRow::from_outcome(outcome)).collect(),
    };
    show::print_document(
        &args.table,
        &document,
        (DEFAULT_FORMAT, ORDER_COLUMNS, &document.policies),
        &heading_lines(&document),
    )
}

fn heading_lines(document: &OrderDocument) -> [String; 3] {
    let OrderDocument { machine, units, jobs, load, stop_s, mix, seed, .. } = document;
    [
        format!("machine   {machine}, {units} units; load {load:.2}"),
        format!("jobs      {jobs}, {mix:.0} % of their kinds predicted"),
        format!("stops     {stop_s} s each; seed {seed}"),
    ]
}

/// The jobs to simulate: those with a prediction. Their sizes count GPUs if the log has any, else nodes.
fn rigid_jobs(args: &SimulateArgs, units: u32) -> Result<Vec<RigidJob>, CommandFailure> {
    let path = args
        .supply
        .workload
        .as_ref()
        .ok_or_else(|| ProgramExit::Usage.caused_by(anyhow!("--order needs --workload")))?;
    let log = parsed_with_warnings(path, traces::read_history(path))?;
    let how = BacktestConfig { seed: args.seed, ..BacktestConfig::default() };
    let progress = ProgressLines::new(ProgressMeasure::Jobs(log.len() - how.training_jobs(log.len())));
    let mut line = progress.add_line("predicting");
    let predicted = run_backtest(&log, &how, &mut |share| line.set_share(share))
        .map_err(|e| ProgramExit::Input.caused_by(e))?;
    let first = predicted.first().map_or(log.len(), |p| p.index);
    let site = site_lengths(&log[first.saturating_sub(SITE_JOBS)..first]);
    let on_gpus = log.iter().any(|past| past.job.gpus > 0);
    let mut too_large = 0;
    let mut jobs = Vec::new();
    for PredictedJob { index, raw, .. } in predicted {
        let PastJob { job, secs, .. } = &log[index];
        let size = if on_gpus { job.gpus } else { job.nodes.max(1) };
        if size == 0 {
            continue;
        }
        if size > units {
            too_large += 1;
            continue;
        }
        let known = hash_percentile(job, size) < args.closed.mix;
        let lengths = match (&site, known) {
            (Some(site), false) => site.clone(),
            _ => raw,
        };
        jobs.push(RigidJob { at: job.submitted_at, secs: secs.max(1.0), size, lengths, known });
    }
    if too_large > 0 {
        eprintln!("infill: left out: {} larger than the machine", output::counted_noun(too_large, "job"));
    }
    if jobs.is_empty() {
        return Err(ProgramExit::Input.caused_by(anyhow!("{}: no job is left to simulate", path.display())));
    }
    Ok(jobs)
}

/// The distribution of the lengths of these jobs.
fn site_lengths(past: &[PastJob]) -> Option<LengthDistribution> {
    LengthDistribution::from_weighted(past.iter().map(|p| (p.secs.max(1.0).ln(), 1.0)).collect(), SITE_ATOMS)
}

/// A number from 0 to 99 for all jobs of a user, name and size: the same in every run.
fn hash_percentile(job: &Submission, size: u32) -> f64 {
    let mut hasher = FxHasher::default();
    (&job.user, &job.name, size).hash(&mut hasher);
    (hasher.finish() % 100) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_present::filter::TableArgs;

    #[test]
    fn the_page() {
        let outcome = OrderOutcome {
            order: QueueOrder::Gittins,
            jct_secs: vec![600.0, 7200.0],
            stops: 3,
            makespan_secs: 9000.0,
        };
        let document = OrderDocument {
            schema: SCHEMA_VERSION,
            machine: "468x1".to_owned(),
            units: 468,
            jobs: 2,
            load: 1.3,
            stop_s: 30.0,
            mix: 50.0,
            seed: 1,
            policies: vec![OrderRow::from_outcome(&outcome)],
        };
        let table = (DEFAULT_FORMAT, ORDER_COLUMNS, document.policies.as_slice());
        let text = show::headed_table(&TableArgs::default(), table, &heading_lines(&document)).unwrap();
        insta::assert_snapshot!(text, @r"
        machine   468x1, 468 units; load 1.30
        jobs      2, 50 % of their kinds predicted
        stops     30 s each; seed 1

        ORDER       JCT  MEDIAN     P99 MAKESPAN STOPS
        gittins 1:05:00 1:05:00 1:58:54  2:30:00  1.50
        ");
    }

    #[test]
    fn which_kinds_are_predicted_is_the_same_in_every_run() {
        let job = |user: &str| Submission { user: user.to_owned(), ..Submission::default() };
        let shares: Vec<f64> = (0..1000).map(|i| hash_percentile(&job(&format!("u{i}")), 4)).collect();
        let half = shares.iter().filter(|share| **share < 50.0).count();
        assert!((400..600).contains(&half), "{half}");
        assert_eq!(hash_percentile(&job("alice"), 4), hash_percentile(&job("alice"), 4));
    }
}
