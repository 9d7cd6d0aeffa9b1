//! `infill simulate --machine`: compares policies on a closed machine.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;

use super::args::{LengthKnowledge, SimulateArgs};
use super::show;
use super::threads;
use infill_advisor::type_trial::best_estimates;
use infill_api::SCHEMA_VERSION;
use infill_model::{ClosedJob, ModelFacts, SpeedRow, config::Config, duration};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    input::parsed_with_warnings,
    output,
    phrases::percent,
    progress::{ProgressLine, ProgressLines, ProgressMeasure},
    table::TableColumn,
};
use infill_sim::closed::{self, ClosedMachine, ClosedOutcome, ClosedPolicyName, ClosedSetup, SpeedTable};
use infill_traces as traces;
use infill_traces::TraceError;

/// Policies that are compared by default.
const DEFAULT_POLICIES: [&str; 6] = ["infill", "infill-known", "static", "rubick", "sia", "fcfs"];

const DEFAULT_FORMAT: &str = "%p %.e %.j %.m %.n %.q %.s %.r %.u %.t";

const CLOSED_COLUMNS: &[TableColumn<ClosedRow>] = &[
    TableColumn { letter: 'p', header: "POLICY", help: "policy", cell: |r| r.policy.clone() },
    TableColumn { letter: 'e', header: "ENDED", help: "jobs that ended", cell: |r| r.ended.to_string() },
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
        letter: 'q',
        header: "QUEUED",
        help: "average time to the first GPUs",
        cell: |r| format_time(r.queue_mean_s),
    },
    TableColumn {
        letter: 's',
        header: "MAKESPAN",
        help: "until the last job ended",
        cell: |r| format_time(r.makespan_s),
    },
    TableColumn {
        letter: 'r',
        header: "RESTARTS",
        help: "changes of running jobs",
        cell: |r| r.restarts.to_string(),
    },
    TableColumn {
        letter: 'u',
        header: "USE",
        help: "share of the GPU-time held",
        cell: |r| percent::tenths_percent(r.gpu_use),
    },
    TableColumn {
        letter: 't',
        header: "SAMPLES/S",
        help: "samples a second, all jobs",
        cell: |r| output::format_number(r.throughput),
    },
];

/// `infill simulate --machine --json`.
#[derive(Debug, Serialize)]
struct ClosedDocument {
    schema: u32,
    machine: String,
    gpus: u32,
    jobs: usize,
    restart_s: f64,
    seed: u64,
    policies: Vec<ClosedRow>,
}

