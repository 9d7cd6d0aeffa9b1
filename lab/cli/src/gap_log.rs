//! `infill gaps --log` and `--idle`: statistics of the gaps that a recorded main queue leaves.

use std::fmt::Write;

use serde::Serialize;

use crate::simulate::{LogUnit, args::LogArgs, setup};
use infill_api::SCHEMA_VERSION;
use infill_gaps::{BlockStatistics, GapStatistics, ShorterShare, WeightedQuantiles};
use infill_model::duration;
use infill_present::{
    bars::{self, CYAN, TerminalColour, YELLOW},
    exit::{CommandFailure, CommandResult, ProgramExit},
    filter,
    long_duration::LongDuration,
    output::{self, DEFAULT_WIDTH},
    phrases::percent,
    table::TableColumn,
};
use infill_sim as sim;

/// Most columns of a bar of the histogram.
const LONGEST_BAR: usize = 40;

/// Columns of the histogram besides its two bars.
const BESIDE_BARS: usize = LONGEST_NAME + 19;

/// Columns of the name of a bin.
const LONGEST_NAME: usize = 18;

/// `infill gaps --log --json`.
#[derive(Serialize)]
struct GapLogDocument<'a> {
    schema: u32,
    log: &'a str,
    unit: LogUnit,
    statistics: &'a GapStatistics,
}

/// Quantiles of lengths, by gaps or by idle time.
struct LengthRow {
    of: &'static str,
    quantiles: WeightedQuantiles,
}

/// Shares of short gaps, by gaps or by idle time.
struct ShortRow {
    of: &'static str,
    shorter: Vec<ShorterShare>,
    share: fn(&ShorterShare) -> f64,
}

/// Statistics of nodes that become idle or are taken.
struct BlockRow {
    what: &'static str,
    blocks: BlockStatistics,
}

const LENGTH_COLUMNS: &[TableColumn<LengthRow>] = &[
    TableColumn { letter: 'o', header: "LENGTH OF", help: "", cell: |r| r.of.to_owned() },
    TableColumn { letter: 'a', header: "P10", help: "", cell: |r| format_length(r.quantiles.p10) },
    TableColumn { letter: 'b', header: "P50", help: "", cell: |r| format_length(r.quantiles.p50) },
    TableColumn { letter: 'c', header: "P90", help: "", cell: |r| format_length(r.quantiles.p90) },
    TableColumn { letter: 'd', header: "P99", help: "", cell: |r| format_length(r.quantiles.p99) },
    TableColumn { letter: 'e', header: "LONGEST", help: "", cell: |r| format_length(r.quantiles.largest) },
];

const SHORT_COLUMNS: &[TableColumn<ShortRow>] = &[
    TableColumn { letter: 'o', header: "SHORTER THAN", help: "", cell: |r| r.of.to_owned() },
    TableColumn { letter: 'a', header: "1:00", help: "", cell: |r| shorter_share(r, 60) },
    TableColumn { letter: 'b', header: "5:00", help: "", cell: |r| shorter_share(r, 300) },
    TableColumn { letter: 'c', header: "10:00", help: "", cell: |r| shorter_share(r, 600) },
    TableColumn { letter: 'd', header: "1:00:00", help: "", cell: |r| shorter_share(r, 3600) },
];

/// The columns of nodes that become idle or are taken. The two headers depend on the unit.
const fn block_columns(that: &'static str, an_hour: &'static str) -> [TableColumn<BlockRow>; 7] {
    [
        TableColumn { letter: 'w', header: that, help: "", cell: |r| r.what.to_owned() },
        TableColumn {
            letter: 'n',
            header: an_hour,
            help: "",
            cell: |r| output::format_number(r.blocks.nodes_an_hour),
        },
        TableColumn {
            letter: 't',
            header: "TIMES/H",
            help: "",
            cell: |r| output::format_number(r.blocks.moments_an_hour),
        },
        TableColumn { letter: 'a', header: "P50 AT ONCE", help: "", cell: |r| block_size(r, |q| q.p50) },
        TableColumn { letter: 'b', header: "P90", help: "", cell: |r| block_size(r, |q| q.p90) },
        TableColumn { letter: 'c', header: "P99", help: "", cell: |r| block_size(r, |q| q.p99) },
        TableColumn { letter: 'd', header: "MOST", help: "", cell: |r| block_size(r, |q| q.largest) },
    ]
}

