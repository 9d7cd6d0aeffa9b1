//! `infill plans`: checks and suggests files of execution plans for `infill run --plans`. It needs no daemon.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Subcommand};
use serde::Serialize;

use infill_advisor::plans::plan_presets::{GpuMachine, ModelShape, PlanPreset};
use infill_agent::{ExecPlans, RunPlan};
use infill_api::SCHEMA_VERSION;
use infill_model::{
    AllowedSizes, MOST_BATCH, MOST_HIDDEN, MOST_LAYERS, MOST_PLANS, MOST_SEQUENCE, MemorySize, ModelFacts,
};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter::{self, TableArgs},
    output,
    table::{FieldHelp, TableColumn},
};

/// The help text of `infill plans` after its subcommands.
const ABOUT_FILES: &str = "\
A file of plans is TOML, with a [[plan]] for each way in which the command can run. The job starts with the first one. An \
optional [model] describes the model that it trains; only params_mi is required in it:

  [model]
  params_mi = 1500             # parameters, millions
  layers = 48                  # and hidden = 1600, heads = 25 (of attention)
  sequence = 1024              # tokens of a sample
  global_batch = 64            # samples of a step, over all GPUs
  precision = \"mixed\"          # of numbers in training: mixed, half or single

  [[plan]]
  name = \"tp2\"                 # the value of INFILL_PLAN
  nodes = \"2-8\"                # sizes at which it can run [default: the job's]
  types = [\"a100\"]             # node types, or words of their names
  tp = 2                       # GPUs that share each layer
  pp = 1                       # stages of the pipeline
  zero = 1                     # stage of ZeRO, 0 to 3
  offload = false              # whether the optimizer is on the CPUs
  accumulate = 4               # micro-batches of a step
  checkpointing = false        # whether activations are computed again
  cpus = 8                     # that a worker needs, if you know
  memory = \"64G\"               # of the host that a worker needs
  gpu_memory = \"30G\"           # of each GPU that a worker needs
  args = [\"--tp\", \"2\"]         # further arguments of the command
  env = { NCCL_ALGO = \"Ring\" } # variables; other users may see them

The command finds INFILL_PLAN, _DP, _TP, _PP, _ZERO, _OFFLOAD, _GA and _GC in its environment. Infill measures the plans on \
the node types where they can run, and may change the plan whenever it changes the size. If the command fails and reports \
that it ran out of memory, infill tries another plan and does not count a failure. From [model] and the needs, infill \
estimates the speed and the memory of a plan before its first run.";

/// The GPUs that most nodes have.
const USUAL_GPUS: u32 = 8;

/// Flags of `infill plans`.
#[derive(Clone, Debug, Args)]
#[command(after_help = ABOUT_FILES)]
pub struct PlansArgs {
    #[command(subcommand)]
    command: PlansCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum PlansCommand {
    /// Read a file as `infill run --plans` would, and show its plans
    Check(CheckPlansArgs),
    /// Print a file of common plans for a model
    Suggest(SuggestPlansArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = HELP.as_str())]
struct CheckPlansArgs {
    /// The file of plans
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Allowed sizes of the job, as for `infill run --nodes`
    #[arg(long, value_name = "NODES", value_parser = AllowedSizes::parse)]
    nodes: Option<AllowedSizes>,
    /// Training processes on each node, as for `infill run`. If torchrun starts them, the number of its GPUs
    #[arg(
        long,
        alias = "nproc-per-node",
        value_name = "PROCESSES",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1024)
    )]
    workers_per_node: u32,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Clone, Copy, Debug, Args)]
struct ModelShapeArgs {
    /// Parameters of the model, in millions
    #[arg(long, value_name = "MILLIONS", value_parser = parse_parameters)]
    params: f64,
    /// Layers of the model
    #[arg(long, value_name = "LAYERS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_LAYERS)))]
    layers: u32,
    /// Hidden size of the model
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_HIDDEN)))]
    hidden: u32,
    /// Tokens in a sample
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SEQUENCE)))]
    sequence: u32,
    /// Samples in a step, over all GPUs
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_BATCH)))]
    batch: u32,
}

