//! `infill gaps`: the nodes that the main queue does not use now, and until when. With a log, it shows how
//! long the log's gaps last.

use std::sync::LazyLock;

use clap::Args;

use super::session::CliSession;
use infill_api::{DaemonStatus, IdleShare, NodeKind, NodeView, routes};
use infill_lab::{gap_log, simulate::args::LogArgs};
use infill_model::{JobId, UnixTime};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    filter::{self, FilterArgs, TableArgs},
    output::{self, DisplayClock},
    phrases::node_kind_name,
    table::{FieldHelp, TableColumn},
};

/// Flags of `infill gaps`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = HELP.as_str())]
pub struct GapsArgs {
    /// Show all nodes of the partition, also busy and refused ones
    #[arg(short = 'a', long, help_heading = "Filters")]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    log: LogArgs,
}

impl GapsArgs {
    /// Whether a flag chooses nodes or formats their list. A log's statistics have no such list.
    fn chooses_nodes(&self) -> bool {
        let FilterArgs { me, user, job, node } = &self.filter;
        let has_filter = *me || !(user.is_empty() && job.is_empty() && node.is_empty());
        has_filter || self.all || self.table.format.is_some() || self.table.noheader
    }
}

/// A row of the table: a node, and the present moment.
struct GapRow {
    node: NodeView,
    when: DisplayClock,
}

const DEFAULT: &str = "%N %t %i %a %e %l %U %w %r";

static HELP: LazyLock<String> = LazyLock::new(|| FieldHelp(COLUMNS, DEFAULT).to_string());

const COLUMNS: &[TableColumn<GapRow>] = &[
    TableColumn { letter: 'N', header: "NODE", help: "node", cell: |r| r.node.node.to_string() },
    TableColumn { letter: 'T', header: "TYPE", help: "node type", cell: |r| r.node.node_type.clone() },
    TableColumn {
        letter: 't',
        header: "KIND",
        help: "gap, held, busy or refused",
        cell: |r| node_kind_name(r.node.kind).to_owned(),
    },
    TableColumn { letter: 's', header: "STATE", help: "Slurm's state", cell: |r| r.node.state.clone() },
    TableColumn {
        letter: 'i',
        header: "JOBID",
        help: "malleable job that holds it",
        cell: |r| id_or_dash(r.node.job),
    },
    TableColumn {
        letter: 'm',
        header: "MAINJOB",
        help: "main job that runs on it",
        cell: |r| id_or_dash(r.node.main_job),
    },
    TableColumn {
        letter: 'a',
        header: "AGE",
        help: "time since it became a gap",
        cell: |r| time_or_dash(r.node.since, |t| r.when.time_since(t)),
    },
    TableColumn {
        letter: 'e',
        header: "WANTED",
        help: "when the main queue wants it back, if planned",
        cell: |r| time_or_dash(r.node.window_end, |t| r.when.format_clock(t)),
    },
    TableColumn {
        letter: 'l',
        header: "LEFT",
        help: "time until the main queue wants it back",
        cell: |r| time_or_dash(r.node.window_end, |t| r.when.time_until(t)),
    },
    TableColumn {
        letter: 'U',
        header: "USABLE",
        help: "time for which the planner counts on it",
        cell: |r| time_or_dash(r.node.usable_until, |t| r.when.time_until(t)),
    },
    TableColumn {
        letter: 'w',
        header: "BY",
        help: "the job or reservation that wants it back",
        cell: |r| r.node.wanted_by.clone().unwrap_or_else(|| "-".to_owned()),
    },
    TableColumn {
        letter: 'g',
        header: "BESIDE",
        help: "GPUs that main jobs leave idle on it, or CPUs (c) where it has none",
        cell: |r| r.node.idle.map_or_else(|| "-".to_owned(), idle_share_text),
    },
    TableColumn {
        letter: 'r',
        header: "REASON",
        help: "why it is refused",
        cell: |r| r.node.why.clone().unwrap_or_else(|| "-".to_owned()),
    },
];

/// A job's id, or a dash for `None`.
pub fn id_or_dash(job: Option<JobId>) -> String {
    job.map_or_else(|| "-".to_owned(), |j| j.to_string())
}

fn time_or_dash(moment: Option<UnixTime>, show: impl FnOnce(UnixTime) -> String) -> String {
    moment.map_or_else(|| "-".to_owned(), show)
}

/// Idle GPUs (`2`), or CPUs (`6c`) if there are no idle GPUs.
fn idle_share_text(idle: IdleShare) -> String {
    if idle.gpus > 0 { idle.gpus.to_string() } else { format!("{}c", idle.cpus) }
}

