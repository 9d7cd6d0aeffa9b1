//! `infill advise --types`: errors for programs on types of GPUs where they never ran, of estimates and of
//! predictions from one measurement per type.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::AdviseArgs;
use infill_advisor::type_trial::{TypeAccuracy, TypePoint, TypeTrial, TypeTrialResult};
use infill_api::SCHEMA_VERSION;
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter, output,
    phrases::percent,
    table::TableColumn,
};
use infill_traces as traces;

/// Flags for types of GPUs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Types of GPUs")]
pub(super) struct TypeTrialArgs {
    /// CSV of the training speeds of models on types of GPUs: `model`, `gpu_type`, `gpus`, `nodes`, `batch`
    /// and `iter_time_s`, and perhaps `params`
    #[arg(long, value_name = "FILE", requires = "estimates")]
    types: Option<PathBuf>,
    /// CSV of estimated training speeds, from profiles on one GPU and the times of collectives: `model`,
    /// `gpu_type`, `gpus`, `nodes`, `pp`, `dp`, `tp`, `compute_s`, `iter_time_s`, and perhaps `params` and
    /// `batch`
    #[arg(long, value_name = "FILE", requires = "types")]
    estimates: Option<PathBuf>,
    /// Assume that the other models of --types were measured before, as on a site that has run them
    #[arg(long, requires = "types")]
    others: bool,
    /// Number of micro-batches per step; stages are profiled with one
    #[arg(long, value_name = "BATCHES", requires = "types", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    micro_batches: u32,
}

impl TypeTrialArgs {
    /// Whether the flags ask for types.
    pub(super) fn is_wanted(&self) -> bool {
        self.types.is_some()
    }
}

/// `infill advise --types --json`.
#[derive(Serialize)]
struct TypeTrialDocument<'a> {
    schema: u32,
    #[serde(flatten)]
    verdict: &'a TypeTrialResult,
}

struct EstimationMethod {
    name: &'static str,
    accuracy: TypeAccuracy,
}

const METHOD_COLUMNS: &[TableColumn<EstimationMethod>] = &[
    TableColumn { letter: 'w', header: "SECONDS", help: "", cell: |w| w.name.to_owned() },
    TableColumn {
        letter: 'e',
        header: "ERROR",
        help: "",
        cell: |w| percent::sentence_percent(w.accuracy.mape),
    },
    TableColumn {
        letter: 'm',
        header: "SAID/TRUE",
        help: "",
        cell: |w| output::format_number(w.accuracy.ratio_median),
    },
    TableColumn {
        letter: 's',
        header: "OF TRUE BEST",
        help: "",
        cell: |w| percent::sentence_percent(w.accuracy.true_share_of_best),
    },
];

const POINT_COLUMNS: &[TableColumn<TypePoint>] = &[
    TableColumn { letter: 'm', header: "MODEL", help: "", cell: |p| p.model.clone() },
    TableColumn { letter: 't', header: "TYPE", help: "", cell: |p| p.place.node_type.to_string() },
    TableColumn { letter: 'g', header: "GPUS", help: "", cell: |p| p.place.gpus.to_string() },
    TableColumn { letter: 'n', header: "NODES", help: "", cell: |p| p.place.nodes.to_string() },
    TableColumn { letter: 'r', header: "TRUE", help: "", cell: |p| output::format_number(p.truth) },
    TableColumn { letter: 'e', header: "ESTIMATED", help: "", cell: |p| output::format_number(p.estimated) },
    TableColumn { letter: 'p', header: "PREDICTED", help: "", cell: |p| output::format_number(p.predicted) },
    TableColumn { letter: 'l', header: "LOW", help: "", cell: |p| output::format_number(p.low) },
    TableColumn { letter: 'h', header: "HIGH", help: "", cell: |p| output::format_number(p.high) },
    TableColumn { letter: 'x', header: "ERROR", help: "", cell: point_error },
];

fn point_error(point: &TypePoint) -> String {
    if point.measured {
        return "measured".to_owned();
    }
    percent::signed_percent(point.predicted / point.truth - 1.0)
}

