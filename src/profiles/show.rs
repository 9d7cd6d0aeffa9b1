//! `infill profiles show`: the curve of a profile, its measurements, and the cost of rescales.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::selection::{self, SelectionArgs};
use crate::session::CliSession;
use infill_advisor::SizeEstimate;
use infill_api::{ProfileView, ProfilesView, SCHEMA_VERSION};
use infill_model::{BatchMode, ChangeCost, NodeCount, Profile, SizePoint, Spread, duration};
use infill_present::{
    charts::{CurveFigure, draw_curves, profile_title, replace_control_chars},
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter,
    output::{self, DisplayClock},
    phrases::percent,
    table::TableColumn,
    terminal_curve,
};

/// The most curves in one drawing.
const MAX_DRAWN_CURVES: usize = 50;

/// Flags of `infill profiles show`.
#[derive(Clone, Debug, Args)]
pub struct ShowProfilesArgs {
    /// The profiles' name; those of all node types, plans and users are shown
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) choose: SelectionArgs,
    /// Draw the curves into this SVG file instead, `-` for standard output. Several curves are first drawn on
    /// the same axes
    #[arg(long, value_name = "FILE", conflicts_with = "json", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// List the last measurements instead
    #[arg(long, conflicts_with = "svg", help_heading = "Output")]
    pub(super) history: bool,
    /// Print the whole document as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
}

/// Time zone, width and colours of the output.
#[derive(Clone, Copy)]
struct PageLayout {
    when: DisplayClock,
    width: usize,
    colour: bool,
}

/// A row of the table of sizes.
struct MeasuredSize {
    point: SizePoint,
    /// The rate at this size with proportional scaling.
    ideal: f64,
    when: DisplayClock,
}

const SIZE_COLUMNS: &[TableColumn<MeasuredSize>] = &[
    TableColumn { letter: 'n', header: "NODES", help: "", cell: |s| s.point.nodes.to_string() },
    TableColumn { letter: 'o', header: "HOSTS", help: "", cell: |s| host_count_text(&s.point) },
    TableColumn { letter: 'r', header: "RATE", help: "", cell: |s| output::format_number(s.point.rate) },
    TableColumn {
        letter: 'l',
        header: "LOW",
        help: "",
        cell: |s| output::format_number(rate_interval(&s.point).0),
    },
    TableColumn {
        letter: 'h',
        header: "HIGH",
        help: "",
        cell: |s| output::format_number(rate_interval(&s.point).1),
    },
    TableColumn {
        letter: 'e',
        header: "EFFIC",
        help: "",
        cell: |s| percent::whole_percent(s.point.rate / s.ideal),
    },
    TableColumn {
        letter: 'b',
        header: "SAMPLES/STEP",
        help: "",
        cell: |s| s.point.step_samples.map_or_else(|| "-".to_owned(), output::format_number),
    },
    TableColumn { letter: 's', header: "OVER", help: "", cell: |s| duration::format_duration(s.point.secs) },
    TableColumn { letter: 'a', header: "MEASURED", help: "", cell: |s| s.when.format_moment(s.point.at) },
];

/// A row of the table of costs: a kind of change and its cost.
struct ChangeCostRow {
    what: &'static str,
    cost: ChangeCost,
}

const CHANGE_COLUMNS: &[TableColumn<ChangeCostRow>] = &[
    TableColumn { letter: 'w', header: "RESCALE", help: "", cell: |c| c.what.to_owned() },
    TableColumn {
        letter: 'c',
        header: "CHECKPOINT",
        help: "",
        cell: |c| change_secs(c, c.cost.checkpoint_secs),
    },
    TableColumn { letter: 'e', header: "EXIT", help: "", cell: |c| change_secs(c, c.cost.exit_secs) },
    TableColumn { letter: 's', header: "START", help: "", cell: |c| change_secs(c, c.cost.start_secs) },
    TableColumn { letter: 'u', header: "WARM-UP", help: "", cell: |c| change_secs(c, c.cost.warmup_secs) },
    TableColumn { letter: 't', header: "SECONDS", help: "", cell: |c| change_secs(c, c.cost.total_secs()) },
    TableColumn { letter: 'n', header: "CHANGES", help: "", cell: |c| c.cost.count.to_string() },
];

fn change_secs(change: &ChangeCostRow, secs: f64) -> String {
    if change.cost.count == 0 { "-".to_owned() } else { output::format_number(secs) }
}

/// The mean number of hosts that the nodes were on.
fn host_count_text(point: &SizePoint) -> String {
    output::format_number(point.hosts.unwrap_or(f64::from(point.nodes)))
}

