//! `infill nodes`: the nodes of the malleable partition, and the failures of malleable jobs on them.
//!
//! A faulty node shows here long before it is drained. Draining it is left to the administrator.

use std::sync::LazyLock;

use clap::Args;

use super::gaps::id_or_dash;
use super::session::CliSession;
use infill_api::{DaemonStatus, NodeView, routes};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter::{self, TableArgs},
    output::{self, DisplayClock},
    phrases::{node_kind_name, text_or_dash},
    table::{FieldHelp, TableColumn},
};

/// Flags of `infill nodes`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = HELP.as_str())]
pub struct NodesArgs {
    /// Show only these nodes
    #[arg(short = 'n', long, value_name = "NODE,…", value_delimiter = ',', help_heading = "Filters")]
    node: Vec<String>,
    /// Show only nodes on which a job failed, or that infill does not use
    #[arg(short = 'b', long, help_heading = "Filters")]
    bad: bool,
    #[command(flatten)]
    table: TableArgs,
}

/// A row of the table: a node, and the present moment.
struct ListedNode {
    node: NodeView,
    when: DisplayClock,
}

const DEFAULT: &str = "%N %T %s %t %i %f %l %r";

static HELP: LazyLock<String> = LazyLock::new(|| FieldHelp(COLUMNS, DEFAULT).to_string());

const COLUMNS: &[TableColumn<ListedNode>] = &[
    TableColumn { letter: 'N', header: "NODE", help: "node", cell: |r| r.node.node.to_string() },
    TableColumn { letter: 'T', header: "TYPE", help: "node type", cell: |r| r.node.node_type.clone() },
    TableColumn { letter: 's', header: "STATE", help: "Slurm's state", cell: |r| r.node.state.clone() },
    TableColumn {
        letter: 't',
        header: "KIND",
        help: "gap, held, busy or refused",
        cell: |r| node_kind_name(r.node.kind).to_owned(),
    },
    TableColumn {
        letter: 'i',
        header: "JOBID",
        help: "malleable job that holds it",
        cell: |r| id_or_dash(r.node.job),
    },
    TableColumn {
        letter: 'f',
        header: "FAILED",
        help: "malleable jobs that failed on it within the last hour",
        cell: |r| r.node.failures.len().to_string(),
    },
    TableColumn {
        letter: 'l',
        header: "LAST",
        help: "time since the last of these failures",
        cell: |r| r.node.failures.last().map_or_else(|| "-".to_owned(), |f| r.when.time_since(f.at)),
    },
    TableColumn {
        letter: 'J',
        header: "FAILEDJOBS",
        help: "the jobs that failed",
        cell: |r| {
            text_or_dash(&r.node.failures.iter().map(|f| id_or_dash(f.job)).collect::<Vec<_>>().join(","))
        },
    },
    TableColumn {
        letter: 'r',
        header: "REASON",
        help: "why it is refused, else the last failure on it",
        cell: node_reason,
    },
];

fn node_reason(row: &ListedNode) -> String {
    let last_failure = row.node.failures.last().map(|failure| match failure.job {
        Some(job) => format!("job {job}: {}", failure.what),
        None => failure.what.clone(),
    });
    text_or_dash(&row.node.why.clone().or(last_failure).unwrap_or_default())
}

/// Runs `infill nodes`.
pub async fn run(args: NodesArgs, session: &CliSession) -> CommandResult {
    args.table.check_format(COLUMNS)?;
    let status: DaemonStatus = session.daemon_client()?.get(routes::STATUS).await?;
    if let Some(name) = args.node.iter().find(|name| !status.nodes.iter().any(|n| n.node.matches_name(name)))
    {
        return Err(ProgramExit::NotFound.caused_by(anyhow::anyhow!("no node {name} in infill's partition")));
    }
    let nodes = select_nodes(&status, &args);
    if args.table.json {
        output::print_json(&DaemonStatus { nodes, jobs: Vec::new(), ..status })?;
    } else {
        output::print_text(&node_table(nodes, &args.table, DisplayClock::now())?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn node_table(nodes: Vec<NodeView>, args: &TableArgs, when: DisplayClock) -> Result<String, CommandFailure> {
    let rows: Vec<ListedNode> = nodes.into_iter().map(|node| ListedNode { node, when }).collect();
    filter::render_table(args, DEFAULT, COLUMNS, &rows)
}

fn select_nodes(status: &DaemonStatus, args: &NodesArgs) -> Vec<NodeView> {
    status
        .nodes
        .iter()
        .filter(|n| args.node.is_empty() || args.node.iter().any(|name| n.node.matches_name(name)))
        .filter(|n| !args.bad || n.why.is_some() || !n.failures.is_empty())
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use infill_api::NodeFailure;
    use infill_model::{JobId, UnixTime};

    fn status() -> DaemonStatus {
        let mut status = samples::sample_status();
        let failure = |job, secs: i64, what: &str| NodeFailure {
            job: Some(JobId(job)),
            at: UnixTime(samples::NOW.0 - secs),
            what: what.to_owned(),
        };
        status.nodes[2].failures = vec![
            failure(101, 900, "a wing did not come up"),
            failure(102, 60, "a command failed there with code 3"),
        ];
        status
    }

    #[test]
    fn all_nodes_with_their_failures() {
        let show = |args: &NodesArgs| {
            node_table(select_nodes(&status(), args), &args.table, samples::sample_moment()).unwrap()
        };
        insta::assert_snapshot!(show(&NodesArgs::default()), @r"
        NODE TYPE             STATE      KIND    JOBID FAILED LAST REASON
        n1   gpu:a100:4/cpu64 ALLOCATED  held    101   0      -    -
        n2   gpu:a100:4/cpu64 ALLOCATED  held    101   0      -    -
        n3   gpu:a100:4/cpu64 IDLE       gap     -     2      1:00 job 102: a command failed there with code 3
        n4   gpu:a100:4/cpu64 ALLOCATED  busy    -     0      -    -
        n5   gpu:a100:4/cpu64 IDLE+DRAIN refused -     0      -    drained: bad fan
        ");
        let bad = NodesArgs { bad: true, ..NodesArgs::default() };
        insta::assert_snapshot!(show(&bad), @r"
        NODE TYPE             STATE      KIND    JOBID FAILED LAST REASON
        n3   gpu:a100:4/cpu64 IDLE       gap     -     2      1:00 job 102: a command failed there with code 3
        n5   gpu:a100:4/cpu64 IDLE+DRAIN refused -     0      -    drained: bad fan
        ");
    }
}
