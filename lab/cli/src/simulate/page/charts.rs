//! The page's figures of policies, gaps and jobs.

use super::figure::PageFigure;
use super::jobs::JobComparison;
use crate::simulate::document::{LossShares, PolicyRow, SimulationDocument};
use infill_gaps::{GapStatistics, LengthBin};
use infill_model::duration;
use infill_present::{
    charts::inline::{RowFigure, RowMarks, RowSeries, SeriesColour, StepFigure, StepLine},
    long_duration::LongDuration,
    output,
};
use infill_sim::{FairnessScore, PolicyScore, SeriesPoint};

/// Most lines of a table over time.
const MOST_PARTS: f64 = 64.0;

/// Possible lengths of a line's time, s.
const PARTS_SECS: [f64; 11] =
    [60.0, 300.0, 900.0, 1800.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0];

/// Idle nodes and nodes that malleable jobs hold over time. At first only the line of the shown policy is
/// visible. `start` is the log's first moment, s.
pub(crate) fn series_figure(
    outcomes: &[&PolicyScore],
    shown: &PolicyScore,
    start: i64,
    span_secs: f64,
) -> PageFigure {
    let (unit, secs) = LongDuration(span_secs).unit_with_secs();
    let idle = StepLine {
        name: "idle".to_owned(),
        colour: SeriesColour::Grey,
        is_filled: true,
        is_shown: true,
        points: step_points(&shown.series, start, secs, |s| s.idle),
    };
    let held = outcomes.iter().enumerate().map(|(i, outcome)| StepLine {
        name: format!("held under {}", outcome.policy),
        colour: SeriesColour::Of(i),
        is_filled: false,
        is_shown: outcome.policy == shown.policy,
        points: step_points(&outcome.series, start, secs, |s| s.held),
    });
    let title = "Idle and harvested nodes";
    let steps = StepFigure {
        id: "series",
        title,
        times: &format!("{unit}s since the log's start"),
        end: span_secs / secs,
        values: "nodes",
        lines: std::iter::once(idle).chain(held).collect(),
    };
    let part = PARTS_SECS.into_iter().find(|part| span_secs / part <= MOST_PARTS);
    PageFigure {
        title,
        caption:
            "Nodes that the main queue did not use, and those of them that malleable jobs held: means over \
                  short times. Tap a name above to show or hide it."
                .to_owned(),
        drawing: steps.to_html(),
        table: Some(steps.to_table(part.unwrap_or(span_secs / MOST_PARTS) / secs)),
    }
}

/// The points of a line over time, in units of `unit_secs` since `start`, with the end of the last stretch.
fn step_points(
    series: &[SeriesPoint],
    start: i64,
    unit_secs: f64,
    value: fn(&SeriesPoint) -> f64,
) -> Vec<(f64, f64)> {
    let end = series.last().map(|point| (point.at + point.secs, value(point)));
    let points = series.iter().map(|point| (point.at, value(point))).chain(end);
    points.map(|(at, nodes)| ((at - start as f64) / unit_secs, nodes)).collect()
}

/// The distribution of the lengths of gaps, by gaps and by node-time.
pub(crate) fn gap_lengths_figure(found: &GapStatistics) -> PageFigure {
    let used = used_bins(&found.histogram);
    let series = |name: &str, colour, share: fn(&LengthBin) -> f64, whole: f64| RowSeries {
        name: name.to_owned(),
        colour: SeriesColour::Of(colour),
        values: used.iter().map(|bin| 100.0 * share(bin) / whole.max(1.0)).collect(),
    };
    let title = "How long gaps last";
    let rows = RowFigure {
        id: "gaps",
        title,
        row: "length of the gap",
        values: "share, %",
        sign: " %",
        names: used.iter().map(|bin| bin_name(bin)).collect(),
        series: vec![
            series("of the gaps", 5, |b| b.gaps as f64, found.gaps as f64),
            series("of the idle time", 0, |b| b.node_secs, found.idle_node_secs),
        ],
        marks: RowMarks::Bars,
    };
    PageFigure { title, caption: gap_sentence(found), drawing: rows.to_html(), table: Some(rows.to_table()) }
}

