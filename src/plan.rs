//! `infill plan`: shows what a round would do now, without doing it.

use clap::Args;

use super::session::CliSession;
use infill_api::{RoundView, routes};
use infill_model::{NodeVerdict, SolveStatus, UnixTime, hostlist};
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    output::{self, DisplayClock},
    phrases::describe_forecast,
    table::{TableColumn, TableFormat, TableLayout},
};

/// Flags of `infill plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// Ask Slurm directly and plan here, without a daemon (the plan then lacks past gaps and profiles)
    #[arg(long)]
    local: bool,
    /// Print no headers
    #[arg(long)]
    noheader: bool,
    /// Print the whole document as JSON
    #[arg(long)]
    json: bool,
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
    text.push_str(&render_rows("%i %h %g %R %N %f %r", JOB_COLUMNS, &job_rows(round, when), layout)?);
    text.push('\n');
    text.push_str(&render_rows("%N %i %e %r", NODE_COLUMNS, &node_rows(round, when), layout)?);
    Ok(text)
}

fn render_rows<R>(
    format: &str,
    columns: &[TableColumn<R>],
    rows: &[R],
    layout: TableLayout,
) -> Result<String, CommandFailure> {
    let table = format.parse::<TableFormat>().and_then(|format| format.render_rows(columns, rows, layout));
    table.map_err(|e| ProgramExit::Failed.caused_by(anyhow::Error::new(e)))
}

fn plan_headline(round: &RoundView) -> String {
    let status = match &round.plan.status {
        SolveStatus::Optimal => "optimal".to_owned(),
        SolveStatus::TimeLimit { gap: Some(gap) } => {
            format!("best within the time limit, at most {:.1} % below the best possible", gap * 100.0)
        }
        SolveStatus::TimeLimit { gap: None } => "best within the time limit".to_owned(),
        SolveStatus::SolverNotUsed { gap: Some(gap) } => {
            format!("the solver was not needed, at most {:.1} % below the best possible", gap * 100.0)
        }
        SolveStatus::SolverNotUsed { gap: None } => "the solver was not asked".to_owned(),
        SolveStatus::Fallback(why) => format!("made without the solver, which gave no plan: {why}"),
        SolveStatus::LastResort(why) => {
            format!("last resort, in which each job keeps what it need not leave: {why}")
        }
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
    let verdicts = round.report.jobs.iter();
    verdicts
        .map(|verdict| {
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
        })
        .collect()
}

fn node_rows(round: &RoundView, when: DisplayClock) -> Vec<NodeRow> {
    let verdicts = round.report.nodes.iter();
    verdicts
        .map(|verdict| NodeRow {
            until: lease_end(round, verdict).map_or_else(|| "-".to_owned(), |t| when.format_clock(t)),
            verdict: verdict.clone(),
        })
        .collect()
}

/// When the lease of a node's job on it ends. `None` if no job gets the node.
fn lease_end(round: &RoundView, verdict: &NodeVerdict) -> Option<UnixTime> {
    let plan = round.plan.job_plan(verdict.job?)?;
    plan.nodes.iter().find(|p| p.node.single_places().contains(&verdict.node)).map(|p| p.lease_until)
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
