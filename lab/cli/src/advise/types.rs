//! `infill advise --types`: how well programs are known on types of GPUs where they never ran, by estimates
//! and by one measurement a type.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::AdviseArgs;
use infill_advisor::types::{Known, TypePoint, TypesTrial, TypesVerdict};
use infill_api::SCHEMA;
use infill_present::{
    exit::{CommandResult, Exit, Failure},
    filter, output,
    table::Column,
    words::percent,
};
use infill_traces as traces;

/// Flags for types of GPUs.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TypesArgs {
    /// CSV of how fast models train on types of GPUs: `model`, `gpu_type`, `gpus`, `nodes`, `batch` and
    /// `iter_time_s`, and perhaps `params`
    #[arg(long, value_name = "FILE", requires = "estimates")]
    types: Option<PathBuf>,
    /// CSV of how fast they were estimated to train there, from profiles on one GPU and from how long
    /// collectives take: `model`, `gpu_type`, `gpus`, `nodes`, `pp`, `dp`, `tp`, `compute_s`, `iter_time_s`,
    /// and perhaps `params` and `batch`
    #[arg(long, value_name = "FILE", requires = "types")]
    estimates: Option<PathBuf>,
    /// Take the other models of --types for measured before, as they are on a site that has seen them
    #[arg(long, requires = "types")]
    others: bool,
    /// Micro-batches of a step: stages are profiled with one
    #[arg(long, value_name = "N", requires = "types", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    micro_batches: u32,
}

impl TypesArgs {
    /// Whether types are asked for.
    pub(super) fn wanted(&self) -> bool {
        self.types.is_some()
    }
}

/// `infill advise --types --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    #[serde(flatten)]
    verdict: &'a TypesVerdict,
}

struct Way {
    name: &'static str,
    known: Known,
}

const WAYS: &[Column<Way>] = &[
    Column { letter: 'w', header: "SECONDS", help: "", cell: |w| w.name.to_owned() },
    Column { letter: 'e', header: "ERROR", help: "", cell: |w| percent::in_text(w.known.mape) },
    Column { letter: 'm', header: "SAID/TRUE", help: "", cell: |w| output::number(w.known.ratio_median) },
    Column {
        letter: 's',
        header: "OF TRUE BEST",
        help: "",
        cell: |w| percent::in_text(w.known.true_share_of_best),
    },
];

const POINTS: &[Column<TypePoint>] = &[
    Column { letter: 'm', header: "MODEL", help: "", cell: |p| p.model.clone() },
    Column { letter: 't', header: "TYPE", help: "", cell: |p| p.place.node_type.to_string() },
    Column { letter: 'g', header: "GPUS", help: "", cell: |p| p.place.gpus.to_string() },
    Column { letter: 'n', header: "NODES", help: "", cell: |p| p.place.nodes.to_string() },
    Column { letter: 'r', header: "TRUE", help: "", cell: |p| output::number(p.truth) },
    Column { letter: 'e', header: "ESTIMATED", help: "", cell: |p| output::number(p.estimated) },
    Column { letter: 'p', header: "PREDICTED", help: "", cell: |p| output::number(p.predicted) },
    Column { letter: 'l', header: "LOW", help: "", cell: |p| output::number(p.low) },
    Column { letter: 'h', header: "HIGH", help: "", cell: |p| output::number(p.high) },
    Column { letter: 'x', header: "ERROR", help: "", cell: error },
];

fn error(point: &TypePoint) -> String {
    match point.measured {
        true => "measured".to_owned(),
        false => percent::signed(point.predicted / point.truth - 1.0),
    }
}

/// Runs `infill advise --types`.
pub(super) fn run(args: &AdviseArgs) -> CommandResult {
    let verdict = verdict(args)?;
    if args.json {
        output::print_json(&Document { schema: SCHEMA, verdict: &verdict })?;
    } else {
        output::print(&show(&verdict)?)?;
    }
    Ok(Exit::Ok.code())
}

fn verdict(args: &AdviseArgs) -> Result<TypesVerdict, Failure> {
    let missing = || Exit::Usage.because(anyhow::anyhow!("--types needs --estimates"));
    let (types, estimates) =
        args.types.types.as_ref().zip(args.types.estimates.as_ref()).ok_or_else(missing)?;
    let trial = TypesTrial {
        rows: traces::read_speeds(types).map_err(|e| Exit::Input.because(e))?,
        estimates: traces::read_estimates(estimates).map_err(|e| Exit::Input.because(e))?,
        others: args.types.others,
        micro_batches: args.types.micro_batches,
        noise: args.noise,
        seed: args.seed,
    };
    let nothing = || {
        anyhow::anyhow!(
            "no row of {} has an estimate in {}; expected the same names of models and types",
            types.display(),
            estimates.display()
        )
    };
    trial.run().ok_or_else(|| Exit::Input.because(nothing()))
}

