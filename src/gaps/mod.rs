//! `infill gaps`: the nodes that the main queue does not use, and until when; or, from a log, how long such
//! gaps last.

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
#[command(disable_help_flag = true, after_help = HELP.as_str())]
pub struct GapsArgs {
    /// All nodes of the partition, with those that are busy or refused.
    #[arg(short = 'a', long)]
    all: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten, next_help_heading = "Statistics of a log, without a daemon")]
    log: LogArgs,
}

impl GapsArgs {
    /// Whether anything is said of which nodes are listed, and how: a log's statistics have no such list.
    fn chooses_nodes(&self) -> bool {
        let FilterArgs { me, user, job, node } = &self.filter;
        let chosen = *me || !(user.is_empty() && job.is_empty() && node.is_empty());
        chosen || self.all || self.table.format.is_some() || self.table.noheader
    }
}

/// A node and the moment at which it is looked at.
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
        help: "how long it has been a gap",
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
        help: "time until then",
        cell: |r| time_or_dash(r.node.window_end, |t| r.when.time_until(t)),
    },
    TableColumn {
        letter: 'U',
        header: "USABLE",
        help: "time that the planner counts on",
        cell: |r| time_or_dash(r.node.usable_until, |t| r.when.time_until(t)),
    },
    TableColumn {
        letter: 'w',
        header: "BY",
        help: "who wants it back",
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

/// A job id or a dash.
pub fn id_or_dash(job: Option<JobId>) -> String {
    job.map_or_else(|| "-".to_owned(), |j| j.to_string())
}

fn time_or_dash(moment: Option<UnixTime>, show: impl FnOnce(UnixTime) -> String) -> String {
    moment.map_or_else(|| "-".to_owned(), show)
}

/// `2` GPUs, or `6c`.
fn idle_share_text(idle: IdleShare) -> String {
    if idle.gpus > 0 { idle.gpus.to_string() } else { format!("{}c", idle.cpus) }
}

/// Runs `infill gaps`.
pub async fn run(args: GapsArgs, session: &CliSession) -> CommandResult {
    if args.log.is_named() {
        if args.chooses_nodes() {
            let what = "the statistics of a log list no nodes: leave out what chooses or formats them";
            return Err(ProgramExit::Usage.caused_by(anyhow::anyhow!(what)));
        }
        return gap_log::run(&args.log, args.table.json);
    }
    if args.log.nodes.is_some() {
        return Err(
            ProgramExit::Usage.caused_by(anyhow::anyhow!("--nodes needs a log: --log FILE or --idle FILE"))
        );
    }
    let status: DaemonStatus = session.daemon_client()?.get(routes::STATUS).await?;
    let filter = args.filter.resolve_me()?;
    if let Some(name) =
        filter.node.iter().find(|name: &&String| !status.nodes.iter().any(|n| n.node.matches_name(name)))
    {
        return Err(ProgramExit::NotFound.caused_by(anyhow::anyhow!("no node {name} in infill's partition")));
    }
    // A node that was asked for by name is shown whatever it is.
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
    let holder_passes = |job: Option<JobId>| {
        if filter.job.is_empty() && filter.user.is_empty() {
            return true;
        }
        let holder = job.and_then(|id| status.jobs.iter().find(|j| j.job == id));
        holder.is_some_and(|j| filter.admits_job(j.job) && filter.admits_user(&j.user))
    };
    status
        .nodes
        .iter()
        .filter(|n: &&NodeView| all || matches!(n.kind, NodeKind::Gap | NodeKind::Held))
        .filter(|n: &&NodeView| filter.admits_node(&n.node) && holder_passes(n.job))
        .cloned()
        .collect()
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
    fn all_nodes_in_an_own_format() {
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
