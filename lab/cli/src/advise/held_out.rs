//! `infill advise --held-out`: errors for the plans of a program that no prior was fitted to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::AdviseArgs;
use infill_advisor::plans::plan_trial::{PlanTrial, PlanTrialResult};
use infill_advisor::plans::{PlanPriors, fitted_priors::MeasuredProgram};
use infill_api::SCHEMA_VERSION;
use infill_model::{ModelFacts, PlanMeasurement};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter, output,
    phrases::percent,
    table::TableColumn,
};
use infill_traces as traces;

/// Trials of each program, with seeds from 1.
const TRIALS_PER_PROGRAM: u64 = 20;

/// A measured program, and the facts about its model.
pub(super) struct HeldOutProgram {
    name: String,
    runs: Vec<PlanMeasurement>,
    facts: Option<ModelFacts>,
}

/// The errors for one program after a few measurements, with priors fitted to all other programs. Means over
/// all trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HeldOutRow {
    /// Name of the program.
    pub(super) program: String,
    /// Number of its rows.
    pub(super) rows: usize,
    /// Mean absolute relative error of the rates that were not measured.
    pub(super) error: f64,
    /// Rate of the chosen plan ÷ rate of the best plan, over all numbers of GPUs with several plans.
    pub(super) chosen: f64,
    /// Share of the unmeasured rates that lie in their 90 % intervals.
    pub(super) covered: f64,
}

#[derive(Serialize)]
struct HeldOutDocument<'a> {
    schema: u32,
    programs: &'a [HeldOutRow],
}

const HELD_OUT_COLUMNS: &[TableColumn<HeldOutRow>] = &[
    TableColumn { letter: 'p', header: "HELD OUT", help: "", cell: |r| r.program.clone() },
    TableColumn { letter: 'r', header: "ROWS", help: "", cell: |r| r.rows.to_string() },
    TableColumn { letter: 'e', header: "ERROR", help: "", cell: |r| percent::sentence_percent(r.error) },
    TableColumn {
        letter: 'c',
        header: "CHOSEN ÷ BEST",
        help: "",
        cell: |r| percent::sentence_percent(r.chosen),
    },
    TableColumn {
        letter: 'i',
        header: "IN 90 % INTERVAL",
        help: "",
        cell: |r| percent::sentence_percent(r.covered),
    },
];

/// Runs `infill advise --held-out`.
pub(super) fn advise_held_out(args: &AdviseArgs) -> CommandResult {
    let programs = read_programs(&args.plans.plans, &args.plans.facts)?;
    let rows =
        run_held_out_trials(&programs, args.noise, args.plans.measurements as usize, TRIALS_PER_PROGRAM);
    if args.json {
        output::print_json(&HeldOutDocument { schema: SCHEMA_VERSION, programs: &rows })?;
    } else {
        output::print_text(&render_rows(&rows)?)?;
    }
    Ok(ProgramExit::Ok.code())
}

/// All programs of some files, with the facts that other files have of their models.
pub(super) fn read_programs(
    plans: &[PathBuf],
    facts: &[PathBuf],
) -> Result<Vec<HeldOutProgram>, CommandFailure> {
    let mut programs = Vec::new();
    for path in plans {
        for (name, runs) in traces::read_programs(path).map_err(|e| ProgramExit::Input.caused_by(e))? {
            let model = name.split(' ').next().unwrap_or_default();
            let known = facts.iter().find_map(|path| traces::read_model_facts(path, model).ok());
            programs.push(HeldOutProgram { name, runs, facts: known });
        }
    }
    Ok(programs)
}

/// Tries each program with priors fitted to all others.
pub(super) fn run_held_out_trials(
    programs: &[HeldOutProgram],
    noise: f64,
    measurements: usize,
    seeds: u64,
) -> Vec<HeldOutRow> {
    let tried = programs.iter().filter(|program| program.runs.len() > measurements);
    tried
        .map(|program| {
            let others = programs.iter().filter(|p| p.name != program.name);
            let others: Vec<MeasuredProgram<'_>> = others.map(|p| (p.runs.as_slice(), p.facts)).collect();
            let priors = PlanPriors::fit_to_programs(&others);
            let verdicts = (1..=seeds).filter_map(|seed| {
                let runs = program.runs.clone();
                let facts = program.facts;
                let priors = priors.clone();
                PlanTrial { runs, facts, noise, seed, measurements, priors }.run()
            });
            held_out_row(program, &verdicts.collect::<Vec<PlanTrialResult>>())
        })
        .collect()
}

