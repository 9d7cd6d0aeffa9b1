//! `infill rounds`: a table of past rounds.

use std::sync::LazyLock;

use clap::Args;

use super::session::CliSession;
use infill_api::{DEFAULT_ROUNDS, MAX_ROUNDS, RoundsQuery, RoundsView, routes};
use infill_model::{RoundSummary, SolveStatus, UnixTime};
use infill_present::{
    exit::{CommandResult, ProgramExit},
    filter::{self, TableArgs},
    output::{self, DisplayClock},
    phrases::{percent, text_or_dash},
    table::{FieldHelp, TableColumn},
    values,
};

/// Flags of `infill rounds`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP.as_str())]
pub struct RoundsArgs {
    /// Show at most this many rounds, the newest
    #[arg(
        short = 'n',
        long,
        value_name = "ROUNDS",
        help_heading = "Filters",
        default_value_t = DEFAULT_ROUNDS,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)),
    )]
    limit: u32,
    /// Show only rounds before this moment: HH:MM[:SS], YYYY-MM-DD[THH:MM[:SS]], now-10minutes, or seconds
    /// since 1970
    #[arg(long, value_name = "TIME", value_parser = values::parse_moment, help_heading = "Filters")]
    before: Option<UnixTime>,
    #[command(flatten)]
    table: TableArgs,
}

/// A row of the table: a round, and the present moment.
struct RoundRow {
    round: RoundSummary,
    when: DisplayClock,
}

const DEFAULT: &str = "%t %A %s %.p %.w %.j %.D %.c %n";

static HELP: LazyLock<String> = LazyLock::new(|| FieldHelp(COLUMNS, DEFAULT).to_string());

const COLUMNS: &[TableColumn<RoundRow>] = &[
    TableColumn { letter: 't', header: "TIME", help: "when", cell: |r| r.when.format_moment(r.round.at) },
    TableColumn { letter: 'A', header: "ACTED", help: "whether it was carried out", cell: acted_text },
    TableColumn {
        letter: 's',
        header: "STATUS",
        help: "how the solve ended: optimal, time_limit, unasked (solver not asked), fallback (solver gave no plan), \
               last_resort (jobs keep what they can), trivial (nothing to decide)",
        cell: |r| status_word(&r.round.status).to_owned(),
    },
    TableColumn {
        letter: 'p',
        header: "PROOF",
        help: "how far the plan may be below the best possible one",
        cell: |r| r.round.gap.map_or_else(|| "-".to_owned(), percent::tenths_percent),
    },
    TableColumn {
        letter: 'w',
        header: "WORTH",
        help: "value of the plan, in weighted samples",
        cell: |r| output::format_number(r.round.objective),
    },
    TableColumn { letter: 'j', header: "JOBS", help: "malleable jobs", cell: |r| r.round.jobs.to_string() },
    TableColumn {
        letter: 'D',
        header: "NODES",
        help: "nodes that these jobs got",
        cell: |r| r.round.nodes.to_string(),
    },
    TableColumn {
        letter: 'c',
        header: "CHANGES",
        help: "jobs whose number of nodes changed",
        cell: |r| r.round.changes.to_string(),
    },
    TableColumn { letter: 'n', header: "NOTES", help: "notes on the round as a whole", cell: note_text },
];

fn acted_text(row: &RoundRow) -> String {
    if row.round.acted { "yes".to_owned() } else { "no".to_owned() }
}

fn status_word(status: &SolveStatus) -> &'static str {
    match status {
        SolveStatus::Optimal => "optimal",
        SolveStatus::TimeLimit { .. } => "time_limit",
        SolveStatus::SolverNotUsed { .. } => "unasked",
        SolveStatus::Fallback(_) => "fallback",
        SolveStatus::LastResort(_) => "last_resort",
        SolveStatus::Trivial => "trivial",
    }
}

fn note_text(row: &RoundRow) -> String {
    let notes: Vec<String> = row.round.notes.iter().map(ToString::to_string).collect();
    text_or_dash(&notes.join("; "))
}

/// Runs `infill rounds`.
pub async fn run(args: RoundsArgs, session: &CliSession) -> CommandResult {
    args.table.check_format(COLUMNS)?;
    let query = RoundsQuery { before: args.before, limit: Some(args.limit) };
    let view: RoundsView = session.daemon_client()?.get_with(routes::ROUNDS, &query).await?;
    if args.table.json {
        output::print_json(&view)?;
    } else {
        output::print_text(&filter::render_table(
            &args.table,
            DEFAULT,
            COLUMNS,
            &round_rows(view, DisplayClock::now()),
        )?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn round_rows(view: RoundsView, when: DisplayClock) -> Vec<RoundRow> {
    view.rounds.into_iter().map(|round| RoundRow { round, when }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn the_default_table() {
        let rows = round_rows(samples::sample_rounds(), samples::sample_moment());
        let text = filter::render_table(&TableArgs::default(), DEFAULT, COLUMNS, &rows).unwrap();
        insta::assert_snapshot!(text, @r"
        TIME                ACTED STATUS     PROOF WORTH JOBS NODES CHANGES NOTES
        2026-11-20T22:10:17 yes   optimal        - 1.45M    2     2       0 backfill's plan was cut short
        2026-11-20T22:10:12 no    time_limit  1.2%   950    2     3       1 -
        2026-11-20T22:10:07 yes   trivial        -     0    0     0       0 -
        ");
    }
}
