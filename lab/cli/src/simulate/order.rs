//! `infill simulate --machine --order`: one queue of jobs of fixed size under several orders, with lengths as
//! they can be predicted when jobs are submitted.

use std::hash::{Hash, Hasher};

use anyhow::anyhow;
use rustc_hash::FxHasher;
use serde::Serialize;

use super::args::SimulateArgs;
use super::show;
use super::threads;
use infill_advisor::length::{Lengths, Predicted, Walk, walk};
use infill_api::SCHEMA;
use infill_model::{PastJob, Submission, duration};
use infill_present::{
    exit::{CommandResult, Exit, Failure},
    filter,
    input::told,
    output,
    progress::{Line, Measure, Progress},
    table::Column,
};
use infill_sim::{
    closed::Machine,
    order::{Order, Ordered, Rigid, simulate},
};
use infill_traces as traces;

/// Jobs before the first that is simulated whose lengths stand for the site's.
const OF_THE_SITE: usize = 5000;

/// Atoms of that distribution.
const SITE_ATOMS: usize = 16;

const DEFAULT: &str = "%p %.j %.m %.n %.s %.t";

const COLUMNS: &[Column<Row>] = &[
    Column { letter: 'p', header: "ORDER", help: "order", cell: |r| r.policy.clone() },
    Column { letter: 'j', header: "JCT", help: "average completion time", cell: |r| time(r.jct_mean_s) },
    Column { letter: 'm', header: "MEDIAN", help: "its median", cell: |r| time(r.jct_median_s) },
    Column { letter: 'n', header: "P99", help: "its 99th percentile", cell: |r| time(r.jct_p99_s) },
    Column {
        letter: 's',
        header: "MAKESPAN",
        help: "until the last job ended",
        cell: |r| time(r.makespan_s),
    },
    Column { letter: 't', header: "STOPS", help: "stops a job", cell: |r| format!("{:.2}", r.stops_per_job) },
];

/// `infill simulate --machine --order --json`.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    machine: String,
    units: u32,
    jobs: usize,
    load: f64,
    stop_s: f64,
    mix: f64,
    seed: u64,
    policies: Vec<Row>,
}

/// What one order made of it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    policy: String,
    jct_mean_s: f64,
    jct_median_s: f64,
    jct_p99_s: f64,
    makespan_s: f64,
    stops_per_job: f64,
}

impl Row {
    fn of(done: &Ordered) -> Row {
        Row {
            policy: done.order.name().to_owned(),
            jct_mean_s: done.jct_mean(),
            jct_median_s: done.jct_at(0.5),
            jct_p99_s: done.jct_at(0.99),
            makespan_s: done.makespan_secs,
            stops_per_job: done.stops_per_job(),
        }
    }
}

fn time(secs: f64) -> String {
    duration::format_duration(secs.round())
}

/// Simulates.
pub fn run(args: &SimulateArgs, machine: &Machine) -> CommandResult {
    let orders = &args.closed.order;
    filter::render(&args.table, DEFAULT, COLUMNS, &[])?;
    let units = machine.gpus();
    let jobs = jobs(args, units)?;
    let progress = Progress::new(Measure::Jobs(jobs.len()));
    let one = |order: Order, line: &mut Line| {
        simulate(&jobs, units, order, args.closed.stop, &mut |share| line.at(share))
    };
    let outcomes = threads::each(orders, &progress, one);
    let span = jobs.last().zip(jobs.first()).map_or(0.0, |(last, first)| last.at - first.at);
    let work: f64 = jobs.iter().map(|j| j.secs * f64::from(j.size)).sum();
    let document = Document {
        schema: SCHEMA,
        machine: machine.to_string(),
        units,
        jobs: jobs.len(),
        load: work / (span * f64::from(units)).max(1.0),
        stop_s: args.closed.stop,
        mix: args.closed.mix,
        seed: args.seed,
        policies: outcomes.iter().map(|(done, _)| Row::of(done)).collect(),
    };
    show::print(&args.table, &document, (DEFAULT, COLUMNS, &document.policies), &head(&document))
}

fn head(document: &Document) -> [String; 3] {
    let Document { machine, units, jobs, load, stop_s, mix, seed, .. } = document;
    [
        format!("machine   {machine}, {units} units; load {load:.2}"),
        format!("jobs      {jobs}, {mix:.0} % of their kinds predicted"),
        format!("stops     {stop_s} s each; seed {seed}"),
    ]
}

/// The jobs that are simulated: those that were predicted, on GPUs where the log has any.
fn jobs(args: &SimulateArgs, units: u32) -> Result<Vec<Rigid>, Failure> {
    let missing = || Exit::Usage.because(anyhow!("--order needs --workload"));
    let path = args.supply.workload.as_ref().ok_or_else(missing)?;
    let log = told(path, traces::read_history(path))?;
    let how = Walk { seed: args.seed, ..Walk::default() };
    let progress = Progress::new(Measure::Jobs(log.len() - how.only_learned(log.len())));
    let mut line = progress.line("predicting");
    let predicted = walk(&log, &how, &mut |share| line.at(share)).map_err(|e| Exit::Input.because(e))?;
    let first = predicted.first().map_or(log.len(), |p| p.index);
    let site = of_the_site(&log[first.saturating_sub(OF_THE_SITE)..first]);
    let on_gpus = log.iter().any(|past| past.job.gpus > 0);
    let size = |job: &Submission| if on_gpus { job.gpus } else { job.nodes.max(1) };
    let mut too_large = 0;
    let mut jobs = Vec::new();
    for Predicted { index, raw, .. } in predicted {
        let PastJob { job, secs, .. } = &log[index];
        let size = size(job);
        if size == 0 {
            continue;
        }
        if size > units {
            too_large += 1;
            continue;
        }
        let known = share_of(job, size) < args.closed.mix;
        let lengths = match (&site, known) {
            (Some(site), false) => site.clone(),
            _ => raw,
        };
        jobs.push(Rigid { at: job.at, secs: secs.max(1.0), size, lengths, known });
    }
    if too_large > 0 {
        eprintln!("infill: left out: {} larger than the machine", output::counted(too_large, "job"));
    }
    if jobs.is_empty() {
        return Err(Exit::Input.because(anyhow!("{}: no job is left to be ordered", path.display())));
    }
    Ok(jobs)
}

/// The lengths of these jobs, as one distribution.
fn of_the_site(past: &[PastJob]) -> Option<Lengths> {
    Lengths::of_weighted(past.iter().map(|p| (p.secs.max(1.0).ln(), 1.0)).collect(), SITE_ATOMS)
}

/// A number from 0 to 99 for all jobs of a user, name and size: the same in every run.
fn share_of(job: &Submission, size: u32) -> f64 {
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
        let done =
            Ordered { order: Order::Gittins, jct_secs: vec![600.0, 7200.0], stops: 3, makespan_secs: 9000.0 };
        let document = Document {
            schema: SCHEMA,
            machine: "468x1".to_owned(),
            units: 468,
            jobs: 2,
            load: 1.3,
            stop_s: 30.0,
            mix: 50.0,
            seed: 1,
            policies: vec![Row::of(&done)],
        };
        let table = (DEFAULT, COLUMNS, document.policies.as_slice());
        let text = show::headed(&TableArgs::default(), table, &head(&document)).unwrap();
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
        let shares: Vec<f64> = (0..1000).map(|i| share_of(&job(&format!("u{i}")), 4)).collect();
        let half = shares.iter().filter(|share| **share < 50.0).count();
        assert!((400..600).contains(&half), "{half}");
        assert_eq!(share_of(&job("alice"), 4), share_of(&job("alice"), 4));
    }
}
