//! `infill advise --held-out`: how well the plans of a program are known that nothing was fitted to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::AdviseArgs;
use infill_advisor::plans::trial::{PlanTrial, PlanVerdict};
use infill_advisor::plans::{PlanPriors, prior::Measured};
use infill_api::SCHEMA;
use infill_model::{ModelFacts, PlanMeasurement};
use infill_present::{
    exit::{CommandResult, Exit, Failure},
    filter, output,
    table::Column,
    words::percent,
};
use infill_traces as traces;

/// Trials of each program, with seeds from 1.
const SEEDS: u64 = 20;

/// A program that was measured, and what is known of its model.
pub(super) struct Program {
    name: String,
    runs: Vec<PlanMeasurement>,
    facts: Option<ModelFacts>,
}

/// How well one program is known after a few measurements, when priors were fitted to all others: means over
/// all trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// The program.
    pub(super) program: String,
    /// Its rows.
    pub(super) rows: usize,
    /// Mean absolute relative error of the rates that were not measured.
    pub(super) error: f64,
    /// Rate of the plan that is chosen for a number of GPUs ÷ the best plan's, over all numbers with several.
    pub(super) chosen: f64,
    /// Share of the rates not measured that lie in their 90 % intervals.
    pub(super) covered: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    programs: &'a [Row],
}

const ROWS: &[Column<Row>] = &[
    Column { letter: 'p', header: "HELD OUT", help: "", cell: |r| r.program.clone() },
    Column { letter: 'r', header: "ROWS", help: "", cell: |r| r.rows.to_string() },
    Column { letter: 'e', header: "ERROR", help: "", cell: |r| percent::in_text(r.error) },
    Column { letter: 'c', header: "CHOSEN ÷ BEST", help: "", cell: |r| percent::in_text(r.chosen) },
    Column { letter: 'i', header: "IN 90 % INTERVAL", help: "", cell: |r| percent::in_text(r.covered) },
];

/// Runs it.
pub(super) fn run(args: &AdviseArgs) -> CommandResult {
    let programs = read(&args.plans.plans, &args.plans.facts)?;
    let rows = held_out(&programs, args.noise, args.plans.measurements as usize, SEEDS);
    if args.json {
        output::print_json(&Document { schema: SCHEMA, programs: &rows })?;
    } else {
        output::print(&show(&rows)?)?;
    }
    Ok(Exit::Ok.code())
}

/// All programs of some files, with the facts that other files have of their models.
pub(super) fn read(plans: &[PathBuf], facts: &[PathBuf]) -> Result<Vec<Program>, Failure> {
    let mut programs = Vec::new();
    for path in plans {
        for (name, runs) in traces::read_programs(path).map_err(|e| Exit::Input.because(e))? {
            let model = name.split(' ').next().unwrap_or_default();
            let known = facts.iter().find_map(|path| traces::read_model_facts(path, model).ok());
            programs.push(Program { name, runs, facts: known });
        }
    }
    Ok(programs)
}

/// Tries each program with priors fitted to all others.
pub(super) fn held_out(programs: &[Program], noise: f64, measurements: usize, seeds: u64) -> Vec<Row> {
    let several = |program: &&Program| program.runs.len() > measurements;
    let of = |program: &Program| {
        let others = programs.iter().filter(|p| p.name != program.name);
        let others: Vec<Measured<'_>> = others.map(|p| (p.runs.as_slice(), p.facts)).collect();
        let priors = PlanPriors::fitted(&others);
        let verdicts = (1..=seeds).filter_map(|seed| {
            let (runs, facts, priors) = (program.runs.clone(), program.facts, priors.clone());
            PlanTrial { runs, facts, noise, seed, measurements, priors }.run()
        });
        row(program, &verdicts.collect::<Vec<PlanVerdict>>())
    };
    programs.iter().filter(several).map(of).collect()
}

fn row(program: &Program, verdicts: &[PlanVerdict]) -> Row {
    let mean = |of: &dyn Fn(&PlanVerdict) -> f64| {
        verdicts.iter().map(of).sum::<f64>() / verdicts.len().max(1) as f64
    };
    let mut choices: BTreeMap<u32, u32> = BTreeMap::new();
    program.runs.iter().for_each(|run| *choices.entry(run.gpus()).or_default() += 1);
    let chosen = |verdict: &PlanVerdict| {
        let open = verdict.chosen.iter().filter(|c| choices.get(&c.place.gpus).is_some_and(|n| *n > 1));
        let shares: Vec<f64> = open.map(|c| c.true_share_of_best).collect();
        if shares.is_empty() { 1.0 } else { shares.iter().sum::<f64>() / shares.len() as f64 }
    };
    let covered = |verdict: &PlanVerdict| {
        let others: Vec<bool> = verdict
            .points
            .iter()
            .filter(|p| !p.measured)
            .map(|p| (p.low..=p.high).contains(&p.truth))
            .collect();
        others.iter().filter(|inside| **inside).count() as f64 / others.len().max(1) as f64
    };
    Row {
        program: program.name.clone(),
        rows: program.runs.len(),
        error: mean(&|verdict| verdict.mape),
        chosen: mean(&chosen),
        covered: mean(&covered),
    }
}

fn show(rows: &[Row]) -> Result<String, Failure> {
    filter::whole("%p %.r %.e %.c %.i", ROWS, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::data_files;

    fn tables() -> Option<Vec<Program>> {
        let [rubick, bigscience, h100, of_rubick, of_bigscience] = data_files([
            "plans/rubick/plans.csv",
            "plans/bigscience/plans.csv",
            "gpu/plans-h100.csv",
            "plans/rubick/models.csv",
            "plans/bigscience/models.csv",
        ])?;
        Some(read(&[rubick, bigscience, h100.clone()], &[of_rubick, of_bigscience, h100]).unwrap())
    }

    #[test]
    fn what_is_usual_follows_from_the_tables() {
        let Some(programs) = tables() else { return };
        let all: Vec<Measured<'_>> = programs.iter().map(|p| (p.runs.as_slice(), p.facts)).collect();
        let fitted: Vec<(f64, f64)> = PlanPriors::fitted(&all).numbers().collect();
        let shipped: Vec<(f64, f64)> = PlanPriors::usual().numbers().collect();
        let apart =
            fitted.iter().zip(&shipped).any(|(a, b)| (a.0 - b.0).abs() > 0.02 || (a.1 - b.1).abs() > 0.02);
        let said: Vec<String> = fitted.iter().map(|(mean, sd)| format!("({mean:.2}, {sd:.2})")).collect();
        assert!(!apart, "numbers.rs should say {}", said.join(", "));
    }

    #[test]
    fn programs_are_known_that_nothing_was_fitted_to() {
        let Some(programs) = tables() else { return };
        let rows = held_out(&programs, 0.05, 7, 3);
        // Those on several GPUs.
        let rows: Vec<&Row> = rows.iter().filter(|row| !row.program.starts_with("gpt2")).collect();
        let mut errors: Vec<f64> = rows.iter().map(|row| row.error).collect();
        errors.sort_by(f64::total_cmp);
        let [.., worst] = errors[..] else { panic!("no program") };
        let median = (errors[errors.len() / 2] + errors[(errors.len() - 1) / 2]) / 2.0;
        assert!(rows.len() == 6 && median < 0.08 && worst < 0.13, "{rows:?}");
        let chosen = rows.iter().map(|row| row.chosen).sum::<f64>() / rows.len() as f64;
        assert!(chosen > 0.97, "{rows:?}");
    }
}
