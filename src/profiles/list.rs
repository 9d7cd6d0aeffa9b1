//! `infill profiles list`: a table of the profiles.

use std::sync::LazyLock;

use clap::Args;

use super::selection::{self, SelectionArgs};
use crate::session::CliSession;
use infill_api::{ProfileView, ProfilesView, SCHEMA_VERSION};
use infill_model::duration;
use infill_present::{
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter::{self, TableArgs},
    output::{self, DisplayClock},
    phrases::text_or_dash,
    table::{FieldHelp, TableColumn},
};

/// Flags of `infill profiles list`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = HELP.as_str())]
pub struct ListProfilesArgs {
    /// Show only profiles of this name
    #[arg(short = 'n', long, value_name = "NAME", help_heading = "Filters")]
    name: Option<String>,
    #[command(flatten)]
    choose: SelectionArgs,
    #[command(flatten)]
    table: TableArgs,
}

/// A row of the table: a profile, and the time zone.
struct ProfileRow {
    view: ProfileView,
    when: DisplayClock,
}

const DEFAULT: &str = "%u %n %T %p %b %s %.J %.P %.S %c";

/// The list of fields, for `--help`.
pub static HELP: LazyLock<String> = LazyLock::new(|| FieldHelp(COLUMNS, DEFAULT).to_string());

const COLUMNS: &[TableColumn<ProfileRow>] = &[
    TableColumn {
        letter: 'u',
        header: "USER",
        help: "owner of the jobs",
        cell: |r| r.view.profile.key.user.clone(),
    },
    TableColumn {
        letter: 'n',
        header: "NAME",
        help: "the profile's name, else the hash of the command",
        cell: |r| r.view.profile.key.name.clone(),
    },
    TableColumn {
        letter: 'j',
        header: "JOBNAME",
        help: "name of the last job that was measured",
        cell: |r| text_or_dash(&r.view.profile.job_name),
    },
    TableColumn {
        letter: 'T',
        header: "TYPE",
        help: "node type",
        cell: |r| r.view.profile.key.node_type.to_string(),
    },
    TableColumn {
        letter: 'p',
        header: "PLAN",
        help: "execution plan",
        cell: |r| r.view.profile.key.exec_plan.0.clone(),
    },
    TableColumn {
        letter: 'b',
        header: "BATCH",
        help: "whether each node has its own batch (per-node) or all share one (global), as declared or measured",
        cell: |r| r.view.batch_seen.word().to_owned(),
    },
    TableColumn { letter: 's', header: "SIZES", help: "measured sizes", cell: |r| measured_sizes(&r.view) },
    TableColumn {
        letter: 'J',
        header: "JOBS",
        help: "number of jobs that were measured",
        cell: |r| r.view.profile.jobs.to_string(),
    },
    TableColumn {
        letter: 'P',
        header: "PROBES",
        help: "number of probes: sizes tried in order to measure them",
        cell: |r| r.view.profile.probes.to_string(),
    },
    TableColumn {
        letter: 'S',
        header: "PROBETIME",
        help: "time that probes took",
        cell: |r| duration::format_duration(r.view.profile.probe_secs),
    },
    TableColumn {
        letter: 'c',
        header: "CHANGED",
        help: "last change",
        cell: |r| r.when.format_moment(r.view.profile.updated_at),
    },
    TableColumn {
        letter: 'm',
        header: "MODEL",
        help: "formula of the best scaling model",
        cell: |r| text_or_dash(&r.view.model),
    },
];

/// The measured sizes with ranges: `1-4,8`.
fn measured_sizes(view: &ProfileView) -> String {
    let mut sizes: Vec<u32> = view.profile.points.iter().map(|p| p.nodes).collect();
    sizes.sort_unstable();
    let runs: Vec<String> = sizes
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            few => few.iter().map(u32::to_string).collect(),
        })
        .collect();
    if runs.is_empty() { "-".to_owned() } else { runs.join(",") }
}

/// Runs `infill profiles list`.
pub async fn list_profiles(args: ListProfilesArgs, session: &CliSession) -> CommandResult {
    args.table.check_format(COLUMNS)?;
    let filters = args.choose.profile_filters(args.name)?;
    let profiles = selection::fetch_profiles(&session.daemon_client()?, &filters).await?;
    if args.table.json {
        output::print_json(&ProfilesView { schema: SCHEMA_VERSION, profiles })?;
    } else {
        output::print_text(&profile_table(profiles, &args.table, DisplayClock::now())?)?;
    }
    Ok(ProgramExit::Ok.code())
}

fn profile_table(
    profiles: Vec<ProfileView>,
    args: &TableArgs,
    when: DisplayClock,
) -> Result<String, CommandFailure> {
    let rows: Vec<ProfileRow> = profiles.into_iter().map(|view| ProfileRow { view, when }).collect();
    filter::render_table(args, DEFAULT, COLUMNS, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn the_default_table() {
        let text = profile_table(
            samples::sample_profiles().profiles,
            &TableArgs::default(),
            samples::sample_moment(),
        )
        .unwrap();
        insta::assert_snapshot!(text, @r"
        USER  NAME TYPE             PLAN    BATCH    SIZES JOBS PROBES PROBETIME CHANGED
        alice bert gpu:a100:4/cpu64 default per-node 1-2,4    3      2      0:48 2026-11-20T22:09:17
        bob   bert gpu:a100:4/cpu64 default global   -        0      0      0:00 2026-11-20T21:10:17
        ");
    }
}
