//! `infill collectives`: how long collectives take on the nodes of a job, as a table, and the site's table of
//! them. PyTorch measures them, by the user's own Python: what counts is the library that the user's programs
//! run with.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand};

use crate::session::Session;
use infill_api::{BodyProof, CollectivesView, ImportCollectivesRequest, routes};
use infill_model::{CollectiveRow, TypeCollectives, UnixTime};
use infill_present::{
    exit::{CommandResult, Exit, Failure},
    filter,
    output::{self, When},
    table::Column,
};
use infill_traces as traces;

/// What measures, of the package in `contrib/python`.
const MODULE: &str = "infill.collectives";

/// Flags of `infill collectives`.
#[derive(Clone, Debug, Args)]
pub struct CollectivesArgs {
    #[command(subcommand)]
    command: Task,
}

#[derive(Clone, Debug, Subcommand)]
enum Task {
    /// Measure all-reduce, all-gather, reduce-scatter and point-to-point on the nodes of this job
    #[command(
        after_help = "Run it on all ranks of a job, with PyTorch and infill's Python package (contrib/python):\n\n  \
        srun --ntasks-per-node=4 infill collectives measure --out table.csv\n  \
        infill run --nproc-per-node=4 -- infill collectives measure --out table.csv\n\n\
        Rank 0 writes the columns op,bytes,world,nodes,seconds_median: with NCCL where there are GPUs, else gloo."
    )]
    Measure(MeasureArgs),
    /// Take in a table that was measured, in place of what was known of these nodes; for administrators
    Import(ImportArgs),
    /// Show the site's table
    Show(ShowArgs),
}

#[derive(Clone, Debug, Args)]
struct ImportArgs {
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
struct ShowArgs {
    /// Only what was measured on this type of nodes, as it was named
    #[arg(long, value_name = "TYPE")]
    node_type: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A row of the site's table.
struct Shown {
    node_type: String,
    imported_at: UnixTime,
    row: CollectiveRow,
    when: When,
}

const DEFAULT: &str = "%t %o %.b %.r %.n %.k %.s %i";

const COLUMNS: &[Column<Shown>] = &[
    Column { letter: 't', header: "TYPE", help: "", cell: |s| s.node_type.clone() },
    Column { letter: 'o', header: "OPERATION", help: "", cell: |s| s.row.op.to_string() },
    Column { letter: 'b', header: "BYTES", help: "", cell: |s| s.row.bytes.to_string() },
    Column { letter: 'r', header: "RANKS", help: "", cell: |s| s.row.ranks.to_string() },
    Column { letter: 'n', header: "NODES", help: "", cell: |s| s.row.nodes.to_string() },
    Column { letter: 'k', header: "RANKS/NODE", help: "", cell: ranks_a_node },
    Column { letter: 's', header: "MSECS", help: "", cell: |s| format!("{:.3}", 1e3 * s.row.secs) },
    Column { letter: 'i', header: "IMPORTED", help: "", cell: |s| s.when.moment(s.imported_at) },
];

fn ranks_a_node(shown: &Shown) -> String {
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
pub async fn run(args: CollectivesArgs, session: &Session) -> CommandResult {
    match args.command {
        Task::Measure(args) => measure(&args),
        Task::Import(args) => import(args, session).await,
        Task::Show(args) => show(&args, session).await,
    }
}

async fn import(args: ImportArgs, session: &Session) -> CommandResult {
    let rows = traces::read_collectives(&args.file).map_err(|e| Exit::Input.because(e))?;
    let (node_type, count) = (args.node_type, rows.len());
    // What is wrong is told before anybody is asked.
    let table = TypeCollectives { node_type, imported_at: UnixTime::default(), rows };
    table.check_rows().map_err(|e| Exit::Input.because(e))?;
    let TypeCollectives { node_type, rows, .. } = table;
    let said = format!("{} of {node_type} taken in", output::counted(count as u64, "row"));
    let request = ImportCollectivesRequest { proof: BodyProof::default(), node_type, rows };
    let client = session.client()?;
    let view: CollectivesView = client.ask("collectives", routes::IMPORT_COLLECTIVES, &request).await?;
    if args.json {
        output::print_json(&view)?;
    } else {
        output::print(&said)?;
    }
    Ok(Exit::Ok.code())
}

async fn show(args: &ShowArgs, session: &Session) -> CommandResult {
    let mut view: CollectivesView = session.client()?.get(routes::COLLECTIVES).await?;
    view.types.retain(|table| args.node_type.as_ref().is_none_or(|name| *name == table.node_type));
    if args.json {
        output::print_json(&view)?;
    } else {
        output::print(&shown(&view, When::now())?)?;
    }
    Ok(Exit::Ok.code())
}

fn shown(view: &CollectivesView, when: When) -> Result<String, Failure> {
    let of_type = |table: &TypeCollectives| {
        let (node_type, imported_at) = (table.node_type.clone(), table.imported_at);
        let shown =
            move |row: &CollectiveRow| Shown { node_type: node_type.clone(), imported_at, row: *row, when };
        table.rows.iter().map(shown).collect::<Vec<Shown>>()
    };
    let rows: Vec<Shown> = view.types.iter().flat_map(of_type).collect();
    filter::whole(DEFAULT, COLUMNS, &rows)
}

/// Becomes Python.
fn measure(args: &MeasureArgs) -> CommandResult {
    let error = command(args).exec();
    let program = args.python.display();
    Err(anyhow::Error::new(error)
        .context(format!("cannot run {program}: expected a Python (--python)"))
        .into())
}

fn command(args: &MeasureArgs) -> Command {
    let mut command = Command::new(&args.python);
    command.args(["-m", MODULE]);
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
        let text = shown(&view, samples::when()).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let header = ["TYPE", "OPERATION", "BYTES", "RANKS", "NODES", "RANKS/NODE", "MSECS", "IMPORTED"];
        assert_eq!(lines[0], header, "{text}");
        assert_eq!(lines[1][..7], ["a100", "all_reduce", "1048576", "8", "2", "4", "0.250"], "{text}");
        let nothing = CollectivesView { schema: SCHEMA, types: Vec::new() };
        assert!(shown(&nothing, samples::when()).unwrap().starts_with("TYPE"));
    }

    #[test]
    fn what_python_is_asked() {
        let asked = |line: &str| {
            let Task::Measure(args) = Flags::parse_from(line.split(' ')).args.command else {
                panic!("measure was asked for")
            };
            format!("{:?}", command(&args)).replace('"', "")
        };
        assert_eq!(asked("infill measure"), "python3 -m infill.collectives");
        assert_eq!(
            asked("infill measure --python=/opt/py --bytes 1K,1M --out t.csv"),
            "/opt/py -m infill.collectives --bytes=1K,1M --out t.csv"
        );
    }
}
