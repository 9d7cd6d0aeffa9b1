//! `infill profiles show --history`: what was measured for a profile, row by row.

use std::fmt::Write;

use serde::Serialize;

use super::choose;
use super::show::ShowArgs;
use crate::session::Session;
use infill_api::{HistoryRow, HistoryView, SCHEMA, routes};
use infill_present::{
    charts::title,
    exit::{CommandResult, Exit, Failure},
    filter,
    output::{self, When},
    table::Column,
};

/// Most profiles whose history is told; each is asked for by itself.
const MAX_TOLD: usize = 50;

/// `infill profiles show --history --json`.
#[derive(Serialize)]
struct Histories {
    schema: u32,
    histories: Vec<HistoryView>,
}

/// A measured stretch and the zone that its time is shown in.
struct Row {
    row: HistoryRow,
    when: When,
}

const FORMAT: &str = "%a %.i %.n %.r %.s %p";

const COLUMNS: &[Column<Row>] = &[
    Column { letter: 'a', header: "MEASURED", help: "", cell: |r| r.when.moment(r.row.at) },
    Column { letter: 'i', header: "JOBID", help: "", cell: |r| r.row.job.to_string() },
    Column { letter: 'n', header: "NODES", help: "", cell: |r| r.row.nodes.to_string() },
    Column { letter: 'r', header: "RATE", help: "", cell: rate },
    Column { letter: 's', header: "SECONDS", help: "", cell: |r| output::number(r.row.secs) },
    Column { letter: 'p', header: "FOR", help: "", cell: purpose },
];

fn rate(row: &Row) -> String {
    if row.row.secs > 0.0 { output::number(row.row.samples / row.row.secs) } else { "-".to_owned() }
}

fn purpose(row: &Row) -> String {
    if row.row.probe { "probe".to_owned() } else { "work".to_owned() }
}

/// Runs `infill profiles show --history`.
pub async fn run(args: ShowArgs, session: &Session) -> CommandResult {
    let client = session.client()?;
    let profiles = choose::fetch(&client, &args.choose.filters(Some(args.name.clone()))?).await?;
    if profiles.is_empty() {
        return Err(Exit::NotFound.because(anyhow::anyhow!("no such profile: {}", args.name)));
    }
    if profiles.len() > MAX_TOLD {
        eprintln!(
            "infill: there are more: these are the {MAX_TOLD} that changed last (choose by user or type)"
        );
    }
    let mut histories = Vec::new();
    for view in profiles.iter().take(MAX_TOLD) {
        histories.push(client.get_with::<HistoryView>(routes::PROFILE_HISTORY, &view.profile.key).await?);
    }
    if args.json {
        output::print_json(&Histories { schema: SCHEMA, histories })?;
    } else {
        let when = When::now();
        let texts = histories.into_iter().map(|h| show(h, when)).collect::<Result<Vec<_>, _>>()?;
        output::print(&texts.join("\n"))?;
    }
    Ok(Exit::Ok.code())
}

fn show(history: HistoryView, when: When) -> Result<String, Failure> {
    let mut text = format!("{}\n", title(&history.profile));
    if history.rows.is_empty() {
        text.push_str("nothing that was measured is kept\n");
        return Ok(text);
    }
    let rows: Vec<Row> = history.rows.into_iter().map(|row| Row { row, when }).collect();
    let _ = write!(text, "{}", filter::whole(FORMAT, COLUMNS, &rows)?);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn what_was_measured() {
        insta::assert_snapshot!(show(samples::history(), samples::when()).unwrap(), @r"
        bert of alice on gpu:a100:4/cpu64
        MEASURED            JOBID NODES RATE SECONDS FOR
        2026-11-20T22:09:17   101     2  780    60.0 work
        2026-11-20T22:08:17   101     4    -       0 probe
        ");
    }

    #[test]
    fn nothing_was_measured() {
        let none = HistoryView { rows: vec![], ..samples::history() };
        assert!(show(none, samples::when()).unwrap().contains("nothing that was measured"));
    }
}
