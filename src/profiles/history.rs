//! `infill profiles show --history`: the measurements of a profile, in a row each.

use std::fmt::Write;

use serde::Serialize;

use super::selection;
use super::show::ShowProfilesArgs;
use crate::session::CliSession;
use infill_api::{HistoryRow, HistoryView, SCHEMA_VERSION, routes};
use infill_present::{
    charts::profile_title,
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter,
    output::{self, DisplayClock},
    table::TableColumn,
};

/// The most profiles whose history is shown. Each history takes a request.
const MAX_HISTORIES: usize = 50;

/// `infill profiles show --history --json`.
#[derive(Serialize)]
struct ProfileHistories {
    schema: u32,
    histories: Vec<HistoryView>,
}

/// A row of the table: a measurement, and the time zone.
struct MeasurementRow {
    row: HistoryRow,
    when: DisplayClock,
}

const FORMAT: &str = "%a %.i %.n %.r %.s %p";

const COLUMNS: &[TableColumn<MeasurementRow>] = &[
    TableColumn { letter: 'a', header: "MEASURED", help: "", cell: |r| r.when.format_moment(r.row.at) },
    TableColumn { letter: 'i', header: "JOBID", help: "", cell: |r| r.row.job.to_string() },
    TableColumn { letter: 'n', header: "NODES", help: "", cell: |r| r.row.nodes.to_string() },
    TableColumn { letter: 'r', header: "RATE", help: "", cell: rate_text },
    TableColumn { letter: 's', header: "SECONDS", help: "", cell: |r| output::format_number(r.row.secs) },
    TableColumn { letter: 'p', header: "FOR", help: "", cell: purpose_text },
];

fn rate_text(row: &MeasurementRow) -> String {
    if row.row.secs > 0.0 { output::format_number(row.row.samples / row.row.secs) } else { "-".to_owned() }
}

fn purpose_text(row: &MeasurementRow) -> String {
    if row.row.probe { "probe".to_owned() } else { "work".to_owned() }
}

/// Runs `infill profiles show --history`.
pub async fn show_history(args: ShowProfilesArgs, session: &CliSession) -> CommandResult {
    let client = session.daemon_client()?;
    let profiles =
        selection::fetch_profiles(&client, &args.choose.profile_filters(Some(args.name.clone()))?).await?;
    if profiles.is_empty() {
        return Err(ProgramExit::NotFound.caused_by(anyhow::anyhow!("no such profile: {}", args.name)));
    }
    if profiles.len() > MAX_HISTORIES {
        eprintln!(
            "infill: there are more profiles; shown are the {MAX_HISTORIES} that changed last (select by user or type)"
        );
    }
    let mut histories = Vec::new();
    for view in profiles.iter().take(MAX_HISTORIES) {
        histories.push(client.get_with::<HistoryView>(routes::PROFILE_HISTORY, &view.profile.key).await?);
    }
    if args.json {
        output::print_json(&ProfileHistories { schema: SCHEMA_VERSION, histories })?;
    } else {
        let when = DisplayClock::now();
        let texts = histories.into_iter().map(|h| history_text(h, when)).collect::<Result<Vec<_>, _>>()?;
        output::print_text(&texts.join("\n"))?;
    }
    Ok(ProgramExit::Ok.code())
}

fn history_text(history: HistoryView, when: DisplayClock) -> Result<String, CommandFailure> {
    let mut text = format!("{}\n", profile_title(&history.profile));
    if history.rows.is_empty() {
        text.push_str("no measurements are kept\n");
        return Ok(text);
    }
    let rows: Vec<MeasurementRow> =
        history.rows.into_iter().map(|row| MeasurementRow { row, when }).collect();
    let _ = write!(text, "{}", filter::render_full_table(FORMAT, COLUMNS, &rows)?);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn measurements_are_listed() {
        insta::assert_snapshot!(history_text(samples::sample_history(), samples::sample_moment()).unwrap(), @r"
        bert of alice on gpu:a100:4/cpu64
        MEASURED            JOBID NODES RATE SECONDS FOR
        2026-11-20T22:09:17   101     2  780    60.0 work
        2026-11-20T22:08:17   101     4    -       0 probe
        ");
    }

    #[test]
    fn a_profile_without_measurements() {
        let none = HistoryView { rows: vec![], ..samples::sample_history() };
        assert!(history_text(none, samples::sample_moment()).unwrap().contains("no measurements"));
    }
}
