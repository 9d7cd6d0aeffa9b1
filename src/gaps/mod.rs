//! `infill gaps`: the nodes that the main queue does not use, and until when; or, from a log, how long such
//! gaps last.

use std::sync::LazyLock;

use clap::Args;

use super::session::Session;
use infill_api::{IdleShare, NodeKind, NodeView, Status, routes};
use infill_lab::{gap_log, simulate::args::LogArgs};
use infill_model::{JobId, UnixTime};
use infill_present::{
    exit::{CommandResult, Exit},
    filter::{self, FilterArgs, TableArgs},
    output::{self, When},
    table::{Column, FieldHelp},
    words::kind,
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
struct Row {
    node: NodeView,
    when: When,
}

const DEFAULT: &str = "%N %t %i %a %e %l %U %w %r";

static HELP: LazyLock<String> = LazyLock::new(|| FieldHelp(COLUMNS, DEFAULT).to_string());

const COLUMNS: &[Column<Row>] = &[
    Column { letter: 'N', header: "NODE", help: "node", cell: |r| r.node.node.to_string() },
    Column { letter: 'T', header: "TYPE", help: "node type", cell: |r| r.node.node_type.clone() },
    Column {
        letter: 't',
        header: "KIND",
        help: "gap, held, busy or refused",
        cell: |r| kind(r.node.kind).to_owned(),
    },
    Column { letter: 's', header: "STATE", help: "Slurm's state", cell: |r| r.node.state.clone() },
    Column { letter: 'i', header: "JOBID", help: "malleable job that holds it", cell: |r| id(r.node.job) },
    Column {
        letter: 'm',
        header: "MAINJOB",
        help: "main job that runs on it",
        cell: |r| id(r.node.main_job),
    },
    Column {
        letter: 'a',
        header: "AGE",
        help: "how long it has been a gap",
        cell: |r| time(r.node.since, |t| r.when.ago(t)),
    },
    Column {
        letter: 'e',
        header: "WANTED",
        help: "when the main queue wants it back, if planned",
        cell: |r| time(r.node.window_end, |t| r.when.clock(t)),
    },
    Column {
        letter: 'l',
        header: "LEFT",
        help: "time until then",
        cell: |r| time(r.node.window_end, |t| r.when.until(t)),
    },
    Column {
        letter: 'U',
        header: "USABLE",
        help: "time that the planner counts on",
        cell: |r| time(r.node.usable_until, |t| r.when.until(t)),
    },
    Column {
        letter: 'w',
        header: "BY",
        help: "who wants it back",
        cell: |r| r.node.wanted_by.clone().unwrap_or_else(|| "-".to_owned()),
    },
    Column {
        letter: 'g',
        header: "BESIDE",
        help: "GPUs that main jobs leave idle on it, or CPUs (c) where it has none",
        cell: |r| r.node.idle.map_or_else(|| "-".to_owned(), beside),
    },
    Column {
        letter: 'r',
        header: "REASON",
        help: "why it is refused",
        cell: |r| r.node.why.clone().unwrap_or_else(|| "-".to_owned()),
    },
];

/// A job id or a dash.
pub fn id(job: Option<JobId>) -> String {
    job.map_or_else(|| "-".to_owned(), |j| j.to_string())
}

fn time(moment: Option<UnixTime>, show: impl FnOnce(UnixTime) -> String) -> String {
    moment.map_or_else(|| "-".to_owned(), show)
}

/// `2` GPUs, or `6c`.
fn beside(idle: IdleShare) -> String {
    if idle.gpus > 0 { idle.gpus.to_string() } else { format!("{}c", idle.cpus) }
}

/// Runs `infill gaps`.
pub async fn run(args: GapsArgs, session: &Session) -> CommandResult {
    if args.log.is_named() {
        if args.chooses_nodes() {
            let what = "the statistics of a log list no nodes: leave out what chooses or formats them";
            return Err(Exit::Usage.because(anyhow::anyhow!(what)));
        }
        return gap_log::run(&args.log, args.table.json);
    }
    if args.log.nodes.is_some() {
        return Err(Exit::Usage.because(anyhow::anyhow!("--nodes needs a log: --log FILE or --idle FILE")));
    }
    let status: Status = session.client()?.get(routes::STATUS).await?;
    let filter = args.filter.resolve()?;
    let unknown = |name: &&String| !status.nodes.iter().any(|n| n.node.matches_name(name));
    if let Some(name) = filter.node.iter().find(unknown) {
        return Err(Exit::NotFound.because(anyhow::anyhow!("no node {name} in infill's partition")));
    }
    // A node that was asked for by name is shown whatever it is.
    let all = args.all || !filter.node.is_empty();
    let nodes = select(&status, &filter, all);
    if args.table.json {
        output::print_json(&Status { nodes, ..status })?;
    } else {
        output::print(&table(nodes, &args.table, When::now())?)?;
    }
    Ok(Exit::Ok.code())
}

fn table(
    nodes: Vec<NodeView>,
    args: &TableArgs,
    when: When,
) -> Result<String, infill_present::exit::Failure> {
    let rows: Vec<Row> = nodes.into_iter().map(|node| Row { node, when }).collect();
    filter::render(args, DEFAULT, COLUMNS, &rows)
}

fn select(status: &Status, filter: &FilterArgs, all: bool) -> Vec<NodeView> {
    let holder_passes = |job: Option<JobId>| {
        if filter.job.is_empty() && filter.user.is_empty() {
            return true;
        }
        let holder = job.and_then(|id| status.jobs.iter().find(|j| j.job == id));
        holder.is_some_and(|j| filter.job(j.job) && filter.user(&j.user))
    };
    let shown = |n: &&NodeView| all || matches!(n.kind, NodeKind::Gap | NodeKind::Held);
    let passes = |n: &&NodeView| filter.node(&n.node) && holder_passes(n.job);
    status.nodes.iter().filter(shown).filter(passes).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn show(args: &TableArgs, filter: &FilterArgs, all: bool) -> String {
        table(select(&samples::status(), filter, all), args, samples::when()).unwrap()
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