fn held_out_row(program: &HeldOutProgram, verdicts: &[PlanTrialResult]) -> HeldOutRow {
    let mut rows_by_gpus: BTreeMap<u32, u32> = BTreeMap::new();
    for run in &program.runs {
        *rows_by_gpus.entry(run.gpus()).or_default() += 1;
    }
    let trials = verdicts.len().max(1) as f64;
    HeldOutRow {
        program: program.name.clone(),
        rows: program.runs.len(),
        error: verdicts.iter().map(|verdict| verdict.mape).sum::<f64>() / trials,
        chosen: verdicts.iter().map(|verdict| chosen_share(verdict, &rows_by_gpus)).sum::<f64>() / trials,
        covered: verdicts.iter().map(covered_share).sum::<f64>() / trials,
    }
}

/// Mean rate of the chosen plan as a share of the best one's, over the numbers of GPUs with several rows; 1
/// without any.
fn chosen_share(verdict: &PlanTrialResult, rows_by_gpus: &BTreeMap<u32, u32>) -> f64 {
    let chosen = verdict.chosen.iter();
    let with_choice = chosen.filter(|c| rows_by_gpus.get(&c.place.gpus).is_some_and(|rows| *rows > 1));
    let shares: Vec<f64> = with_choice.map(|c| c.true_share_of_best).collect();
    if shares.is_empty() { 1.0 } else { shares.iter().sum::<f64>() / shares.len() as f64 }
}

/// Share of the unmeasured rates that lie in their intervals.
fn covered_share(verdict: &PlanTrialResult) -> f64 {
    let unmeasured: Vec<bool> =
        verdict.points.iter().filter(|p| !p.measured).map(|p| (p.low..=p.high).contains(&p.truth)).collect();
    unmeasured.iter().filter(|inside| **inside).count() as f64 / unmeasured.len().max(1) as f64
}

fn render_rows(rows: &[HeldOutRow]) -> Result<String, CommandFailure> {
    filter::render_full_table("%p %.r %.e %.c %.i", HELD_OUT_COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::data_files;

    fn tables() -> Option<Vec<HeldOutProgram>> {
        let [rubick, bigscience, h100, of_rubick, of_bigscience] = data_files([
            "plans/rubick/plans.csv",
            "plans/bigscience/plans.csv",
            "gpu/plans-h100.csv",
            "plans/rubick/models.csv",
            "plans/bigscience/models.csv",
        ])?;
        Some(read_programs(&[rubick, bigscience, h100.clone()], &[of_rubick, of_bigscience, h100]).unwrap())
    }

    #[test]
    fn what_is_usual_follows_from_the_tables() {
        let Some(programs) = tables() else { return };
        let all: Vec<MeasuredProgram<'_>> = programs.iter().map(|p| (p.runs.as_slice(), p.facts)).collect();
        let fitted: Vec<(f64, f64)> = PlanPriors::fit_to_programs(&all).mean_and_sd().collect();
        let shipped: Vec<(f64, f64)> = PlanPriors::from_public_tables().mean_and_sd().collect();
        let apart =
            fitted.iter().zip(&shipped).any(|(a, b)| (a.0 - b.0).abs() > 0.02 || (a.1 - b.1).abs() > 0.02);
        let said: Vec<String> = fitted.iter().map(|(mean, sd)| format!("({mean:.2}, {sd:.2})")).collect();
        assert!(!apart, "numbers.rs should say {}", said.join(", "));
    }

    #[test]
    fn programs_are_known_that_nothing_was_fitted_to() {
        let Some(programs) = tables() else { return };
        let rows = run_held_out_trials(&programs, 0.05, 7, 3);
        // The programs that run on several GPUs.
        let rows: Vec<&HeldOutRow> = rows.iter().filter(|row| !row.program.starts_with("gpt2")).collect();
        let mut errors: Vec<f64> = rows.iter().map(|row| row.error).collect();
        errors.sort_by(f64::total_cmp);
        let [.., worst] = errors[..] else { panic!("no program") };
        let median = (errors[errors.len() / 2] + errors[(errors.len() - 1) / 2]) / 2.0;
        assert!(rows.len() == 6 && median < 0.08 && worst < 0.13, "{rows:?}");
        let chosen = rows.iter().map(|row| row.chosen).sum::<f64>() / rows.len() as f64;
        assert!(chosen > 0.97, "{rows:?}");
    }
}