/// Runs `infill gaps`.
pub async fn run(args: GapsArgs, session: &CliSession) -> CommandResult {
    if args.log.is_named() {
        if args.chooses_nodes() {
            let what = "the statistics of a log list no nodes: remove the flags that choose nodes or format their list";
            return Err(ProgramExit::Usage.caused_by(anyhow::anyhow!(what)));
        }
        return gap_log::run(&args.log, args.table.json);
    }
    if args.log.nodes.is_some() {
        return Err(
            ProgramExit::Usage.caused_by(anyhow::anyhow!("--nodes needs a log: --log FILE or --idle FILE"))
        );
    }
    args.table.check_format(COLUMNS)?;
    let status: DaemonStatus = session.daemon_client()?.get(routes::STATUS).await?;
    let filter = args.filter.resolve_me()?;
    if let Some(name) =
        filter.node.iter().find(|name| !status.nodes.iter().any(|n| n.node.matches_name(name)))
    {
        return Err(ProgramExit::NotFound.caused_by(anyhow::anyhow!("no node {name} in infill's partition")));
    }
    // A node that the user names is shown whatever its kind.
    let all = args.all || !filter.node.is_empty();
    let nodes = select_nodes(&status, &filter, all);
    if args.table.json {
        output::print_json(&DaemonStatus { nodes, ..status })?;
    } else {
        output::print_text(&gap_table(nodes, &args.table, DisplayClock::now())?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn gap_table(
    nodes: Vec<NodeView>,
    args: &TableArgs,
    when: DisplayClock,
) -> Result<String, infill_present::exit::CommandFailure> {
    let rows: Vec<GapRow> = nodes.into_iter().map(|node| GapRow { node, when }).collect();
    filter::render_table(args, DEFAULT, COLUMNS, &rows)
}

fn select_nodes(status: &DaemonStatus, filter: &FilterArgs, all: bool) -> Vec<NodeView> {
    let mut selected = Vec::new();
    for node in &status.nodes {
        let is_listed = all || matches!(node.kind, NodeKind::Gap | NodeKind::Held);
        if is_listed && filter.admits_node(&node.node) && admits_holder(status, filter, node.job) {
            selected.push(node.clone());
        }
    }
    selected
}

/// Whether the filter admits a node's malleable job. A filter on jobs or users admits no node without one.
fn admits_holder(status: &DaemonStatus, filter: &FilterArgs, holder: Option<JobId>) -> bool {
    if filter.job.is_empty() && filter.user.is_empty() {
        return true;
    }
    let job = holder.and_then(|id| status.jobs.iter().find(|j| j.job == id));
    job.is_some_and(|j| filter.admits_job(j.job) && filter.admits_user(&j.user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn show(args: &TableArgs, filter: &FilterArgs, all: bool) -> String {
        gap_table(select_nodes(&samples::sample_status(), filter, all), args, samples::sample_moment())
            .unwrap()
    }

    #[test]
    fn the_default_table_shows_gaps_only() {
        insta::assert_snapshot!(show(&TableArgs::default(), &FilterArgs::default(), false), @r"
        NODE KIND JOBID AGE   WANTED   LEFT  USABLE BY     REASON
        n1   held 101   10:00 22:40:17 30:00 29:45  job 77 -
        n2   held 101   10:00 -        -     29:45  -      -
        n3   gap  -     0:30  -        -     4:00   -      -
        ");
    }

    #[test]
    fn all_nodes_in_a_format_of_the_user() {
        let args = TableArgs { format: Some("%N|%t|%s|%m|%T|%r".parse().unwrap()), ..Default::default() };
        insta::assert_snapshot!(show(&args, &FilterArgs::default(), true), @r"
        NODE|KIND   |STATE     |MAINJOB|TYPE            |REASON
        n1  |held   |ALLOCATED |-      |gpu:a100:4/cpu64|-
        n2  |held   |ALLOCATED |-      |gpu:a100:4/cpu64|-
        n3  |gap    |IDLE      |-      |gpu:a100:4/cpu64|-
        n4  |busy   |ALLOCATED |55     |gpu:a100:4/cpu64|-
        n5  |refused|IDLE+DRAIN|-      |gpu:a100:4/cpu64|drained: bad fan
        ");
    }

    #[test]
    fn nodes_of_a_users_jobs() {
        let args = TableArgs { noheader: true, format: Some("%N".parse().unwrap()), ..Default::default() };
        let filter = FilterArgs { user: vec!["alice".to_owned()], ..Default::default() };
        insta::assert_snapshot!(show(&args, &filter, false), @r"
        n1
        n2
        ");
    }
}