fn rate_interval(point: &SizePoint) -> (f64, f64) {
    SizeEstimate { rate: point.rate, error: point.error }.interval_90()
}

/// Runs `infill profiles show`.
pub async fn show_profiles(args: ShowProfilesArgs, session: &CliSession) -> CommandResult {
    let filters = args.choose.profile_filters(Some(args.name.clone()))?;
    let profiles = selection::fetch_profiles(&session.daemon_client()?, &filters).await?;
    if profiles.is_empty() {
        return Err(ProgramExit::NotFound.caused_by(anyhow::anyhow!("no such profile: {}", args.name)));
    }
    if args.json {
        output::print_json(&ProfilesView { schema: SCHEMA_VERSION, profiles })?;
    } else if let Some(path) = &args.svg {
        write_curves(&profiles, &replace_control_chars(&args.name), path)?;
    } else {
        let width = output::terminal_width().unwrap_or(output::DEFAULT_WIDTH);
        let page = PageLayout {
            when: DisplayClock::now(),
            width,
            colour: output::wants_colours(&std::io::stdout()),
        };
        let texts = profiles.iter().map(|p| profile_text(p, page)).collect::<Result<Vec<_>, _>>()?;
        output::print_text(&texts.join("\n"))?;
    }
    Ok(ProgramExit::Ok.code())
}

