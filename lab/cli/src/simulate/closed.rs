//! `infill simulate --machine`: a closed machine, several policies side by side.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;

use super::args::{Lengths, SimulateArgs};
use super::show;
use super::threads;
use infill_advisor::types::best_estimates;
use infill_api::SCHEMA;
use infill_model::{ClosedJob, ModelFacts, SpeedRow, config::Config, duration};
use infill_present::{
    exit::{CommandResult, Exit, Failure},
    filter,
    input::told,
    output,
    progress::{Line, Measure, Progress},
    table::Column,
    words::percent,
};
use infill_sim::closed::{self, ClosedPolicy, Machine, Outcome, Setup, Speeds};
use infill_traces as traces;
use infill_traces::TraceError;

/// Policies that are compared where none is named.
const USUAL: [&str; 6] = ["infill", "infill-known", "static", "rubick", "sia", "fcfs"];

const DEFAULT: &str = "%p %.e %.j %.m %.n %.q %.s %.r %.u %.t";

const COLUMNS: &[Column<Row>] = &[
    Column { letter: 'p', header: "POLICY", help: "policy", cell: |r| r.policy.clone() },
    Column { letter: 'e', header: "ENDED", help: "jobs that ended", cell: |r| r.ended.to_string() },
    Column { letter: 'j', header: "JCT", help: "average completion time", cell: |r| time(r.jct_mean_s) },
    Column { letter: 'm', header: "MEDIAN", help: "its median", cell: |r| time(r.jct_median_s) },
    Column { letter: 'n', header: "P99", help: "its 99th percentile", cell: |r| time(r.jct_p99_s) },
    Column {
        letter: 'q',
        header: "QUEUED",
        help: "average time to the first GPUs",
        cell: |r| time(r.queue_mean_s),
    },
    Column {
        letter: 's',
        header: "MAKESPAN",
        help: "until the last job ended",
        cell: |r| time(r.makespan_s),
    },
    Column {
        letter: 'r',
        header: "RESTARTS",
        help: "changes of running jobs",
        cell: |r| r.restarts.to_string(),
    },
    Column {
        letter: 'u',
        header: "USE",
        help: "share of the GPU-time held",
        cell: |r| percent::tenths(r.gpu_use),
    },
    Column {
        letter: 't',
        header: "SAMPLES/S",
        help: "samples a second, all jobs",
        cell: |r| output::number(r.throughput),
    },
];

/// `infill simulate --machine --json`.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    machine: String,
    gpus: u32,
    jobs: usize,
    restart_s: f64,
    seed: u64,
    policies: Vec<Row>,
}

/// What one policy made of it. Times of jobs are from their submission, and of those that ended.
#[derive(Clone, Debug, Serialize)]
struct Row {
    policy: String,
    ended: usize,
    jct_mean_s: f64,
    jct_median_s: f64,
    jct_p99_s: f64,
    queue_mean_s: f64,
    makespan_s: f64,
    restarts: u64,
    gpu_use: f64,
    samples: f64,
    throughput: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_s: Option<f64>,
}

impl Row {
    fn of(outcome: &Outcome, wall_s: Option<f64>) -> Row {
        Row {
            policy: outcome.policy.clone(),
            ended: outcome.jobs.len(),
            jct_mean_s: outcome.jct_mean(),
            jct_median_s: outcome.jct_at(0.5),
            jct_p99_s: outcome.jct_at(0.99),
            queue_mean_s: outcome.queue_mean(),
            makespan_s: outcome.makespan_secs,
            restarts: outcome.restarts,
            gpu_use: outcome.gpu_use,
            samples: outcome.samples,
            throughput: outcome.throughput(),
            wall_s,
        }
    }
}

fn time(secs: f64) -> String {
    duration::format_duration(secs.round())
}