#[derive(Clone, Debug, Args)]
struct SuggestPlansArgs {
    #[command(flatten)]
    model: ModelShapeArgs,
    /// Allowed sizes of the job, as for `infill run --nodes`
    #[arg(long, value_name = "NODES", value_parser = AllowedSizes::parse)]
    nodes: AllowedSizes,
    /// GPUs on each node; 1 where the sizes count GPUs
    #[arg(long, value_name = "GPUS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    gpus_per_node: u32,
    /// Memory of a GPU in GiB; plans that do not fit are left out
    #[arg(long, value_name = "GIB", value_parser = parse_positive)]
    gpu_memory: Option<f64>,
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if number > 0.0 && number <= 1e12 { Ok(number) } else { Err("expected a positive number".to_owned()) }
}

fn parse_parameters(text: &str) -> Result<f64, String> {
    let params_mi = parse_positive(text)?;
    ModelFacts::from_params(params_mi).check_bounds().map_err(|error| error.to_string())?;
    Ok(params_mi)
}

/// Runs `infill plans`.
pub fn run(args: PlansArgs) -> CommandResult {
    match args.command {
        PlansCommand::Check(args) => check_plans(&args),
        PlansCommand::Suggest(args) => suggest_plans(&args),
    }
}

/// A plan with the sizes at which infill would use it.
#[derive(Serialize)]
struct PlanFileRow {
    #[serde(flatten)]
    plan: RunPlan,
    /// The sizes, or `all` for all sizes of the job.
    sizes: String,
}

/// `infill plans check --json`.
#[derive(Serialize)]
struct PlansDocument<'a> {
    schema: u32,
    /// The file's `[model]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<ModelFacts>,
    plans: &'a [PlanFileRow],
}

const DEFAULT: &str = "%p %s %T %.t %.P %.z %o %.a %c %g";

/// The default columns if a plan has needs.
const DEFAULT_WITH_NEEDS: &str = "%p %s %T %.t %.P %.z %o %.a %c %.C %.m %.M %g";

/// The list of fields, for `--help`.
static HELP: LazyLock<String> = LazyLock::new(|| FieldHelp(COLUMNS, DEFAULT).to_string());

const COLUMNS: &[TableColumn<PlanFileRow>] = &[
    TableColumn { letter: 'p', header: "PLAN", help: "the plan's name", cell: |r| r.plan.name.clone() },
    TableColumn {
        letter: 's',
        header: "SIZES",
        help: "sizes at which it can run",
        cell: |r| r.sizes.clone(),
    },
    TableColumn {
        letter: 'T',
        header: "TYPES",
        help: "types of nodes on which it can run",
        cell: |r| if r.plan.types.is_empty() { "all".to_owned() } else { r.plan.types.join(",") },
    },
    TableColumn { letter: 't', header: "TP", help: "tensor parallelism", cell: |r| r.plan.tp.to_string() },
    TableColumn { letter: 'P', header: "PP", help: "pipeline parallelism", cell: |r| r.plan.pp.to_string() },
    TableColumn { letter: 'z', header: "ZERO", help: "stage of ZeRO", cell: |r| r.plan.zero.to_string() },
    TableColumn {
        letter: 'o',
        header: "OFFLOAD",
        help: "whether the optimizer works on the CPUs",
        cell: |r| yes_or_no(r.plan.offload),
    },
    TableColumn {
        letter: 'a',
        header: "GA",
        help: "micro-batches of a step",
        cell: |r| r.plan.accumulate.to_string(),
    },
    TableColumn {
        letter: 'c',
        header: "GC",
        help: "whether activations are computed again",
        cell: |r| yes_or_no(r.plan.checkpointing),
    },
    TableColumn {
        letter: 'C',
        header: "CPUS",
        help: "CPUs of a worker",
        cell: |r| r.plan.cpus.map_or_else(|| "-".to_owned(), |cpus| cpus.to_string()),
    },
    TableColumn {
        letter: 'm',
        header: "MEMORY",
        help: "host memory of a worker",
        cell: |r| size_or_dash(r.plan.memory),
    },
    TableColumn {
        letter: 'M',
        header: "GPU_MEMORY",
        help: "memory of each GPU",
        cell: |r| size_or_dash(r.plan.gpu_memory),
    },
    TableColumn {
        letter: 'g',
        header: "ARGS",
        help: "arguments besides the command's own",
        cell: |r| if r.plan.args.is_empty() { "-".to_owned() } else { r.plan.args.join(" ") },
    },
];

fn yes_or_no(set: bool) -> String {
    if set { "yes" } else { "no" }.to_owned()
}

fn size_or_dash(size: Option<MemorySize>) -> String {
    size.map_or_else(|| "-".to_owned(), |size| size.to_string())
}

