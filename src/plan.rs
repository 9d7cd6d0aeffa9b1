//! `infill plan`: what a round would do now, without doing it.

use clap::{ArgAction, Args};

use super::session::CliSession;
use infill_api::{RoundView, routes};
use infill_model::{NodeVerdict, SolveStatus, UnixTime, hostlist};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    output::{self, DisplayClock},
    phrases::describe_forecast,
    table::{TableColumn, TableLayout},
};

/// Flags of `infill plan`.
#[derive(Clone, Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PlanArgs {
    /// Ask Slurm directly and plan here, without a daemon (no memory of gaps and profiles)
    #[arg(long)]
    local: bool,
    /// No headers
    #[arg(short = 'h', long)]
    noheader: bool,
    /// The whole document as JSON
    #[arg(long)]
    json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

struct JobRow {
    id: String,
    had: u32,
    gets: u32,
    nodes: String,
    rate: String,
    forecast: String,
    why: String,
}

struct NodeRow {
    verdict: NodeVerdict,
    until: String,
}

const JOB_COLUMNS: &[TableColumn<JobRow>] = &[
    TableColumn { letter: 'i', header: "JOBID", help: "", cell: |r| r.id.clone() },
    TableColumn { letter: 'h', header: "HAD", help: "", cell: |r| r.had.to_string() },
    TableColumn { letter: 'g', header: "GETS", help: "", cell: |r| r.gets.to_string() },
    TableColumn { letter: 'R', header: "RATE", help: "", cell: |r| r.rate.clone() },
    TableColumn { letter: 'N', header: "NODELIST", help: "", cell: |r| r.nodes.clone() },
    TableColumn { letter: 'f', header: "FORECAST", help: "", cell: |r| r.forecast.clone() },
    TableColumn { letter: 'r', header: "WHY", help: "", cell: |r| r.why.clone() },
];

const NODE_COLUMNS: &[TableColumn<NodeRow>] = &[
    TableColumn { letter: 'N', header: "NODE", help: "", cell: |r| r.verdict.node.to_string() },
    TableColumn {
        letter: 'i',
        header: "JOBID",
        help: "",
        cell: |r| r.verdict.job.map_or_else(|| "-".to_owned(), |j| j.to_string()),
    },
    TableColumn { letter: 'e', header: "UNTIL", help: "", cell: |r| r.until.clone() },
    TableColumn { letter: 'r', header: "WHY", help: "", cell: |r| r.verdict.why.to_string() },
];

/// Runs `infill plan`.
pub async fn run(args: PlanArgs, session: &CliSession) -> CommandResult {
    let round: RoundView = if args.local {
        infill_daemon::serve::plan_once(&session.load_config()?).await.map_err(crate::daemon_failure)?
    } else {
        session.daemon_client()?.get(routes::PLAN).await?
    };
    if args.json {
        output::print_json(&round)?;
    } else {
        let layout = TableLayout { header: !args.noheader, terminal: output::terminal_width() };
        output::print_text(&render_plan(&round, layout, DisplayClock::now())?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn render_plan(round: &RoundView, layout: TableLayout, when: DisplayClock) -> Result<String, CommandFailure> {
    let mut text = String::new();
    if layout.header {
        text.push_str(&format!("{}\n", plan_headline(round)));
        text.extend(round.report.notes.iter().map(|n| format!("note: {n}\n")));
        text.push('\n');
    }
    let failed = |e| ProgramExit::Failed.caused_by(anyhow::Error::new(e));
    let jobs = job_rows(round, when);
    let nodes = node_rows(round, when);
    let format = "%i %h %g %R %N %f %r".parse::<infill_present::table::TableFormat>().map_err(failed)?;
    text.push_str(&format.render_rows(JOB_COLUMNS, &jobs, layout).map_err(failed)?);
    text.push('\n');
    let format = "%N %i %e %r".parse::<infill_present::table::TableFormat>().map_err(failed)?;
    text.push_str(&format.render_rows(NODE_COLUMNS, &nodes, layout).map_err(failed)?);
    Ok(text)
}

fn plan_headline(round: &RoundView) -> String {
    let status = match &round.plan.status {
        SolveStatus::Optimal => "optimal".to_owned(),
        SolveStatus::TimeLimit { gap: Some(gap) } => {
            format!("best in the time given, within {:.1} % of the bound", gap * 100.0)
        }
        SolveStatus::TimeLimit { gap: None } => "best in the time given".to_owned(),
        SolveStatus::Unasked { gap: Some(gap) } => {
            format!("the solver was not asked, within {:.1} % of the bound", gap * 100.0)
        }
        SolveStatus::Unasked { gap: None } => "the solver was not asked".to_owned(),
        SolveStatus::Fallback(why) => format!("without the solver, for it gave none: {why}"),
        SolveStatus::LastResort(why) => format!("nothing is planned: {why}"),
        SolveStatus::Trivial => "nothing to decide".to_owned(),
    };
    let secs: f64 = round.secs.values().sum();
    let acting = if round.acting { "" } else { "; not carried out" };
    format!(
        "plan: {status}; worth {} weighted samples; {secs:.2} s{acting}",
        output::format_number(round.plan.objective)
    )
}

fn job_rows(round: &RoundView, when: DisplayClock) -> Vec<JobRow> {
    let row = |verdict: &infill_model::JobVerdict| {
        let plan = round.plan.job_plan(verdict.job);
        let nodes: Vec<_> = plan.iter().flat_map(|p| &p.nodes).map(|p| p.node.clone()).collect();
        JobRow {
            id: verdict.job.to_string(),
            had: verdict.had,
            gets: verdict.gets,
            nodes: if nodes.is_empty() { "-".to_owned() } else { hostlist::compress_nodes(&nodes) },
            rate: plan.map_or_else(|| "-".to_owned(), |p| output::format_number(p.rate)),
            forecast: plan.map_or_else(|| "-".to_owned(), |p| describe_forecast(p, when)),
            why: verdict.full_sentence(),
        }
    };
    round.report.jobs.iter().map(row).collect()
}

fn node_rows(round: &RoundView, when: DisplayClock) -> Vec<NodeRow> {
    let lease = |verdict: &NodeVerdict| -> Option<UnixTime> {
        let plan = round.plan.job_plan(verdict.job?)?;
        plan.nodes.iter().find(|p| p.node.single_places().contains(&verdict.node)).map(|p| p.lease_until)
    };
    round
        .report
        .nodes
        .iter()
        .map(|verdict: &NodeVerdict| NodeRow {
            until: lease(verdict).map_or_else(|| "-".to_owned(), |t| when.format_clock(t)),
            verdict: verdict.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn jobs_and_nodes() {
        let layout = TableLayout { header: true, terminal: None };
        insta::assert_snapshot!(render_plan(&samples::sample_round(), layout, samples::sample_moment()).unwrap(), @r"
        plan: optimal; worth 1.45M weighted samples; 0.04 s
        note: backfill's plan was cut short

        JOBID HAD GETS RATE NODELIST FORECAST                           WHY
        101   2   2    812  n[1-2]   2 until 22:25:17, 1 until 22:40:02 growing to 3 costs 18 s and gains 12 s
        102   0   0    0    -        -                                  needs 2 nodes for a minute

        NODE JOBID UNTIL    WHY
        n1   101   22:40:02 kept
        n2   101   22:40:02 kept
        n3   -     -        closes in 4:00, too soon for any job
        ");
    }
}
