//! The figures of policies, gaps and jobs.

use plotly::common::{
    ExponentFormat, Fill, Font, Line, LineShape, Marker, Mode, Orientation, TextPosition, Visible,
};
use plotly::layout::{Axis, BarMode, RangeMode};
use plotly::{Bar, Scatter, Trace};

use super::figure::{self, Figure, GREY, axis, colour, rounded};
use super::jobs::Jobs;
use crate::simulate::document::{Document, LossShares, PolicyRow};
use infill_gaps::{GapStatistics, LengthBin};
use infill_model::duration;
use infill_present::days::Days;
use infill_present::output;
use infill_sim::{Balance, Sample};

/// Pixels of a bar with the room around it.
const BAR_HEIGHT: usize = 44;

/// Pixels of a job's line.
const JOB_HEIGHT: usize = 13;

/// Idle nodes, and those that malleable jobs hold, over time; of the policies only the shown one until asked
/// for. `start` is the log's first moment, s.
pub fn series(outcomes: &[&Balance], shown: &Balance, start: i64, span_secs: f64) -> Figure {
    let (unit, secs) = Days(span_secs).unit();
    let line = |samples: &[Sample], of: fn(&Sample) -> f64| {
        let last = samples.last().map(|s| (s.at + s.secs, of(s)));
        let points = samples.iter().map(|s| (s.at, of(s))).chain(last);
        let (x, y): (Vec<f64>, Vec<f64>) =
            points.map(|(at, nodes)| (short((at - start as f64) / secs), rounded(nodes))).unzip();
        Scatter::new(x, y).mode(Mode::Lines)
    };
    let step = || Line::new().shape(LineShape::Hv).width(1.2);
    let idle = line(&shown.series, |s| s.idle)
        .name("idle")
        .fill(Fill::ToZeroY)
        .fill_color("rgba(166,166,166,0.45)")
        .line(step().color(GREY));
    let held = outcomes.iter().enumerate().map(|(i, outcome)| -> Box<dyn Trace> {
        let visible = if outcome.policy == shown.policy { Visible::True } else { Visible::LegendOnly };
        line(&outcome.series, |s| s.held)
            .name(format!("held under {}", outcome.policy))
            .visible(visible)
            .line(step().color(colour(i)))
    });
    let all = std::iter::once::<Box<dyn Trace>>(idle).chain(held);
    Figure {
        id: "series",
        title: "Idle and harvested nodes",
        caption:
            "Nodes that the main queue did not use, and those of them that malleable jobs held: means over \
                  short times. Tap a name above to show or hide it."
                .to_owned(),
        traces: figure::traces(all),
        layout: figure::layout(340, axis(&format!("{unit}s since the log's start")), axis("nodes")),
    }
}