/// The default format: the columns of needs are left out if no plan has any.
fn default_format(rows: &[PlanFileRow]) -> &'static str {
    if rows.iter().all(|row| row.plan.worker_needs().is_empty()) { DEFAULT } else { DEFAULT_WITH_NEEDS }
}

fn check_plans(args: &CheckPlansArgs) -> CommandResult {
    args.table.check_format(COLUMNS)?;
    let file = args.file.display().to_string();
    let plans = ExecPlans::from_argument(&file).map_err(|e| input_failure(&file, e))?;
    let declared = plans
        .declared_plans(args.workers_per_node, args.nodes.as_ref())
        .map_err(|e| input_failure(&file, e))?;
    let mut rows = Vec::new();
    for (plan, declared) in plans.iter().zip(&declared) {
        let sizes = declared.sizes.as_ref().map_or_else(|| "all".to_owned(), AllowedSizes::to_string);
        rows.push(PlanFileRow { plan: plan.clone(), sizes });
    }
    if args.table.json {
        output::print_json(&PlansDocument {
            schema: SCHEMA_VERSION,
            model: plans.model_facts(),
            plans: &rows,
        })?;
    } else {
        output::print_text(&filter::render_table(&args.table, default_format(&rows), COLUMNS, &rows)?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn input_failure(file: &str, error: impl std::fmt::Display) -> CommandFailure {
    let text = error.to_string();
    let names_file = text.contains(file);
    ProgramExit::Input.caused_by(anyhow::anyhow!(if names_file { text } else { format!("{file}: {text}") }))
}

fn suggest_plans(args: &SuggestPlansArgs) -> CommandResult {
    let presets = suggested_presets(args);
    if presets.is_empty() {
        let why = "no plan fits: use more GPUs, more memory, or a batch with other divisors";
        return Err(ProgramExit::Failed.caused_by(anyhow::anyhow!(why)));
    }
    output::print_text(&plan_file(args, &presets))?;
    Ok(ProgramExit::Ok.code())
}

fn suggested_presets(args: &SuggestPlansArgs) -> Vec<PlanPreset> {
    let ModelShapeArgs { params, layers, hidden, sequence, batch } = args.model;
    let model = ModelShape { params: params * 1e6, layers, hidden, sequence, global_batch: batch };
    let nodes = args.nodes.up_to(u32::MAX);
    model.suggest_presets(&GpuMachine {
        gpus: nodes.iter().map(|n| n.saturating_mul(args.gpus_per_node)).collect(),
        // Where the sizes count GPUs, a node may have several.
        gpus_per_node: if args.gpus_per_node == 1 { USUAL_GPUS } else { args.gpus_per_node },
        gpu_memory_gib: args.gpu_memory,
    })
}

/// The text of a file with the suggested plans.
fn plan_file(args: &SuggestPlansArgs, presets: &[PlanPreset]) -> String {
    let ModelShapeArgs { params, layers, hidden, sequence, batch } = args.model;
    let mut text = format!(
        "# {params} million parameters, {layers} layers of {hidden}, {sequence} tokens, {batch} samples a step.\n\
         # Memory is an estimate for mixed precision and Adam. The command reads INFILL_TP and the like, or args.\n\
         \n[model]\nparams_mi = {params}\nlayers = {layers}\nhidden = {hidden}\nsequence = {sequence}\n\
         global_batch = {batch}\n"
    );
    for preset in presets.iter().take(MOST_PLANS) {
        let sizes: Vec<u32> = preset.sizes.iter().map(|(gpus, _)| gpus / args.gpus_per_node).collect();
        let most = preset.sizes.iter().map(|(_, gib)| *gib).fold(0.0, f64::max);
        let least = preset.sizes.iter().map(|(_, gib)| *gib).fold(f64::INFINITY, f64::min);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[[plan]] # {least:.0} to {most:.0} GiB of each GPU\n{}",
            plan_entry(preset, sizes)
        );
    }
    text
}

fn plan_entry(preset: &PlanPreset, sizes: Vec<u32>) -> String {
    let mut text = format!("name = {:?}\nnodes = \"{}\"\n", preset.name, AllowedSizes::Set(sizes));
    let numbers = [
        ("tp", preset.tp, 1),
        ("pp", preset.pp, 1),
        ("zero", preset.zero, 0),
        ("accumulate", preset.accumulate, 1),
    ];
    for (name, number, default) in numbers {
        if number != default {
            let _ = writeln!(text, "{name} = {number}");
        }
    }
    for (name, is_set) in [("offload", preset.offload), ("checkpointing", preset.checkpointing)] {
        if is_set {
            let _ = writeln!(text, "{name} = true");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        suggest: SuggestPlansArgs,
    }

    fn suggested(more: &str) -> String {
        let words =
            "infill --params 1500 --layers 48 --hidden 1600 --sequence 1024 --batch 64 ".to_owned() + more;
        let args = Flags::parse_from(words.split_whitespace()).suggest;
        plan_file(&args, &suggested_presets(&args))
    }

    #[test]
    fn a_suggested_file_can_be_read() {
        for more in [
            "--nodes 1-4 --gpus-per-node 8 --gpu-memory 40",
            "--nodes 1,2,4,8",
            "--nodes 2-64 --gpus-per-node 8",
        ] {
            let text = suggested(more);
            let plans = ExecPlans::parse(&text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
            assert!(plans.iter().count() >= 3, "{text}");
            let model = ModelFacts {
                layers: Some(48),
                hidden: Some(1600),
                sequence: Some(1024),
                global_batch: Some(64),
                ..ModelFacts::from_params(1500.0)
            };
            assert_eq!(plans.model_facts(), Some(model), "{text}");
        }
    }

    #[test]
    fn the_file_in_the_help_can_be_read() {
        let text: Vec<&str> = ABOUT_FILES.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        let plans = ExecPlans::parse(&text.join("\n")).unwrap();
        assert_eq!((plans.first_name(), plans.model_facts().and_then(|m| m.layers)), ("tp2", Some(48)));
        let declared = plans.declared_plans(4, None).unwrap();
        assert_eq!((declared[0].needs.cpus, declared[0].needs.memory_mib), (Some(8), Some(64 * 1024)));
    }

    #[test]
    fn a_suggestion_for_little_memory() {
        let text = suggested("--nodes 1,2 --gpus-per-node 2 --gpu-memory 24");
        let blocks: Vec<&str> = text.split("\n\n").collect();
        assert!(
            blocks[0].starts_with("# 1500 million parameters, 48 layers of 1600, 1024 tokens, 64 samples")
        );
        assert!(blocks[1].starts_with("[model]\nparams_mi = 1500\nlayers = 48\n"), "{text}");
        assert!(blocks.iter().all(|block| !block.contains("\"ddp\"")), "24 GB of states do not fit: {text}");
        let two_stages = "[[plan]] # 19 to 19 GiB of each GPU\nname = \"tp1-pp2\"\nnodes = \"2\"\npp = 2\n\
                          zero = 1\naccumulate = 16";
        assert!(blocks.contains(&two_stages), "{text}");
    }

    /// The table of `infill plans check` for a file whose only plan has these further lines.
    fn checked(more: &str) -> String {
        let plans = ExecPlans::parse(&format!("[[plan]]\nname = 'tp2'\ntp = 2\n{more}")).unwrap();
        let rows: Vec<PlanFileRow> =
            plans.iter().map(|plan| PlanFileRow { plan: plan.clone(), sizes: "2,4".to_owned() }).collect();
        let table = Checked::parse_from(["infill", "plans.toml"]).check.table;
        filter::render_table(&table, default_format(&rows), COLUMNS, &rows)
            .unwrap_or_else(|_| "refused".to_owned())
    }

    #[derive(Parser)]
    struct Checked {
        #[command(flatten)]
        check: CheckPlansArgs,
    }

    #[test]
    fn needs_are_shown_if_a_plan_has_any() {
        insta::assert_snapshot!(checked(""), @r"
        PLAN SIZES TYPES TP PP ZERO OFFLOAD GA GC ARGS
        tp2  2,4   all    2  1    0 no       1 no -
        ");
        insta::assert_snapshot!(checked("cpus = 8\nmemory = '65536M'"), @r"
        PLAN SIZES TYPES TP PP ZERO OFFLOAD GA GC CPUS MEMORY GPU_MEMORY ARGS
        tp2  2,4   all    2  1    0 no       1 no    8    64G          - -
        ");
    }

    #[test]
    fn parameters_that_no_model_has_are_refused() {
        assert_eq!(parse_parameters("1500"), Ok(1500.0));
        for text in ["0", "-1", "nan", "1e10", "many"] {
            assert!(parse_parameters(text).is_err(), "{text}");
        }
    }
}
