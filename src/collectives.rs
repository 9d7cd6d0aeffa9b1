//! `infill collectives`: how long collectives take on the nodes of a job, as a table, and the site's table of
//! them. PyTorch measures them, by the user's own Python: what counts is the library that the user's programs
//! run with.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand};

use crate::session::CliSession;
use infill_api::{BodyProof, CollectivesView, ImportCollectivesRequest, routes};
use infill_model::{CollectiveRow, TypeCollectives, UnixTime};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter,
    output::{self, DisplayClock},
    table::TableColumn,
};
use infill_traces as traces;

/// What measures, of the package in `contrib/python`.
const PYTHON_MODULE: &str = "infill.collectives";

/// Flags of `infill collectives`.
#[derive(Clone, Debug, Args)]
pub struct CollectivesArgs {
    #[command(subcommand)]
    command: CollectivesTask,
}

#[derive(Clone, Debug, Subcommand)]
enum CollectivesTask {
    /// Measure all-reduce, all-gather, reduce-scatter and point-to-point on the nodes of this job
    #[command(
        after_help = "Run it on all ranks of a job, with PyTorch and infill's Python package (contrib/python):\n\n  \
        srun --ntasks-per-node=4 infill collectives measure --out table.csv\n  \
        infill run --nproc-per-node=4 -- infill collectives measure --out table.csv\n\n\
        Rank 0 writes the columns op,bytes,world,nodes,seconds_median: with NCCL where there are GPUs, else gloo."
    )]
    Measure(MeasureArgs),
    /// Take in a table that was measured, in place of what was known of these nodes; for administrators
    Import(ImportTableArgs),
    /// Show the site's table
    Show(ShowTableArgs),
}

