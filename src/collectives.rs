//! `infill collectives`: how long collectives take on the nodes of a job, as a table. PyTorch measures them,
//! by the user's own Python: what counts is the library that the user's programs run with.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand};

use infill_present::exit::CommandResult;

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

/// Runs `infill collectives`; becomes Python.
pub fn run(args: CollectivesArgs) -> CommandResult {
    let Task::Measure(args) = args.command;
    let error = command(&args).exec();
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

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        args: CollectivesArgs,
    }

    #[test]
    fn what_python_is_asked() {
        let asked = |line: &str| {
            let Task::Measure(args) = Flags::parse_from(line.split(' ')).args.command;
            format!("{:?}", command(&args)).replace('"', "")
        };
        assert_eq!(asked("infill measure"), "python3 -m infill.collectives");
        assert_eq!(
            asked("infill measure --python=/opt/py --bytes 1K,1M --out t.csv"),
            "/opt/py -m infill.collectives --bytes=1K,1M --out t.csv"
        );
    }
}
