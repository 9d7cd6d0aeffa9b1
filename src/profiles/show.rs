//! `infill profiles show`: the curve, the measurements that it rests on, what rescales cost.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::help::HelpArgs;
use super::selection::{self, SelectionArgs};
use crate::session::CliSession;
use infill_advisor::SizeEstimate;
use infill_api::{ProfileView, ProfilesView, SCHEMA};
use infill_model::{BatchMode, ChangeCost, Profile, SizePoint, Spread, duration};
use infill_present::{
    charts::{CurveFigure, draw_curves, profile_title, replace_control_chars},
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter,
    output::{self, DisplayClock},
    phrases::percent,
    table::TableColumn,
    terminal_curve,
};

/// Most curves that one drawing holds.
const MAX_DRAWN_CURVES: usize = 50;

/// Flags of `infill profiles show`.
#[derive(Clone, Debug, Args)]
pub struct ShowProfilesArgs {
    /// The profile's name; all node types, plans and users that have it are shown
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) choose: SelectionArgs,
    /// Draw the curves into this file as SVG instead, several (of plans, of node types) on the same axes
    /// first; `-` for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// List instead what was measured last, stretch by stretch
    #[arg(long, conflicts_with = "svg")]
    pub(super) history: bool,
    /// The whole document as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    help: HelpArgs,
}

/// How it is printed.
#[derive(Clone, Copy)]
struct PageLayout {
    when: DisplayClock,
    width: usize,
    colour: bool,
}

/// A measured size, with the rate that proportional scaling would give.
struct MeasuredSize {
    point: SizePoint,
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

/// A kind of change and what it costs.
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

/// On how many hosts the nodes were.
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
        output::print_json(&ProfilesView { schema: SCHEMA, profiles })?;
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
    let pictures: Vec<CurveFigure> = measured.take(MAX_DRAWN_CURVES).map(CurveFigure::from).collect();
    if pictures.is_empty() {
        return Err(ProgramExit::NotFound
            .caused_by(anyhow::anyhow!("nothing was measured yet, so there is no curve")));
    }
    let svg = draw_curves(&pictures, name)?;
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
        text.push_str("no size was measured yet\n");
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

/// What was measured on several hosts and leaf switches, a line for each size.
fn placement_lines(profile: &Profile) -> Vec<String> {
    let line = |nodes: u32, spread: Spread, what: &str| match spread {
        Spread::Near => None,
        Spread::Across => Some(format!("{nodes} nodes: measured on several {what} only")),
        Spread::Both { rate, .. } => {
            Some(format!("{nodes} nodes: {} samples/s on several {what}", output::format_number(rate)))
        }
    };
    let lines = |p: &SizePoint| {
        // What is on several switches is on several hosts anyway.
        let over_hosts = if p.spread == Spread::Across { Spread::Near } else { p.over_hosts };
        [line(p.nodes, over_hosts, "hosts"), line(p.nodes, p.spread, "switches")]
    };
    profile.points.iter().flat_map(lines).flatten().collect()
}

/// The columns of the measured sizes; where parts of nodes are lent, on how many hosts those were.
fn size_columns(profile: &Profile) -> &'static str {
    match profile.points.iter().any(|p| p.hosts.is_some()) {
        true => "%.n %.o %.r %.l %.h %.e %.b %.s %a",
        false => "%.n %.r %.l %.h %.e %.b %.s %a",
    }
}

/// Where it comes from.
fn profile_origin(view: &ProfileView, when: DisplayClock) -> String {
    let profile = &view.profile;
    let batch = match (profile.key.batch, view.batch_seen) {
        (BatchMode::Auto, BatchMode::Auto) => "batch mode not known".to_owned(),
        (BatchMode::Auto, seen) => format!("{} batch, as its steps show", seen.word()),
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
    let one = profile.points.first().map_or(1.0, |p| p.rate / f64::from(p.nodes.max(1)));
    profile.points.iter().map(|p| MeasuredSize { point: *p, ideal: one * f64::from(p.nodes), when }).collect()
}

fn change_costs(profile: &Profile) -> Vec<ChangeCostRow> {
    let costs = &profile.costs;
    let restarts = [("grow", costs.up), ("shrink", costs.down), ("start", costs.start)];
    // Most programs do not stay alive over changes.
    let alive = [("grow live", costs.live_up), ("shrink live", costs.live_down)];
    let alive = alive.into_iter().filter(|(_, cost)| cost.count > 0);
    restarts.into_iter().chain(alive).map(|(what, cost)| ChangeCostRow { what, cost }).collect()
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
        per-node batch, as its steps show; from 3 jobs, 2 probes of 0:48; changed 2026-11-20T22:09:17

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
    fn a_profile_of_which_nothing_is_known() {
        insta::assert_snapshot!(profile_text(&samples::sample_profiles().profiles[1], page()).unwrap(), @r"
        bert of bob on gpu:a100:4/cpu64
        global batch, as declared; from 0 jobs, 0 probes of 0:00; changed 2026-11-20T21:10:17
        no size was measured yet

        RESCALE CHECKPOINT EXIT START WARM-UP SECONDS CHANGES
        grow             -    -     -       -       -       0
        shrink           -    -     -       -       -       0
        start            -    -     -       -       -       0
        ");
    }
}