/// The results of one policy. Times count from the submission of jobs, for the jobs that ended.
#[derive(Clone, Debug, Serialize)]
struct ClosedRow {
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

impl ClosedRow {
    fn from_outcome(outcome: &ClosedOutcome, wall_s: Option<f64>) -> ClosedRow {
        ClosedRow {
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

fn format_time(secs: f64) -> String {
    duration::format_duration(secs.round())
}

/// Simulates the policies on this machine and prints the results.
pub fn simulate_closed(args: &SimulateArgs, machine: &ClosedMachine, config: &Config) -> CommandResult {
    let policies = args.named_policies(&DEFAULT_POLICIES).into_iter().map(str::parse);
    let policies: Vec<ClosedPolicyName> =
        policies.collect::<Result<_, _>>().map_err(|e| ProgramExit::Usage.caused_by(e))?;
    args.table.check_format(CLOSED_COLUMNS)?;
    let setup = closed_setup(args, machine, config)?;
    let progress = ProgressLines::new(ProgressMeasure::Jobs(setup.jobs.len()));
    let outcomes =
        threads::simulate_each(&policies, &progress, |policy: ClosedPolicyName, line: &mut ProgressLine| {
            closed::run_closed(&setup, policy.build_policy(&setup), &mut |share| line.set_share(share))
        });
    let rows = outcomes
        .iter()
        .map(|(outcome, secs)| ClosedRow::from_outcome(outcome, args.timings.then_some(*secs)));
    let document = ClosedDocument {
        schema: SCHEMA_VERSION,
        machine: machine.to_string(),
        gpus: machine.gpu_count(),
        jobs: setup.jobs.len(),
        restart_s: setup.restart_secs,
        seed: args.seed,
        policies: rows.collect(),
    };
    show::print_document(
        &args.table,
        &document,
        (DEFAULT_FORMAT, CLOSED_COLUMNS, &document.policies),
        &heading_lines(&document),
    )
}

fn heading_lines(document: &ClosedDocument) -> [String; 3] {
    [
        format!("machine   {}, {} GPUs", document.machine, document.gpus),
        format!("jobs      {}", document.jobs),
        format!("restarts  {} s each; seed {}", document.restart_s, document.seed),
    ]
}

fn closed_setup(
    args: &SimulateArgs,
    machine: &ClosedMachine,
    config: &Config,
) -> Result<ClosedSetup, CommandFailure> {
    let plans = args.closed.plans.as_ref().ok_or_else(|| missing_flag("--plans"))?;
    let rows = traces::read_speeds(plans).map_err(|e| ProgramExit::Input.caused_by(e))?;
    let workload = args.supply.workload.as_ref().ok_or_else(|| missing_flag("--workload"))?;
    let mut jobs = parsed_with_warnings(workload, traces::read_closed_jobs(workload))?;
    let facts = match &args.closed.facts {
        Some(path) => model_facts(path, &rows)?,
        None => BTreeMap::new(),
    };
    let estimated = args.closed.estimates.as_deref().map(traces::read_estimates).transpose();
    let estimated = estimated.map_err(|e| ProgramExit::Input.caused_by(e))?.unwrap_or_default();
    let estimates = best_estimates(&rows, &estimated);
    let speeds = SpeedTable::new(rows, machine);
    leave_out_unrunnable(&mut jobs, &speeds)?;
    Ok(ClosedSetup {
        machine: machine.clone(),
        jobs,
        speeds,
        config: config.clone(),
        facts,
        estimates,
        restart_secs: args.closed.restart,
        work: args.closed.scale_work,
        speed_up: args.closed.speed_up,
        knows_lengths: args.closed.lengths == LengthKnowledge::Known,
        most_secs: args.closed.secs,
        noise: args.noise.clamp(0.0, 1.0),
        seed: args.seed,
    })
}

fn missing_flag(flag: &str) -> CommandFailure {
    ProgramExit::Usage.caused_by(anyhow!("--machine needs {flag}"))
}

/// Leaves out jobs whose model cannot run on the machine, and reports them.
fn leave_out_unrunnable(jobs: &mut Vec<ClosedJob>, speeds: &SpeedTable) -> Result<(), CommandFailure> {
    let (fit, others): (Vec<ClosedJob>, Vec<ClosedJob>) =
        std::mem::take(jobs).into_iter().partition(|job| can_run(speeds, job));
    *jobs = fit;
    let Some(first) = others.first() else { return Ok(()) };
    let what = format!(
        "{} whose model has no row in --plans that fits the machine, such as {} of {}",
        output::counted_noun(others.len() as u64, "job"),
        first.model,
        first.name
    );
    if jobs.is_empty() {
        return Err(ProgramExit::Input.caused_by(anyhow!("nothing to simulate: {what}")));
    }
    eprintln!("infill: left out: {what}");
    Ok(())
}

/// Whether the machine could run the job if it were empty.
fn can_run(speeds: &SpeedTable, job: &ClosedJob) -> bool {
    speeds.for_model(&job.model).is_some_and(|m| m.run_choices().next().is_some())
}

/// The facts that the file has about the models of these rows. It need not have them for all models.
fn model_facts(path: &Path, rows: &[SpeedRow]) -> Result<BTreeMap<String, ModelFacts>, CommandFailure> {
    let mut found = BTreeMap::new();
    for row in rows {
        if found.contains_key(&row.model) {
            continue;
        }
        match traces::read_model_facts(path, &row.model) {
            Ok(facts) => _ = found.insert(row.model.clone(), facts),
            Err(TraceError::NoSuchModel { .. }) => {}
            Err(e) => return Err(ProgramExit::Input.caused_by(e)),
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

    fn outcome(policy: &str) -> ClosedOutcome {
        let job =
            |name: &str, ended| JobOutcome { name: name.to_owned(), submitted: 0.0, started: 30.0, ended };
        ClosedOutcome {
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

    fn document() -> ClosedDocument {
        ClosedDocument {
            schema: SCHEMA_VERSION,
            machine: "8x8:a800".to_owned(),
            gpus: 64,
            jobs: 3,
            restart_s: 260.0,
            seed: 1,
            policies: vec![ClosedRow::from_outcome(&outcome("infill"), None)],
        }
    }

    #[test]
    fn the_page() {
        let document = document();
        let table = (DEFAULT_FORMAT, CLOSED_COLUMNS, document.policies.as_slice());
        let text = show::headed_table(&TableArgs::default(), table, &heading_lines(&document)).unwrap();
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
        let machine: ClosedMachine = "8x8:a800".parse().unwrap();
        let setup = ClosedSetup {
            speeds: SpeedTable::new(traces::read_speeds(&plans).unwrap(), &machine),
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
        let outcome =
            closed::run_closed(&setup, ClosedPolicyName::InfillKnown.build_policy(&setup), &mut |_| ());
        assert_eq!(outcome.jobs.len(), 232);
        assert!(outcome.jct_mean() < 0.9 * 762.5, "{}", outcome.jct_mean());
        assert!(outcome.makespan_secs <= 50_700.0, "{}", outcome.makespan_secs);
    }
}
