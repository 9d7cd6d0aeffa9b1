//! The results in the terminal: what was simulated, a line for each policy, and the meaning of efficiency.

use std::fmt::Write;
use std::sync::LazyLock;

use serde::Serialize;

use super::document::{LossShares, PolicyRow, SimulationDocument};
use infill_model::{RescaleCosts, duration};
use infill_present::{
    bars::{self, BarPart, CYAN, GREEN, RED, TerminalColour, YELLOW},
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter::{self, TableArgs},
    long_duration::LongDuration,
    output,
    phrases::percent,
    table::{FieldHelp, TableColumn},
};

const DEFAULT_FORMAT: &str = "%p %.e %.s %.r %.t %.b %.u %.v %.l %.m %.d %.c";

/// The fields, for `--help`.
pub(crate) static HELP: LazyLock<String> =
    LazyLock::new(|| FieldHelp(POLICY_COLUMNS, DEFAULT_FORMAT).to_string());

/// Explains the column of efficiency.
pub(crate) const EFFICIENCY_NOTE: &str = "\
Efficiency is work as a share of the bound's: of what the best division of the idle
nodes at every moment would make if all curves were known and rescales took no time.";

const POLICY_COLUMNS: &[TableColumn<PolicyRow>] = &[
    TableColumn { letter: 'p', header: "POLICY", help: "policy", cell: |r| r.policy.clone() },
    TableColumn {
        letter: 'e',
        header: "EFFIC",
        help: "work as a share of the bound's",
        cell: |r| percent::tenths_percent(r.efficiency),
    },
    TableColumn {
        letter: 's',
        header: "SAMPLES",
        help: "samples of all jobs",
        cell: |r| output::format_number(r.samples),
    },
    TableColumn {
        letter: 'w',
        header: "WORK",
        help: "samples of all jobs, times what each is worth",
        cell: |r| output::format_number(r.work),
    },
    TableColumn {
        letter: 'r',
        header: "RESC",
        help: "share of the bound's work lost in rescales that the policy wanted",
        cell: |r| percent::tenths_percent(r.loss.rescale),
    },
    TableColumn {
        letter: 't',
        header: "PREE",
        help: "the same because the main queue took nodes",
        cell: |r| percent::tenths_percent(r.loss.preemption),
    },
    TableColumn {
        letter: 'b',
        header: "PROBE",
        help: "the same in changes made to measure a size",
        cell: |r| percent::tenths_percent(r.loss.probing),
    },
    TableColumn {
        letter: 'u',
        header: "REST",
        help: "the same for nodes unused, or used by jobs that make less of them",
        cell: |r| percent::tenths_percent(r.loss.unused),
    },
    TableColumn {
        letter: 'v',
        header: "HARV",
        help: "share of the idle node-time that malleable jobs held",
        cell: |r| percent::tenths_percent(r.harvest_ratio),
    },
    TableColumn {
        letter: 'h',
        header: "NODEHOURS",
        help: "node-hours that malleable jobs held",
        cell: |r| output::format_number(r.held_node_secs / 3600.0),
    },
    TableColumn {
        letter: 'l',
        header: "LATE",
        help: "main jobs that found a node held though their start had been planned",
        cell: |r| r.late_vacates.to_string(),
    },
    TableColumn {
        letter: 'm',
        header: "MAIN",
        help: "main jobs that found a node held for which nothing had been planned",
        cell: |r| r.preempted.unforeseen.to_string(),
    },
    TableColumn {
        letter: 'd',
        header: "DELAY",
        help: "time that the longest of these waited",
        cell: |r| duration::format_duration(r.preempted.longest_secs.ceil()),
    },
    TableColumn {
        letter: 'c',
        header: "CHANGES",
        help: "rescales of all jobs",
        cell: |r| r.rescales.to_string(),
    },
    TableColumn {
        letter: 'f',
        header: "FINISHED",
        help: "jobs that came to their end",
        cell: |r| r.finished.to_string(),
    },
    TableColumn {
        letter: 'J',
        header: "JCT",
        help: "mean time from a job's submission to its end, or to that of the simulation",
        cell: |r| r.jct_mean_s.map_or_else(|| "-".to_owned(), duration::format_duration),
    },
    TableColumn {
        letter: 'j',
        header: "JAINJOBS",
        help: "Jain's fairness index over jobs, by nodes held: 1 where all had as many",
        cell: |r| format_index(r.fairness.jain_jobs),
    },
    TableColumn {
        letter: 'U',
        header: "JAINUSERS",
        help: "the same over users",
        cell: |r| format_index(r.fairness.jain_users),
    },
    TableColumn {
        letter: 'W',
        header: "MAXWAIT",
        help: "longest wait for a first node, to the end for a job that never had one",
        cell: |r| {
            r.fairness.longest_first_wait_secs.map_or_else(|| "-".to_owned(), duration::format_duration)
        },
    },
    TableColumn { letter: 'n', header: "ROUNDS", help: "rounds", cell: |r| r.rounds.to_string() },
    TableColumn {
        letter: 'R',
        header: "REFUSED",
        help: "plans that the checker refused",
        cell: |r| r.refused_plans.to_string(),
    },
    TableColumn {
        letter: 'T',
        header: "TOOK",
        help: "time that the simulation took, with --timings",
        cell: |r| r.wall_s.map_or_else(|| "-".to_owned(), |secs| format!("{secs:.1}s")),
    },
];