/// Simulates.
pub fn run(args: &SimulateArgs, machine: &Machine, config: &Config) -> CommandResult {
    let policies = args.policies(&USUAL).into_iter().map(str::parse);
    let policies: Vec<ClosedPolicy> =
        policies.collect::<Result<_, _>>().map_err(|e| Exit::Usage.because(e))?;
    filter::render(&args.table, DEFAULT, COLUMNS, &[])?;
    let setup = setup(args, machine, config)?;
    let progress = Progress::new(Measure::Jobs(setup.jobs.len()));
    let simulate = |policy: ClosedPolicy, line: &mut Line| {
        closed::run(&setup, policy.build(&setup), &mut |share| line.at(share))
    };
    let outcomes = threads::each(&policies, &progress, simulate);
    let rows = outcomes.iter().map(|(outcome, secs)| Row::of(outcome, args.timings.then_some(*secs)));
    let document = Document {
        schema: SCHEMA,
        machine: machine.to_string(),
        gpus: machine.gpus(),
        jobs: setup.jobs.len(),
        restart_s: setup.restart_secs,
        seed: args.seed,
        policies: rows.collect(),
    };
    show::print(&args.table, &document, (DEFAULT, COLUMNS, &document.policies), &head(&document))
}

fn head(document: &Document) -> [String; 3] {
    [
        format!("machine   {}, {} GPUs", document.machine, document.gpus),
        format!("jobs      {}", document.jobs),
        format!("restarts  {} s each; seed {}", document.restart_s, document.seed),
    ]
}

fn setup(args: &SimulateArgs, machine: &Machine, config: &Config) -> Result<Setup, Failure> {
    let missing = |flag: &str| Exit::Usage.because(anyhow!("--machine needs {flag}"));
    let path = args.closed.plans.as_ref().ok_or_else(|| missing("--plans"))?;
    let rows = traces::read_speeds(path).map_err(|e| Exit::Input.because(e))?;
    let workload = args.supply.workload.as_ref().ok_or_else(|| missing("--workload"))?;
    let mut jobs = told(workload, traces::read_closed_jobs(workload))?;
    let facts = args.closed.facts.as_ref().map_or_else(|| Ok(BTreeMap::new()), |path| facts(path, &rows))?;
    let estimates = args.closed.estimates.as_deref().map(traces::read_estimates).transpose();
    let estimates =
        best_estimates(&rows, &estimates.map_err(|e| Exit::Input.because(e))?.unwrap_or_default());
    let speeds = Speeds::new(rows, machine);
    leave_out(&mut jobs, &speeds)?;
    Ok(Setup {
        machine: machine.clone(),
        jobs,
        speeds,
        config: config.clone(),
        facts,
        estimates,
        restart_secs: args.closed.restart,
        work: args.closed.scale_work,
        speed_up: args.closed.speed_up,
        knows_lengths: args.closed.lengths == Lengths::Known,
        most_secs: args.closed.secs,
        noise: args.noise.clamp(0.0, 1.0),
        seed: args.seed,
    })
}

/// Leaves out jobs of models that are known to run nowhere on the machine, and tells of them.
fn leave_out(jobs: &mut Vec<ClosedJob>, speeds: &Speeds) -> Result<(), Failure> {
    let (fit, others): (Vec<ClosedJob>, Vec<ClosedJob>) =
        std::mem::take(jobs).into_iter().partition(|job| can_run(speeds, job));
    *jobs = fit;
    let Some(first) = others.first() else { return Ok(()) };
    let what = format!(
        "{} of models of which no row of --plans fits the machine, such as {} of {}",
        output::counted(others.len() as u64, "job"),
        first.model,
        first.name
    );
    if jobs.is_empty() {
        return Err(Exit::Input.because(anyhow!("nothing to simulate: {what}")));
    }
    eprintln!("infill: left out: {what}");
    Ok(())
}

/// Whether the machine could run the job if it were empty.
fn can_run(speeds: &Speeds, job: &ClosedJob) -> bool {
    speeds.of(&job.model).is_some_and(|m| m.choices().next().is_some())
}