#[derive(Clone, Debug, Args)]
struct ImportTableArgs {
    /// CSV as `infill collectives measure` writes it: op, bytes, world, nodes, seconds_median
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The type of nodes that it was measured on: a whole name of `infill nodes` (gpu:a100:4/cpu64), or a
    /// word of it (a100)
    #[arg(long, value_name = "TYPE")]
    node_type: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct ShowTableArgs {
    /// Only what was measured on this type of nodes, as it was named
    #[arg(long, value_name = "TYPE")]
    node_type: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A row of the site's table.
struct CollectiveTableRow {
    node_type: String,
    imported_at: UnixTime,
    row: CollectiveRow,
    when: DisplayClock,
}

const DEFAULT: &str = "%t %o %.b %.r %.n %.k %.s %i";

const COLUMNS: &[TableColumn<CollectiveTableRow>] = &[
    TableColumn { letter: 't', header: "TYPE", help: "", cell: |s| s.node_type.clone() },
    TableColumn { letter: 'o', header: "OPERATION", help: "", cell: |s| s.row.op.to_string() },
    TableColumn { letter: 'b', header: "BYTES", help: "", cell: |s| s.row.bytes.to_string() },
    TableColumn { letter: 'r', header: "RANKS", help: "", cell: |s| s.row.ranks.to_string() },
    TableColumn { letter: 'n', header: "NODES", help: "", cell: |s| s.row.nodes.to_string() },
    TableColumn { letter: 'k', header: "RANKS/NODE", help: "", cell: ranks_a_node },
    TableColumn { letter: 's', header: "MSECS", help: "", cell: |s| format!("{:.3}", 1e3 * s.row.secs) },
    TableColumn { letter: 'i', header: "IMPORTED", help: "", cell: |s| s.when.format_moment(s.imported_at) },
];

fn ranks_a_node(shown: &CollectiveTableRow) -> String {
    let share = f64::from(shown.row.ranks) / f64::from(shown.row.nodes.max(1));
    ((100.0 * share).round() / 100.0).to_string()
}

#[derive(Clone, Debug, Args)]
struct MeasureArgs {
    /// The Python that has PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Sizes of the tensors, bytes: 64K,1M,16M [default: 4K,64K,1M,16M,64M]
    #[arg(long, value_name = "BYTES,…")]
    bytes: Option<String>,
    /// Write the table into this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs `infill collectives`.
pub async fn run(args: CollectivesArgs, session: &CliSession) -> CommandResult {
    match args.command {
        CollectivesTask::Measure(args) => exec_measurement(&args),
        CollectivesTask::Import(args) => import_table(args, session).await,
        CollectivesTask::Show(args) => show_table(&args, session).await,
    }
}

async fn import_table(args: ImportTableArgs, session: &CliSession) -> CommandResult {
    let rows = traces::read_collectives(&args.file).map_err(|e| ProgramExit::Input.caused_by(e))?;
    let node_type = args.node_type;
    let count = rows.len();
    // What is wrong is told before anybody is asked.
    let table = TypeCollectives { node_type, imported_at: UnixTime::default(), rows };
    table.check_rows().map_err(|e| ProgramExit::Input.caused_by(e))?;
    let TypeCollectives { node_type, rows, .. } = table;
    let said = format!("{} of {node_type} taken in", output::counted_noun(count as u64, "row"));
    let request = ImportCollectivesRequest { proof: BodyProof::default(), node_type, rows };
    let client = session.daemon_client()?;
    let view: CollectivesView =
        client.send_order_for_answer("collectives", routes::IMPORT_COLLECTIVES, &request).await?;
    if args.json {
        output::print_json(&view)?;
    } else {
        output::print_text(&said)?;
    }
    Ok(ProgramExit::Ok.code())
}

async fn show_table(args: &ShowTableArgs, session: &CliSession) -> CommandResult {
    let mut view: CollectivesView = session.daemon_client()?.get(routes::COLLECTIVES).await?;
    view.types.retain(|table| args.node_type.as_ref().is_none_or(|name| *name == table.node_type));
    if args.json {
        output::print_json(&view)?;
    } else {
        output::print_text(&table_text(&view, DisplayClock::now())?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn table_text(view: &CollectivesView, when: DisplayClock) -> Result<String, CommandFailure> {
    let of_type = |table: &TypeCollectives| {
        let node_type = table.node_type.clone();
        let imported_at = table.imported_at;
        let shown = move |row: &CollectiveRow| CollectiveTableRow {
            node_type: node_type.clone(),
            imported_at,
            row: *row,
            when,
        };
        table.rows.iter().map(shown).collect::<Vec<CollectiveTableRow>>()
    };
    let rows: Vec<CollectiveTableRow> = view.types.iter().flat_map(of_type).collect();
    filter::render_full_table(DEFAULT, COLUMNS, &rows)
}

/// Becomes Python.
fn exec_measurement(args: &MeasureArgs) -> CommandResult {
    let error = python_command(args).exec();
    let program = args.python.display();
    Err(anyhow::Error::new(error)
        .context(format!("cannot run {program}: expected a Python (--python)"))
        .into())
}

fn python_command(args: &MeasureArgs) -> Command {
    let mut command = Command::new(&args.python);
    command.args(["-m", PYTHON_MODULE]);
    command.args(args.bytes.iter().map(|bytes| format!("--bytes={bytes}")));
    if let Some(out) = &args.out {
        command.arg("--out").arg(out);
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::samples;
    use infill_api::SCHEMA;
    use infill_model::CollectiveOp;
    use infill_testkit::samples::NOW;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        args: CollectivesArgs,
    }

    #[test]
    fn the_sites_table() {
        let row =
            CollectiveRow { op: CollectiveOp::AllReduce, bytes: 1 << 20, ranks: 8, nodes: 2, secs: 0.000_25 };
        let table = TypeCollectives { node_type: "a100".to_owned(), imported_at: NOW, rows: vec![row] };
        let view = CollectivesView { schema: SCHEMA, types: vec![table] };
        let text = table_text(&view, samples::sample_moment()).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let header = ["TYPE", "OPERATION", "BYTES", "RANKS", "NODES", "RANKS/NODE", "MSECS", "IMPORTED"];
        assert_eq!(lines[0], header, "{text}");
        assert_eq!(lines[1][..7], ["a100", "all_reduce", "1048576", "8", "2", "4", "0.250"], "{text}");
        let nothing = CollectivesView { schema: SCHEMA, types: Vec::new() };
        assert!(table_text(&nothing, samples::sample_moment()).unwrap().starts_with("TYPE"));
    }

    #[test]
    fn what_python_is_asked() {
        let asked = |line: &str| {
            let CollectivesTask::Measure(args) = Flags::parse_from(line.split(' ')).args.command else {
                panic!("measure was asked for")
            };
            format!("{:?}", python_command(&args)).replace('"', "")
        };
        assert_eq!(asked("infill measure"), "python3 -m infill.collectives");
        assert_eq!(
            asked("infill measure --python=/opt/py --bytes 1K,1M --out t.csv"),
            "/opt/py -m infill.collectives --bytes=1K,1M --out t.csv"
        );
    }
}