fn format_index(jain: Option<f64>) -> String {
    jain.map_or_else(|| "-".to_owned(), |jain| format!("{jain:.3}"))
}

/// The properties of the terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScreenOptions {
    /// Columns of the terminal; `None` if stdout is not a terminal: then there are no bars.
    pub width: Option<usize>,
    /// Whether colours may be used.
    pub colours: bool,
}

/// Header, help and text of each cell of a row: for the page.
pub(crate) fn row_cells(row: &PolicyRow) -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let letters = DEFAULT_FORMAT.chars().filter(char::is_ascii_alphabetic);
    let columns = letters.filter_map(|letter| POLICY_COLUMNS.iter().find(|c| c.letter == letter));
    columns.map(|c| (c.header, c.help, (c.cell)(row)))
}

/// Refuses a format with unknown fields before the simulation begins.
pub(crate) fn check_format(args: &TableArgs) -> Result<(), CommandFailure> {
    args.check_format(POLICY_COLUMNS)
}

/// Prints a document: as JSON, or its table, with these lines above it unless the rows are wanted alone.
pub(crate) fn print_document<R>(
    args: &TableArgs,
    document: &impl Serialize,
    table: (&str, &[TableColumn<R>], &[R]),
    head: &[String],
) -> CommandResult {
    if args.json {
        output::print_json(document)?;
    } else {
        output::print_text(&headed_table(args, table, head)?)?;
    }
    Ok(ProgramExit::Ok.code())
}

/// A table with these lines above it, unless the rows are wanted alone.
pub(crate) fn headed_table<R>(
    args: &TableArgs,
    table: (&str, &[TableColumn<R>], &[R]),
    head: &[String],
) -> Result<String, CommandFailure> {
    let (default_format, columns, rows) = table;
    let table = filter::render_table(args, default_format, columns, rows)?;
    Ok(if args.wants_rows_alone() { table } else { format!("{}\n\n{table}", head.join("\n")) })
}

/// The whole output: summary, table, bars and note, or the table alone.
pub(crate) fn render_text(
    document: &SimulationDocument,
    args: &TableArgs,
    screen: ScreenOptions,
) -> Result<String, CommandFailure> {
    let table = filter::render_table(args, DEFAULT_FORMAT, POLICY_COLUMNS, &document.policies)?;
    if args.wants_rows_alone() {
        return Ok(table);
    }
    let bars = screen.width.map_or_else(String::new, |width| draw_bars(document, width, screen.colours));
    Ok(format!("{}\n{table}{bars}\n{EFFICIENCY_NOTE}\n", subject_summary(document)))
}

/// What was simulated.
fn subject_summary(document: &SimulationDocument) -> String {
    let subject = &document.subject;
    let unit = subject.unit.noun();
    let units = subject.unit.plural();
    let RescaleCosts { up_secs, down_secs, start_secs } = subject.rescales;
    let alive = subject.warm_secs.map_or_else(String::new, |secs| {
        format!(", alive: newcomers warm up for {secs} s on their own nodes while the others train")
    });
    let lines = [
        (
            "log",
            format!(
                "{}: {} {units}, {}",
                subject.log,
                subject.nodes,
                LongDuration(subject.span_secs).to_text()
            ),
        ),
        (
            "idle",
            format!(
                "{} {units} on average ({}), {} {unit}-hours",
                output::format_number(document.idle_nodes_mean()),
                percent::tenths_percent(document.idle_share()),
                output::format_number(document.idle_node_secs / 3600.0),
            ),
        ),
        ("malleable", subject.malleable.clone()),
        (
            "rescales",
            format!(
                "{up_secs} s to grow, {down_secs} s to shrink, {start_secs} s to start{alive}; seed {}",
                subject.seed
            ),
        ),
    ];
    let mut text = String::new();
    for (label, value) in lines {
        let _ = writeln!(text, "{label:<11}{}", value.replace(char::is_control, "?"));
    }
    text
}

/// The parts of the bound's work, in the order of the bar: word, fill, colour, share.
fn work_parts(row: &PolicyRow) -> [(&'static str, char, TerminalColour, f64); 5] {
    let LossShares { rescale, preemption, probing, unused } = row.loss;
    [
        ("done", '█', CYAN, row.efficiency),
        ("rescales", '▓', YELLOW, rescale),
        ("preemption", '▒', RED, preemption),
        ("probing", '░', GREEN, probing),
        ("rest", '·', TerminalColour(90), unused),
    ]
}

/// A bar for each policy, with its legend.
fn draw_bars(document: &SimulationDocument, width: usize, colours: bool) -> String {
    let name = document.policies.iter().map(|r| r.policy.chars().count()).max().unwrap_or(0);
    let cells = width.saturating_sub(name + 1).clamp(10, 100);
    let mut text = String::from("\n");
    for row in &document.policies {
        let parts = work_parts(row).map(|(_, fill, colour, share)| BarPart { share, fill, colour });
        let _ = writeln!(text, "{:<name$} {}", row.policy, bars::draw_stacked_bar(&parts, cells, colours));
    }
    let Some(first) = document.policies.first() else { return String::new() };
    let words = work_parts(first).map(|(word, fill, colour, _)| {
        let fill = bars::colour_text(&fill.to_string(), colour, colours);
        format!("{fill} {word}")
    });
    let _ = writeln!(text, "{:<name$} {}", "", words.join("   "));
    text
}