fn show(verdict: &TypesVerdict) -> Result<String, Failure> {
    let measured = verdict.points.iter().filter(|p| p.measured).count();
    let ways = [
        Way { name: "estimated", known: verdict.estimated },
        Way { name: "predicted", known: verdict.predicted },
    ];
    Ok(format!(
        "models     {}, on {} (type, size), {measured} of them measured\nprofiling  {} GPU-s a step, {} of \
         measuring all\n\n{}\n{}",
        verdict.models,
        verdict.points.len(),
        output::number(verdict.profiling.profiles_gpu_secs + verdict.profiling.measured_gpu_secs),
        percent::in_text(verdict.profiling.share),
        filter::whole("%w %.e %.m %.s", WAYS, &ways)?,
        filter::whole("%m %t %.g %.n %.r %.e %.p %.l %.h %.x", POINTS, &verdict.points)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_testkit::data_files;

    /// Arena's tables, where they are at hand (`INFILL_DATA`, else `../shared/data`).
    fn arena(others: bool) -> Option<TypesVerdict> {
        let [types, estimates] = data_files(["plans/arena/best-plan.csv", "plans/arena/estimates.csv.gz"])?;
        let trial = TypesTrial {
            rows: traces::read_speeds(&types).unwrap(),
            estimates: traces::read_estimates(&estimates).unwrap(),
            others,
            micro_batches: 16,
            noise: 0.02,
            seed: 1,
        };
        trial.run()
    }

    #[test]
    fn a_measurement_a_type_betters_estimates() {
        let Some(verdict) = arena(false) else { return };
        let (estimated, predicted) = (verdict.estimated, verdict.predicted);
        assert!(predicted.mape < 0.9 * estimated.mape, "{predicted:?}, {estimated:?}");
        assert!(predicted.true_share_of_best > 0.99 && estimated.true_share_of_best > 0.97);
        assert!(verdict.profiling.share < 1.0 / 18.0, "{:?}", verdict.profiling);
        let known = arena(true).unwrap().predicted;
        assert!(known.mape < 0.7 * estimated.mape, "{known:?}");
    }

    #[test]
    fn the_page() {
        let verdict = sample();
        insta::assert_snapshot!(show(&verdict).unwrap(), @r"
        models     1, on 2 (type, size), 1 of them measured
        profiling  40.0 GPU-s a step, 4.0 % of measuring all

        SECONDS    ERROR SAID/TRUE OF TRUE BEST
        estimated 10.0 %     0.940       98.0 %
        predicted  3.0 %     0.940      100.0 %

        MODEL         TYPE GPUS NODES TRUE ESTIMATED PREDICTED  LOW HIGH    ERROR
        bert-1.3B-128 a100    1     1  600       660       618  540  720 measured
        bert-1.3B-128 a100    4     4 2000      2200      2060 1800 2400    +3.0%
        ");
        let json = serde_json::to_value(Document { schema: SCHEMA, verdict: &verdict }).unwrap();
        assert_eq!(json["points"][0]["type"], "a100");
        assert_eq!((&json["points"][1]["gpus"], &json["points"][1]["true"]), (&4.into(), &2000.0.into()));
        assert_eq!(json["predicted"]["true_share_of_best"], 1.0);
    }

    /// A verdict that is written down: the page must not change with what is predicted.
    fn sample() -> TypesVerdict {
        use infill_advisor::types::{Profiling, TypePlace};
        use infill_model::NodeType;
        let known = |mape, share| Known { mape, ratio_median: 0.94, true_share_of_best: share };
        let point = |gpus, measured, truth: f64| TypePoint {
            model: "bert-1.3B-128".to_owned(),
            place: TypePlace { node_type: NodeType::new("a100"), gpus, nodes: gpus },
            measured,
            truth,
            estimated: truth * 1.1,
            predicted: truth * 1.03,
            low: truth * 0.9,
            high: truth * 1.2,
        };
        TypesVerdict {
            models: 1,
            points: vec![point(1, true, 600.0), point(4, false, 2000.0)],
            estimated: known(0.1, 0.98),
            predicted: known(0.03, 1.0),
            profiling: Profiling {
                profiles_gpu_secs: 30.0,
                measured_gpu_secs: 10.0,
                all_gpu_secs: 1000.0,
                share: 0.04,
            },
        }
    }
}