fn write_curves(profiles: &[ProfileView], name: &str, path: &std::path::Path) -> Result<(), CommandFailure> {
    let measured = profiles.iter().filter(|p| !p.curve.is_empty());
    let figures: Vec<CurveFigure> = measured.take(MAX_DRAWN_CURVES).map(CurveFigure::from).collect();
    if figures.is_empty() {
        return Err(ProgramExit::NotFound
            .caused_by(anyhow::anyhow!("nothing has been measured yet, so there is no curve")));
    }
    let svg = draw_curves(&figures, name)?;
    if path.as_os_str() == "-" {
        output::print_text(&svg)?;
    } else {
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn profile_text(view: &ProfileView, page: PageLayout) -> Result<String, CommandFailure> {
    let profile = &view.profile;
    let mut text = format!("{}\n{}\n", profile_title(&profile.key), profile_origin(view, page.when));
    if !profile.unfit.is_empty() {
        let sizes: Vec<String> = profile.unfit.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "ran out of memory on {} nodes", sizes.join(", "));
    }
    if profile.points.is_empty() {
        text.push_str("no size has been measured yet\n");
    } else {
        let drawn = terminal_curve::draw_terminal_curve(&CurveFigure::from(view), page.width, page.colour);
        let _ = write!(
            text,
            "\n{drawn}\n{}",
            filter::render_full_table(
                size_columns(profile),
                SIZE_COLUMNS,
                &measured_sizes(profile, page.when)
            )?
        );
        for line in placement_lines(profile) {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(text, "model: {}", view.model);
    }
    let _ = write!(
        text,
        "\n{}",
        filter::render_full_table("%w %.c %.e %.s %.u %.t %.n", CHANGE_COLUMNS, &change_costs(profile))?
    );
    Ok(text)
}

/// Measurements on several hosts or leaf switches, in a line for each size and kind.
fn placement_lines(profile: &Profile) -> Vec<String> {
    let mut lines = Vec::new();
    for point in &profile.points {
        // Nodes on several switches are on several hosts anyway.
        let over_hosts = if point.spread == Spread::Across { Spread::Near } else { point.over_hosts };
        lines.extend(spread_line(point.nodes, over_hosts, "hosts"));
        lines.extend(spread_line(point.nodes, point.spread, "switches"));
    }
    lines
}

fn spread_line(nodes: u32, spread: Spread, what: &str) -> Option<String> {
    let size = NodeCount(nodes);
    match spread {
        Spread::Near => None,
        Spread::Across => Some(format!("{size}: measured only on several {what}")),
        Spread::Both { rate, .. } => {
            Some(format!("{size}: {} samples/s on several {what}", output::format_number(rate)))
        }
    }
}

/// The format of the table of sizes. It has the number of hosts where parts of nodes are lent.
fn size_columns(profile: &Profile) -> &'static str {
    if profile.points.iter().any(|p| p.hosts.is_some()) {
        "%.n %.o %.r %.l %.h %.e %.b %.s %a"
    } else {
        "%.n %.r %.l %.h %.e %.b %.s %a"
    }
}

/// The profile's batch mode, its jobs and probes, and its last change, in a line.
fn profile_origin(view: &ProfileView, when: DisplayClock) -> String {
    let profile = &view.profile;
    let batch = match (profile.key.batch, view.batch_seen) {
        (BatchMode::Auto, BatchMode::Auto) => "batch mode not known".to_owned(),
        (BatchMode::Auto, measured) => format!("{} batch, as measured", measured.word()),
        (declared, _) => format!("{} batch, as declared", declared.word()),
    };
    format!(
        "{batch}; from {}, {} of {}; changed {}",
        output::counted_noun(u64::from(profile.jobs), "job"),
        output::counted_noun(u64::from(profile.probes), "probe"),
        duration::format_duration(profile.probe_secs),
        when.format_moment(profile.updated_at),
    )
}

fn measured_sizes(profile: &Profile, when: DisplayClock) -> Vec<MeasuredSize> {
    let one_node_rate = profile.points.first().map_or(1.0, |p| p.rate / f64::from(p.nodes.max(1)));
    profile
        .points
        .iter()
        .map(|p| MeasuredSize { point: *p, ideal: one_node_rate * f64::from(p.nodes), when })
        .collect()
}

fn change_costs(profile: &Profile) -> Vec<ChangeCostRow> {
    let costs = &profile.costs;
    let restarts = [("grow", costs.up), ("shrink", costs.down), ("start", costs.start)];
    // Most programs do not stay alive over changes, so these rows are often absent.
    let live = [("grow live", costs.live_up), ("shrink live", costs.live_down)];
    let live = live.into_iter().filter(|(_, cost)| cost.count > 0);
    restarts.into_iter().chain(live).map(|(what, cost)| ChangeCostRow { what, cost }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn page() -> PageLayout {
        PageLayout { when: samples::sample_moment(), width: 72, colour: false }
    }

    #[test]
    fn a_profile_with_its_curve() {
        insta::assert_snapshot!(profile_text(&samples::sample_profiles().profiles[0], page()).unwrap(), @r"
        bert of alice on gpu:a100:4/cpu64
        per-node batch, as measured; from 3 jobs, 2 probes of 0:48; changed 2026-11-20T22:09:17

        samples/s
        3000 ┤                                                        ·
             │                                                    · ·
        2500 ┤                                                · ·          ░░
             │                                            · ·        ░░░░░░░░
             │                                        · ·       ░░░░░░⣀⣀⣀⠤⠤⠔⠒
        2000 ┤                                    · ·      ░░░⣀⣀⠤⠤⠒⠒⠉⠉░░░░░░░
             │                                  ·     ░⢀⣀⡠⠤⠒⠊⠉░░░░░░░░░░░░░░░
        1500 ┤                              · ·  ⢀⣀⠤⠔⠒⠉⠁░░░
             │                          · · ⣀●⠔⠒⠉⠁
             │                      · ⢀⣀⠤⠒⠊⠉
        1000 ┤                  · ⣀⠤⠒⠉⠁
             │              ·⣀●⠔⠊⠉
         500 ┤          ·⣀⠤⠒⠉
             │      · ●⠒⠉
             │  · ·
           0 ┤·
             └┬───────┬───────┬──────┬───────┬───────┬───────┬──────┬───────┬
        nodes 0       1       2      3       4       5       6      7       8
        ● measured   ⠒ fitted   ░ 90 % interval   · proportional

        NODES RATE  LOW HIGH EFFIC SAMPLES/STEP OVER MEASURED
            1  410  406  414  100%          256 1:00 2026-11-20T22:00:17
            2  780  767  793   95%          512 2:00 2026-11-20T22:00:17
            4 1390 1323 1460   85%         1024 4:00 2026-11-20T22:00:17
        model: n/rate = 2.440e-3 + 1.361e-4·(n-1)

        RESCALE CHECKPOINT EXIT START WARM-UP SECONDS CHANGES
        grow          2.50 1.00  8.25    3.00    14.8       4
        shrink        2.50 1.00  8.25    3.00    14.8       1
        start            -    -     -       -       -       0
        ");
    }

    #[test]
    fn a_profile_without_measurements() {
        insta::assert_snapshot!(profile_text(&samples::sample_profiles().profiles[1], page()).unwrap(), @r"
        bert of bob on gpu:a100:4/cpu64
        global batch, as declared; from 0 jobs, 0 probes of 0:00; changed 2026-11-20T21:10:17
        no size has been measured yet

        RESCALE CHECKPOINT EXIT START WARM-UP SECONDS CHANGES
        grow             -    -     -       -       -       0
        shrink           -    -     -       -       -       0
        start            -    -     -       -       -       0
        ");
    }
}