fn format_length(secs: i64) -> String {
    duration::format_duration(secs as f64)
}

fn shorter_share(row: &ShortRow, secs: i64) -> String {
    let found = row.shorter.iter().find(|s| s.than_secs == secs);
    found.map_or_else(|| "-".to_owned(), |s| percent::tenths_percent((row.share)(s)))
}

fn block_size(row: &BlockRow, of: fn(&WeightedQuantiles) -> i64) -> String {
    row.blocks.sizes.as_ref().map_or_else(|| "-".to_owned(), |q| of(q).to_string())
}

/// Prints the statistics of the log that the flags name.
pub fn run(args: &LogArgs, json: bool) -> CommandResult {
    let log = setup::read_log(args)?;
    let statistics = sim::gap_statistics(&setup::main_queue(&log, args)?, None);
    let name = args.file_name();
    let unit = args.unit;
    if json {
        output::print_json(&GapLogDocument {
            schema: SCHEMA_VERSION,
            log: &name,
            unit,
            statistics: &statistics,
        })?;
    } else {
        let width = output::terminal_width().unwrap_or(DEFAULT_WIDTH);
        output::print_text(&render_text(
            (&name, unit),
            &statistics,
            width,
            output::wants_colours(&std::io::stdout()),
        )?)?;
    }
    Ok(ProgramExit::Ok.code())
}

/// The whole output. `log` is the name and the unit of the log.
fn render_text(
    log: (&str, LogUnit),
    found: &GapStatistics,
    width: usize,
    colours: bool,
) -> Result<String, CommandFailure> {
    let (name, unit) = log;
    let mut text = log_summary(name, unit, found);
    if let Some((by_gaps, by_node_time)) = found.length_by_gaps.zip(found.length_by_node_time) {
        let lengths = [
            LengthRow { of: "gaps", quantiles: by_gaps },
            LengthRow { of: "idle time", quantiles: by_node_time },
        ];
        let short = [
            ShortRow { of: "gaps", shorter: found.shorter.clone(), share: |s| s.of_gaps },
            ShortRow { of: "idle time", shorter: found.shorter.clone(), share: |s| s.of_node_time },
        ];
        let blocks = [
            BlockRow { what: "become idle", blocks: found.joins },
            BlockRow { what: "are taken", blocks: found.leaves },
        ];
        let _ = write!(
            text,
            "\n{}\n{}\n{}\n{}",
            filter::render_full_table("%o  %.a  %.b  %.c  %.d  %.e", LENGTH_COLUMNS, &lengths)?,
            filter::render_full_table("%o  %.a  %.b  %.c  %.d", SHORT_COLUMNS, &short)?,
            blocks_table(unit, &blocks)?,
            length_histogram(found, width, colours),
        );
    }
    Ok(text)
}

fn blocks_table(unit: LogUnit, rows: &[BlockRow]) -> Result<String, CommandFailure> {
    let columns = match unit {
        LogUnit::Node => block_columns("NODES THAT", "NODES/H"),
        LogUnit::Gpu => block_columns("GPUS THAT", "GPUS/H"),
    };
    filter::render_full_table("%w  %.n  %.t  %.a  %.b  %.c  %.d", &columns, rows)
}