/// The bins from the first to the last that holds a gap.
fn used_bins(bins: &[LengthBin]) -> Vec<&LengthBin> {
    let first = bins.iter().position(|bin| bin.gaps > 0).unwrap_or(0);
    let end = bins.iter().rposition(|bin| bin.gaps > 0).map_or(0, |last| last + 1);
    bins.iter().take(end).skip(first).collect()
}

/// The name of a bin, such as `30 s–1 min`.
fn bin_name(bin: &LengthBin) -> String {
    match bin.to_secs {
        Some(to) if bin.from_secs <= 0.0 => format!("under {}", short_duration(to)),
        Some(to) => format!("{}–{}", short_duration(bin.from_secs), short_duration(to)),
        None => format!("from {}", short_duration(bin.from_secs)),
    }
}

fn short_duration(secs: f64) -> String {
    match secs {
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

fn format_length(secs: i64) -> String {
    duration::format_duration(secs as f64)
}

fn gap_sentence(found: &GapStatistics) -> String {
    let Some((gaps, time)) = found.length_by_gaps.zip(found.length_by_node_time) else {
        return "The log has no gap.".to_owned();
    };
    format!(
        "{} gaps ({} cut off by an end of the log). Half of them last at most {}, nine tenths at most {}; half of the \
         idle time lies in gaps of more than {}. Nodes become idle {} times an hour, {} at once in half of the cases \
         and {} at most. For {:.1} % of the time no node is idle.",
        found.gaps,
        found.cut_off,
        format_length(gaps.p50),
        format_length(gaps.p90),
        format_length(time.p50),
        output::format_number(found.joins.moments_an_hour),
        found.joins.sizes.map_or(0, |q| q.p50),
        found.joins.sizes.map_or(0, |q| q.largest),
        100.0 * found.none_idle,
    )
}

/// Work as a share of the bound's.
pub(crate) fn efficiency_figure(document: &SimulationDocument) -> PageFigure {
    let title = "Efficiency by policy";
    let rows = RowFigure {
        id: "efficiency",
        title,
        row: "policy",
        values: "efficiency, %",
        sign: " %",
        names: policy_names(document),
        series: vec![RowSeries {
            name: "efficiency".to_owned(),
            colour: SeriesColour::Of(0),
            values: document.policies.iter().map(|row| 100.0 * row.efficiency).collect(),
        }],
        marks: RowMarks::Bars,
    };
    let caption = "Work as a share of what the bound makes.".to_owned();
    // The bars show their numbers.
    PageFigure { title, caption, drawing: rows.to_html(), table: None }
}

/// Lost work by cause.
pub(crate) fn losses_figure(document: &SimulationDocument) -> PageFigure {
    type Share = fn(&LossShares) -> f64;
    let causes: [(&str, SeriesColour, Share); 4] = [
        ("rescales", SeriesColour::Of(4), |l| l.rescale),
        ("preemption", SeriesColour::Of(1), |l| l.preemption),
        ("probing", SeriesColour::Of(2), |l| l.probing),
        ("rest", SeriesColour::Grey, |l| l.unused),
    ];
    let series = causes.map(|(name, colour, share)| RowSeries {
        name: name.to_owned(),
        colour,
        values: document.policies.iter().map(|row| 100.0 * share(&row.loss)).collect(),
    });
    let title = "Where work is lost";
    let rows = RowFigure {
        id: "losses",
        title,
        row: "policy",
        values: "loss, % of the bound's work",
        sign: " %",
        names: policy_names(document),
        series: series.to_vec(),
        marks: RowMarks::Stacked,
    };
    PageFigure {
        title,
        caption: "Rescales that the policy wanted, rescales because the main queue took nodes, rescales to measure a \
                  size; the rest is nodes that were unused, or used by jobs that make less of them."
            .to_owned(),
        drawing: rows.to_html(),
        table: Some(rows.to_table()),
    }
}

/// Jain's indices of the policies that have one, over jobs, and over users if jobs have users. `None` if no
/// policy has an index.
pub(crate) fn fairness_figure(document: &SimulationDocument) -> Option<PageFigure> {
    let with_index: Vec<&PolicyRow> =
        document.policies.iter().filter(|row| row.fairness.jain_jobs.is_some()).collect();
    if with_index.is_empty() {
        return None;
    }
    let mut series = vec![fairness_series(&with_index, "jobs", 0, |f| f.jain_jobs)];
    if with_index.iter().any(|row| row.fairness.jain_users.is_some()) {
        series.push(fairness_series(&with_index, "users", 2, |f| f.jain_users));
    }
    let title = "Fairness by policy";
    let rows = RowFigure {
        id: "fairness",
        title,
        row: "policy",
        values: "Jain's index, %",
        sign: " %",
        names: with_index.iter().map(|row| row.policy.clone()).collect(),
        series,
        marks: RowMarks::Bars,
    };
    let caption = "Jain's index of the nodes that each had on average while it was in the queue: 100 % where all had as \
                   many, 100 % divided by their number where one had all."
        .to_owned();
    let table = (rows.series.len() > 1).then(|| rows.to_table());
    Some(PageFigure { title, caption, drawing: rows.to_html(), table })
}

fn fairness_series(
    rows: &[&PolicyRow],
    name: &str,
    colour: usize,
    index: fn(&FairnessScore) -> Option<f64>,
) -> RowSeries {
    RowSeries {
        name: name.to_owned(),
        colour: SeriesColour::Of(colour),
        values: rows.iter().map(|row| 100.0 * index(&row.fairness).unwrap_or(0.0)).collect(),
    }
}

fn policy_names(document: &SimulationDocument) -> Vec<String> {
    document.policies.iter().map(|row| row.policy.clone()).collect()
}

/// The samples of each job.
pub(crate) fn samples_figure(jobs: &JobComparison) -> PageFigure {
    let caption = format!("Samples that each job made. {}", jobs.rest_words(|job| job.0, "samples"));
    dots_figure("samples", "Throughput by job", caption, jobs, |job| job.0)
}

/// The node-hours of each job.
pub(crate) fn node_hours_figure(jobs: &JobComparison) -> PageFigure {
    let caption = format!("Node-hours that each job held. {}", jobs.rest_words(|job| job.1, "node-hours"));
    dots_figure("node-hours", "Node-hours by job", caption, jobs, |job| job.1)
}

/// A dot for each job and policy. `unit` is the unit of the values.
fn dots_figure(
    unit: &'static str,
    title: &'static str,
    caption: String,
    jobs: &JobComparison,
    of: fn((f64, f64)) -> f64,
) -> PageFigure {
    let series = jobs.policies.iter().enumerate().map(|(i, policy)| RowSeries {
        name: policy.name.clone(),
        colour: SeriesColour::Of(i),
        values: policy.jobs.iter().map(|job| of(*job)).collect(),
    });
    let rows = RowFigure {
        id: unit,
        title,
        row: "job",
        values: unit,
        sign: "",
        names: jobs.names.clone(),
        series: series.collect(),
        marks: RowMarks::Dots,
    };
    PageFigure { title, caption, drawing: rows.to_html(), table: Some(rows.to_table()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_named_in_words() {
        let name = |from_secs, to_secs| bin_name(&LengthBin { from_secs, to_secs, gaps: 0, node_secs: 0.0 });
        let all =
            [name(0.0, Some(30.0)), name(30.0, Some(60.0)), name(1800.0, Some(3600.0)), name(57_600.0, None)];
        assert_eq!(all, ["under 30 s", "30 s–1 min", "30 min–1 h", "from 16 h"]);
    }
}