/// Four decimals of a day are nine seconds: less than a pixel.
fn short(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

/// How long gaps last, by gaps and by node-time.
pub fn gap_lengths(found: &GapStatistics) -> Figure {
    let used = used(&found.histogram);
    let names: Vec<String> = used.iter().map(|bin| bin_name(bin)).collect();
    let of = |share: fn(&LengthBin) -> f64, whole: f64| -> Vec<f64> {
        used.iter().map(|bin| rounded(100.0 * share(bin) / whole.max(1.0))).collect()
    };
    let gaps = Bar::new(names.clone(), of(|b| b.gaps as f64, found.gaps as f64))
        .name("of the gaps")
        .marker(Marker::new().color(colour(5)));
    let time = Bar::new(names, of(|b| b.node_secs, found.idle_node_secs))
        .name("of the idle time")
        .marker(Marker::new().color(colour(0)));
    Figure {
        id: "gaps",
        title: "How long gaps last",
        caption: gap_words(found),
        traces: figure::traces([gaps as Box<dyn Trace>, time]),
        layout: figure::layout(340, axis("length of the gap"), axis("share, %")).bar_mode(BarMode::Group),
    }
}

/// The bins from the first to the last that holds a gap.
fn used(bins: &[LengthBin]) -> Vec<&LengthBin> {
    let is_used = |bin: &LengthBin| bin.gaps > 0;
    let first = bins.iter().position(is_used).unwrap_or(0);
    let last = bins.iter().rposition(is_used).map_or(0, |last| last + 1);
    bins.iter().take(last).skip(first).collect()
}

/// `30 s–1 min`.
fn bin_name(bin: &LengthBin) -> String {
    let word = |secs: f64| match secs {
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    };
    match bin.to_secs {
        Some(to) if bin.from_secs <= 0.0 => format!("under {}", word(to)),
        Some(to) => format!("{}–{}", word(bin.from_secs), word(to)),
        None => format!("from {}", word(bin.from_secs)),
    }
}

fn gap_words(found: &GapStatistics) -> String {
    let (Some(gaps), Some(time)) = (found.length_by_gaps, found.length_by_node_time) else {
        return "The log has no gap.".to_owned();
    };
    let length = |secs: i64| duration::show(secs as f64);
    format!(
        "{} gaps ({} cut off by an end of the log). Half of them last at most {}, nine tenths at most {}; half of the \
         idle time lies in gaps of more than {}. Nodes become idle {} times an hour, {} at once in half of the cases \
         and {} at most. For {:.1} % of the time no node is idle.",
        found.gaps,
        found.cut_off,
        length(gaps.p50),
        length(gaps.p90),
        length(time.p50),
        output::number(found.joins.moments_an_hour),
        found.joins.sizes.map_or(0, |q| q.p50),
        found.joins.sizes.map_or(0, |q| q.largest),
        100.0 * found.none_idle,
    )
}

/// Work as a share of the bound's.
pub fn efficiency(document: &Document) -> Figure {
    let (names, rows) = upwards(document);
    let shares: Vec<f64> = rows.iter().map(|r| rounded(100.0 * r.efficiency)).collect();
    let text: Vec<String> = shares.iter().map(|share| format!("{share:.1} %")).collect();
    let bars = Bar::new(shares, names)
        .orientation(Orientation::Horizontal)
        .text_array(text)
        .text_position(TextPosition::Auto)
        .marker(Marker::new().color(colour(0)));
    Figure {
        id: "efficiency",
        title: "Efficiency by policy",
        caption: "Work as a share of what the bound makes.".to_owned(),
        traces: figure::traces([bars as Box<dyn Trace>]),
        layout: figure::layout(bars_height(document), axis("efficiency, %"), axis("")),
    }
}

/// What was lost, by cause.
pub fn losses(document: &Document) -> Figure {
    type Share = fn(&LossShares) -> f64;
    let causes: [(&str, &'static str, Share); 4] = [
        ("rescales", "#e69f00", |l| l.rescale),
        ("preemption", "#d55e00", |l| l.preemption),
        ("probing", "#009e73", |l| l.probing),
        ("rest", GREY, |l| l.unused),
    ];
    let bars = causes.map(|(name, fill, share)| -> Box<dyn Trace> {
        let (names, rows) = upwards(document);
        let shares: Vec<f64> = rows.iter().map(|r| rounded(100.0 * share(&r.loss))).collect();
        Bar::new(shares, names)
            .orientation(Orientation::Horizontal)
            .name(name)
            .marker(Marker::new().color(fill))
    });
    let x = axis("loss, % of the bound's work");
    Figure {
        id: "losses",
        title: "Where work is lost",
        caption: "Rescales that the policy wanted, rescales because the main queue took nodes, rescales to measure a \
                  size; the rest is nodes that were unused, or used by jobs that make less of them."
            .to_owned(),
        traces: figure::traces(bars),
        layout: figure::layout(bars_height(document) + 24, x, axis("")).bar_mode(BarMode::Relative),
    }
}

/// Policies from the last to the first: a figure's axis goes upwards.
fn upwards(document: &Document) -> (Vec<String>, Vec<&PolicyRow>) {
    let rows: Vec<&PolicyRow> = document.policies.iter().rev().collect();
    (rows.iter().map(|r| r.policy.clone()).collect(), rows)
}

fn bars_height(document: &Document) -> usize {
    document.policies.len() * BAR_HEIGHT + 80
}

/// What each job made of it.
pub fn samples(jobs: &Jobs) -> Figure {
    let caption = format!("Samples that each job made. {}", jobs.rest_words(|job| job.0, "samples"));
    dots("samples", "Throughput by job", caption, jobs, "samples", |job| job.0)
}

/// What each job held.
pub fn node_hours(jobs: &Jobs) -> Figure {
    let caption = format!("Node-hours that each job held. {}", jobs.rest_words(|job| job.1, "node-hours"));
    dots("hours", "Node-hours by job", caption, jobs, "node-hours", |job| job.1)
}

/// A dot for each job and policy.
fn dots(
    id: &'static str,
    title: &'static str,
    caption: String,
    jobs: &Jobs,
    unit: &str,
    of: fn((f64, f64)) -> f64,
) -> Figure {
    // The first job on top.
    let places: Vec<f64> = (0..jobs.names.len()).rev().map(|place| place as f64).collect();
    let policies = jobs.policies.iter().enumerate().map(|(i, policy)| -> Box<dyn Trace> {
        let values: Vec<f64> = policy.jobs.iter().map(|job| rounded(of(*job))).collect();
        Scatter::new(values, places.clone())
            .mode(Mode::Markers)
            .name(&policy.name)
            .text_array(jobs.labels())
            .hover_template("%{text}: %{x}")
            .marker(Marker::new().color(colour(i)).size(9).opacity(0.85))
    });
    let y: Axis = axis("")
        .tick_values(places.clone())
        .tick_text(jobs.labels())
        .range(vec![-0.7, places.len() as f64 - 0.3])
        .zero_line(false)
        .tick_font(Font::new().size(11));
    let x = axis(unit).range_mode(RangeMode::ToZero).exponent_format(ExponentFormat::SI);
    Figure {
        id,
        title,
        caption,
        traces: figure::traces(policies),
        layout: figure::layout(jobs.names.len() * JOB_HEIGHT + 130, x, y),
    }
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

    #[test]
    fn four_digits_are_kept() {
        let all = [0.0, 12_345.678, 0.001_234_56, -99.999_9, f64::NAN].map(rounded);
        assert_eq!(all, [0.0, 12_350.0, 0.001_235, -100.0, 0.0]);
    }
}