/// Runs `infill advise --types`.
pub(super) fn advise_types(args: &AdviseArgs) -> CommandResult {
    let verdict = run_type_trial(args)?;
    if args.json {
        output::print_json(&TypeTrialDocument { schema: SCHEMA_VERSION, verdict: &verdict })?;
    } else {
        output::print_text(&render_type_trial(&verdict)?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn run_type_trial(args: &AdviseArgs) -> Result<TypeTrialResult, CommandFailure> {
    let (types, estimates) = args
        .types
        .types
        .as_ref()
        .zip(args.types.estimates.as_ref())
        .ok_or_else(|| ProgramExit::Usage.caused_by(anyhow::anyhow!("--types needs --estimates")))?;
    let trial = TypeTrial {
        rows: traces::read_speeds(types).map_err(|e| ProgramExit::Input.caused_by(e))?,
        estimates: traces::read_estimates(estimates).map_err(|e| ProgramExit::Input.caused_by(e))?,
        with_others: args.types.others,
        micro_batches: args.types.micro_batches,
        noise: args.noise,
        seed: args.seed,
    };
    trial.run().ok_or_else(|| {
        ProgramExit::Input.caused_by(anyhow::anyhow!(
            "no row of {} has an estimate in {}; expected the same names of models and types",
            types.display(),
            estimates.display()
        ))
    })
}

fn render_type_trial(verdict: &TypeTrialResult) -> Result<String, CommandFailure> {
    let measured = verdict.points.iter().filter(|p| p.measured).count();
    let ways = [
        EstimationMethod { name: "estimated", accuracy: verdict.estimated },
        EstimationMethod { name: "predicted", accuracy: verdict.predicted },
    ];
    Ok(format!(
        "models     {}, on {} (type, size), {measured} of them measured\nprofiling  {} GPU-s a step, {} of \
         measuring all\n\n{}\n{}",
        verdict.models,
        verdict.points.len(),
        output::format_number(verdict.profiling.profiles_gpu_secs + verdict.profiling.measured_gpu_secs),
        percent::sentence_percent(verdict.profiling.share),
        filter::render_full_table("%w %.e %.m %.s", METHOD_COLUMNS, &ways)?,
        filter::render_full_table("%m %t %.g %.n %.r %.e %.p %.l %.h %.x", POINT_COLUMNS, &verdict.points)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::data_files;

    /// Arena's tables, if they are available (`INFILL_DATA`, else `../shared/data`).
    fn arena(with_others: bool) -> Option<TypeTrialResult> {
        let [types, estimates] = data_files(["plans/arena/best-plan.csv", "plans/arena/estimates.csv.gz"])?;
        let trial = TypeTrial {
            rows: traces::read_speeds(&types).unwrap(),
            estimates: traces::read_estimates(&estimates).unwrap(),
            with_others,
            micro_batches: 16,
            noise: 0.02,
            seed: 1,
        };
        trial.run()
    }

    #[test]
    fn a_measurement_per_type_improves_estimates() {
        let Some(verdict) = arena(false) else { return };
        let estimated = verdict.estimated;
        let predicted = verdict.predicted;
        assert!(predicted.mape < 0.9 * estimated.mape, "{predicted:?}, {estimated:?}");
        assert!(predicted.true_share_of_best > 0.99 && estimated.true_share_of_best > 0.97);
        assert!(verdict.profiling.share < 1.0 / 18.0, "{:?}", verdict.profiling);
        let known = arena(true).unwrap().predicted;
        assert!(known.mape < 0.7 * estimated.mape, "{known:?}");
    }

    #[test]
    fn the_page() {
        let verdict = sample();
        insta::assert_snapshot!(render_type_trial(&verdict).unwrap(), @r"
        models     1, on 2 (type, size), 1 of them measured
        profiling  40.0 GPU-s a step, 4.0 % of measuring all

        SECONDS    ERROR SAID/TRUE OF TRUE BEST
        estimated 10.0 %     0.940       98.0 %
        predicted  3.0 %     0.940      100.0 %

        MODEL         TYPE GPUS NODES TRUE ESTIMATED PREDICTED  LOW HIGH    ERROR
        bert-1.3B-128 a100    1     1  600       660       618  540  720 measured
        bert-1.3B-128 a100    4     4 2000      2200      2060 1800 2400    +3.0%
        ");
        let json =
            serde_json::to_value(TypeTrialDocument { schema: SCHEMA_VERSION, verdict: &verdict }).unwrap();
        assert_eq!(json["points"][0]["type"], "a100");
        assert_eq!((&json["points"][1]["gpus"], &json["points"][1]["true"]), (&4.into(), &2000.0.into()));
        assert_eq!(json["predicted"]["true_share_of_best"], 1.0);
    }

    /// A fixed result, so that the page does not change with the predictions.
    fn sample() -> TypeTrialResult {
        use infill_advisor::type_trial::{ProfilingCost, TypePlacement};
        use infill_model::NodeType;
        let known = |mape, share| TypeAccuracy { mape, ratio_median: 0.94, true_share_of_best: share };
        let point = |gpus, measured, truth: f64| TypePoint {
            model: "bert-1.3B-128".to_owned(),
            place: TypePlacement { node_type: NodeType::new("a100"), gpus, nodes: gpus },
            measured,
            truth,
            estimated: truth * 1.1,
            predicted: truth * 1.03,
            low: truth * 0.9,
            high: truth * 1.2,
        };
        TypeTrialResult {
            models: 1,
            points: vec![point(1, true, 600.0), point(4, false, 2000.0)],
            estimated: known(0.1, 0.98),
            predicted: known(0.03, 1.0),
            profiling: ProfilingCost {
                profiles_gpu_secs: 30.0,
                measured_gpu_secs: 10.0,
                all_gpu_secs: 1000.0,
                share: 0.04,
            },
        }
    }
}