fn log_summary(log: &str, log_unit: LogUnit, found: &GapStatistics) -> String {
    let unit = log_unit.noun();
    let units = log_unit.plural();
    let mean = output::format_number(found.idle_nodes_mean);
    let share = percent::tenths_percent(found.idle_nodes_mean / (found.nodes as f64).max(1.0));
    let cut = match found.cut_off {
        0 => String::new(),
        n => format!(" ({n} cut off by an end of the log)"),
    };
    let lines = [
        ("log", format!("{log}: {} {units}, {}", found.nodes, LongDuration(found.span_secs).to_text())),
        (
            "idle",
            format!(
                "{mean} {units} on average ({share}), {} at most, none for {} of the time",
                found.idle_nodes_most,
                percent::tenths_percent(found.none_idle)
            ),
        ),
        ("idle time", format!("{} {unit}-hours", output::format_number(found.idle_node_secs / 3600.0))),
        ("gaps", format!("{}{cut}", found.gaps)),
    ];
    let mut text = String::new();
    for (label, value) in lines {
        let _ = writeln!(text, "{label:<11}{}", value.replace(char::is_control, "?"));
    }
    text
}

/// Two bars for each bin: the share of gaps, and the share of idle time.
fn length_histogram(found: &GapStatistics, width: usize, colours: bool) -> String {
    let cells = (width.saturating_sub(BESIDE_BARS) / 2).clamp(8, LONGEST_BAR);
    let all_gaps = (found.gaps as f64).max(1.0);
    let all_secs = found.idle_node_secs.max(1.0);
    let bins = found.histogram.iter();
    let shares: Vec<(f64, f64)> =
        bins.map(|bin| (bin.gaps as f64 / all_gaps, bin.node_secs / all_secs)).collect();
    // Both kinds of bars have one scale, so that they can be compared.
    let largest = shares.iter().flat_map(|(gaps, time)| [*gaps, *time]).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!("{:>LONGEST_NAME$}  {:<2$}  IDLE TIME\n", "LENGTH", "GAPS", cells + 6);
    for (bin, (gaps, time)) in found.histogram.iter().zip(shares) {
        let row = format!(
            "{:>LONGEST_NAME$}  {}  {}",
            bin_name(bin),
            share_with_bar(gaps, gaps / largest, cells, CYAN, colours),
            share_with_bar(time, time / largest, cells, YELLOW, colours)
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

/// A share in percent and its bar, padded to `cells` columns. `filled` is the bar's length, 0 to 1.
fn share_with_bar(share: f64, filled: f64, cells: usize, colour: TerminalColour, colours: bool) -> String {
    let bar = bars::draw_bar(filled, cells);
    let pad = " ".repeat(cells - bar.chars().count());
    format!("{:>5} {}{pad}", percent::tenths_percent(share), bars::colour_text(&bar, colour, colours))
}

/// The name of a bin, such as `2:00 - 4:00` or `16:00:00 or more`.
fn bin_name(bin: &infill_gaps::LengthBin) -> String {
    let from = duration::format_duration(bin.from_secs);
    match bin.to_secs {
        Some(to) => format!("{from} - {}", duration::format_duration(to)),
        None => format!("{from} or more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_gaps::IdleTime;

    fn found() -> GapStatistics {
        let gap = |start: i64, end: i64| IdleTime { start, end };
        let mut gaps =
            vec![gap(0, 7200), gap(100_000, 200_000), gap(100_000, 100_045), gap(150_000, 153_600)];
        gaps.extend((0..20).map(|i| gap(10_000 + 500 * i, 10_100 + 500 * i)));
        GapStatistics::from_intervals(&gaps, 8, (0, 259_200))
    }

    #[test]
    fn the_page() {
        insta::assert_snapshot!(render_text(("kth.swf", LogUnit::Node), &found(), 80, false).unwrap(), @r"
        log        kth.swf: 8 nodes, 3 days
        idle       0.435 nodes on average (5.4%), 2 at most, none for 57.9% of the time
        idle time  31.3 node-hours
        gaps       24 (1 cut off by an end of the log)

        LENGTH OF      P10         P50         P90         P99     LONGEST
        gaps          1:40        1:40     1:00:00  1-03:46:40  1-03:46:40
        idle time  2:00:00  1-03:46:40  1-03:46:40  1-03:46:40  1-03:46:40

        SHORTER THAN  1:00   5:00  10:00  1:00:00
        gaps          4.2%  87.5%  87.5%    87.5%
        idle time     0.0%   1.8%   1.8%     1.8%

        NODES THAT   NODES/H  TIMES/H  P50 AT ONCE  P90  P99  MOST
        become idle    0.319    0.306            1    1    2     2
        are taken      0.333    0.333            1    1    1     1

                    LENGTH  GAPS                         IDLE TIME
               0:00 - 0:30   0.0%                         0.0%
               0:30 - 1:00   4.2% █                       0.0% ▏
               1:00 - 2:00  83.3% ███████████████████▊    1.8% ▍
               2:00 - 4:00   0.0%                         0.0%
               4:00 - 8:00   0.0%                         0.0%
              8:00 - 15:00   0.0%                         0.0%
             15:00 - 30:00   0.0%                         0.0%
           30:00 - 1:00:00   0.0%                         0.0%
         1:00:00 - 2:00:00   4.2% █                       3.2% ▊
         2:00:00 - 4:00:00   4.2% █                       6.4% █▌
         4:00:00 - 8:00:00   0.0%                         0.0%
        8:00:00 - 16:00:00   0.0%                         0.0%
          16:00:00 or more   4.2% █                      88.6% █████████████████████
        ");
    }

    #[test]
    fn in_gpus() {
        let text = render_text(("q.sacct", LogUnit::Gpu), &found(), 80, false).unwrap();
        let lines: Vec<&str> = text.lines().filter(|l| l.to_lowercase().contains("gpu")).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        log        q.sacct: 8 GPUs, 3 days
        idle       0.435 GPUs on average (5.4%), 2 at most, none for 57.9% of the time
        idle time  31.3 GPU-hours
        GPUS THAT    GPUS/H  TIMES/H  P50 AT ONCE  P90  P99  MOST
        ");
    }

    #[test]
    fn colours_are_codes_around_the_same_characters() {
        let show = |colours| render_text(("kth.swf", LogUnit::Node), &found(), 80, colours).unwrap();
        let codes = regex::Regex::new("\u{1b}\\[[0-9]+m").unwrap();
        assert!(show(true).contains('\u{1b}') && !show(false).contains('\u{1b}'));
        assert_eq!(codes.replace_all(&show(true), ""), show(false));
    }

    #[test]
    fn any_width_will_do() {
        for width in [0, 1, 80, 200, usize::MAX] {
            let text = length_histogram(&found(), width, false);
            let longest = text.lines().map(|l| l.chars().count()).max();
            assert!(longest.is_some_and(|l| l <= width.clamp(52, 120)), "{width}: {text}");
        }
    }

    #[test]
    fn a_log_without_gaps() {
        let none = GapStatistics::from_intervals(&[], 8, (0, 86_400));
        insta::assert_snapshot!(render_text(("x\u{1b}.swf", LogUnit::Node), &none, 80, false).unwrap(), @r"
        log        x?.swf: 8 nodes, 24 hours
        idle       0 nodes on average (0.0%), 0 at most, none for 100.0% of the time
        idle time  0 node-hours
        gaps       0
        ");
    }

    #[test]
    fn the_document_has_these_keys() {
        fn keys(value: &serde_json::Value) -> String {
            value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
        }
        let document = GapLogDocument {
            schema: SCHEMA_VERSION,
            log: "kth.swf",
            unit: LogUnit::Gpu,
            statistics: &found(),
        };
        let json = serde_json::to_value(document).unwrap();
        insta::assert_snapshot!(keys(&json), @"log schema statistics unit");
        insta::assert_snapshot!(keys(&json["statistics"]), @"cut_off gaps histogram idle_node_secs idle_nodes_mean idle_nodes_most joins leaves length_by_gaps length_by_node_time nodes none_idle shorter span_secs");
        insta::assert_snapshot!(keys(&json["statistics"]["length_by_gaps"]), @"largest p10 p50 p90 p99");
        insta::assert_snapshot!(keys(&json["statistics"]["shorter"][0]), @"of_gaps of_node_time than_secs");
        insta::assert_snapshot!(keys(&json["statistics"]["histogram"][0]), @"from_secs gaps node_secs to_secs");
        insta::assert_snapshot!(keys(&json["statistics"]["joins"]), @"moments_an_hour nodes_an_hour sizes");
    }
}
