//! `infill collectives`: measures how long collectives take on the nodes of a job, and manages the site's
//! table of these times. The user's own Python and PyTorch measure, because their library is what programs
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

/// The module of the package in `contrib/python` that measures.
const PYTHON_MODULE: &str = "infill.collectives";

/// Flags of `infill collectives`.
#[derive(Clone, Debug, Args)]
pub struct CollectivesArgs {
    #[command(subcommand)]
    command: CollectivesTask,
}

#[derive(Clone, Debug, Subcommand)]
enum CollectivesTask {
    /// Measure all-reduce and other collectives on the nodes of this job
    #[command(
        after_help = "Run it on all ranks of a job, with PyTorch and infill's Python package (`infill python install`). In a \
        job of the main queue, srun starts the ranks.\n\n\
        Measured are all-reduce, all-gather, reduce-scatter and point-to-point. Rank 0 writes the columns op,bytes,world,nodes,seconds_median: with NCCL where there are GPUs, else gloo."
    )]
    Measure(MeasureArgs),
    /// Import a measured table; for root and `daemon.admins`
    ///
    /// It replaces the table for this type of nodes.
    Import(ImportTableArgs),
    /// Show the site's table
    Show(ShowTableArgs),
}

#[derive(Clone, Debug, Args)]
struct ImportTableArgs {
    /// CSV as `infill collectives measure` writes it: op, bytes, world, nodes, seconds_median
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The type of nodes on which it was measured: a whole name from `infill nodes` (gpu:a100:4/cpu64), or a
    /// word of it (a100)
    #[arg(long, value_name = "TYPE")]
    node_type: String,
    /// Print the site's table as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct ShowTableArgs {
    /// Show only this type of nodes, by the name that it was imported with
    #[arg(long, value_name = "TYPE")]
    node_type: Option<String>,
    /// Print JSON
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
    TableColumn { letter: 'k', header: "RANKS/NODE", help: "", cell: ranks_per_node },
    TableColumn { letter: 's', header: "MSECS", help: "", cell: |s| format!("{:.3}", 1e3 * s.row.secs) },
    TableColumn { letter: 'i', header: "IMPORTED", help: "", cell: |s| s.when.format_moment(s.imported_at) },
];

/// Ranks per node with at most two decimals.
fn ranks_per_node(listed: &CollectiveTableRow) -> String {
    let ratio = f64::from(listed.row.ranks) / f64::from(listed.row.nodes.max(1));
    ((100.0 * ratio).round() / 100.0).to_string()
}

#[derive(Clone, Debug, Args)]
struct MeasureArgs {
    /// The Python that has PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Sizes of the tensors in bytes, such as 64K,1M,16M [default: 4K,64K,1M,16M,64M]
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
    // A wrong table is refused here, before the daemon is asked.
    let table = TypeCollectives { node_type, imported_at: UnixTime::default(), rows };
    table.check_rows().map_err(|e| ProgramExit::Input.caused_by(e))?;
    let TypeCollectives { node_type, rows, .. } = table;
    let message = format!("imported {} for {node_type}", output::counted_noun(count as u64, "row"));
    let request = ImportCollectivesRequest { proof: BodyProof::default(), node_type, rows };
    let client = session.daemon_client()?;
    let view: CollectivesView =
        client.send_order_for_answer("collectives", routes::IMPORT_COLLECTIVES, &request).await?;
    if args.json {
        output::print_json(&view)?;
    } else {
        output::print_text(&message)?;
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
    let mut rows = Vec::new();
    for table in &view.types {
        rows.extend(table.rows.iter().map(|row| CollectiveTableRow {
            node_type: table.node_type.clone(),
            imported_at: table.imported_at,
            row: *row,
            when,
        }));
    }
    filter::render_full_table(DEFAULT, COLUMNS, &rows)
}

/// Replaces this process by Python. Returns only if that fails.
fn exec_measurement(args: &MeasureArgs) -> CommandResult {
    let error = python_command(args).exec();
    let program = args.python.display();
    Err(anyhow::Error::new(error)
        .context(format!("cannot run {program}: --python must name a Python interpreter"))
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
    use infill_api::SCHEMA_VERSION;
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
        let view = CollectivesView { schema: SCHEMA_VERSION, types: vec![table] };
        let text = table_text(&view, samples::sample_moment()).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let header = ["TYPE", "OPERATION", "BYTES", "RANKS", "NODES", "RANKS/NODE", "MSECS", "IMPORTED"];
        assert_eq!(lines[0], header, "{text}");
        assert_eq!(lines[1][..7], ["a100", "all_reduce", "1048576", "8", "2", "4", "0.250"], "{text}");
        let nothing = CollectivesView { schema: SCHEMA_VERSION, types: Vec::new() };
        assert!(table_text(&nothing, samples::sample_moment()).unwrap().starts_with("TYPE"));
    }

    #[test]
    fn the_flags_reach_python() {
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