/// What the file says of the models of these rows; of some it may say nothing.
fn facts(path: &Path, rows: &[SpeedRow]) -> Result<BTreeMap<String, ModelFacts>, Failure> {
    let mut found = BTreeMap::new();
    for row in rows {
        if found.contains_key(&row.model) {
            continue;
        }
        match traces::read_model_facts(path, &row.model) {
            Ok(facts) => _ = found.insert(row.model.clone(), facts),
            Err(TraceError::NoSuchModel { .. }) => {}
            Err(e) => return Err(Exit::Input.because(e)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_present::filter::TableArgs;
    use infill_sim::closed::JobOutcome;
    use infill_testkit::data_files;

    fn outcome(policy: &str) -> Outcome {
        let job =
            |name: &str, ended| JobOutcome { name: name.to_owned(), submitted: 0.0, started: 30.0, ended };
        Outcome {
            policy: policy.to_owned(),
            jobs: vec![job("a", 600.0), job("b", 7200.0)],
            submitted: 3,
            makespan_secs: 7200.0,
            restarts: 5,
            samples: 1e6,
            gpu_secs: 4e5,
            gpu_use: 0.868,
        }
    }

    fn document() -> Document {
        Document {
            schema: SCHEMA,
            machine: "8x8:a800".to_owned(),
            gpus: 64,
            jobs: 3,
            restart_s: 260.0,
            seed: 1,
            policies: vec![Row::of(&outcome("infill"), None)],
        }
    }

    #[test]
    fn the_page() {
        let document = document();
        let table = (DEFAULT, COLUMNS, document.policies.as_slice());
        let text = show::headed(&TableArgs::default(), table, &head(&document)).unwrap();
        insta::assert_snapshot!(text, @r"
        machine   8x8:a800, 64 GPUs
        jobs      3
        restarts  260 s each; seed 1

        POLICY ENDED     JCT MEDIAN     P99 QUEUED MAKESPAN RESTARTS   USE SAMPLES/S
        infill     2 1:05:00  10:00 2:00:00   0:30  2:00:00        5 86.8%       139
        ");
    }

    #[test]
    fn the_document() {
        let json = serde_json::to_value(document()).unwrap();
        let policy = &json["policies"][0];
        assert_eq!((&policy["policy"], &policy["ended"]), (&"infill".into(), &2.into()));
        assert_eq!((&policy["jct_mean_s"], &policy["jct_median_s"]), (&3900.0.into(), &600.0.into()));
        assert_eq!((&policy["jct_p99_s"], &policy["makespan_s"]), (&7200.0.into(), &7200.0.into()));
        assert_eq!((&policy["restarts"], &policy["gpu_use"]), (&5.into(), &0.868.into()));
        assert_eq!((&policy["samples"], policy.get("wall_s")), (&1e6.into(), None));
    }

    /// Rubick's jobs, where they are at hand (`INFILL_DATA`, else `../shared/data`): its own simulator, run
    /// on the 232 of them whose models are in the tables, has an average completion time of 762.5 s and a
    /// makespan of 50,700 s.
    #[test]
    fn published_jobs_end_sooner() {
        let names = ["plans/rubick/plans.csv", "plans/rubick/jobs.csv"];
        let Some([plans, jobs]) = data_files(names) else { return };
        let machine: Machine = "8x8:a800".parse().unwrap();
        let setup = Setup {
            speeds: Speeds::new(traces::read_speeds(&plans).unwrap(), &machine),
            machine,
            jobs: traces::read_closed_jobs(&jobs).unwrap().value,
            config: Config::default(),
            facts: BTreeMap::new(),
            estimates: Vec::new(),
            restart_secs: 260.0,
            work: 1.0,
            speed_up: 1.0,
            knows_lengths: true,
            most_secs: None,
            noise: 0.02,
            seed: 1,
        };
        let outcome = closed::run(&setup, ClosedPolicy::InfillKnown.build(&setup), &mut |_| ());
        assert_eq!(outcome.jobs.len(), 232);
        assert!(outcome.jct_mean() < 0.9 * 762.5, "{}", outcome.jct_mean());
        assert!(outcome.makespan_secs <= 50_700.0, "{}", outcome.makespan_secs);
    }
}
