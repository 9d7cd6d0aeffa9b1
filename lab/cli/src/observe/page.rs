//! An observation as a page of HTML: one complete file for a screen, a phone and paper.

use std::fmt::Write;

use super::periods::HOUR_SECS;
use super::report::ObservationReport;
use super::{PeriodSums, ShadowDelay, SiteObservation};
use crate::simulate::page::{CONTENT_POLICY, figure::PageFigure, timeline};
use infill_model::{UnixTime, counted_noun, duration::format_duration};
use infill_present::{
    charts::{
        inline::{self, RowFigure, RowMarks, RowSeries, SeriesColour},
        markup::escape_html,
    },
    output,
};

/// Seconds after which a browser reads the page again.
const REFRESH_SECS: u32 = 60;

/// Seconds that are drawn in minutes.
const SHORT_SECS: f64 = 7200.0;

/// Hours in the figure of hours.
const SHOWN_HOURS: usize = 24;

/// A figure of the header.
struct HeadFigure {
    value: String,
    what: &'static str,
    is_bad: bool,
}

impl SiteObservation {
    /// The page. `via` says how Slurm is read, and `command` is the command that made the page.
    pub fn page_html(&self, via: &str, command: &str) -> String {
        let report = self.report(via);
        let title = "What infill would harvest here";
        let mut text = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\">\n<meta http-equiv=\"refresh\" content=\"{REFRESH_SECS}\">\n<title>{title}</title>\n\
             <style>\n{}{}{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p class=\"soft\">{}</p>\n",
            include_str!("../simulate/page/style.css"),
            include_str!("page.css"),
            inline::figure_style(2),
            escape_html(&subject(self, &report)),
        );
        text.push_str(&tiles_html(&report));
        if let Some(note) = report.reservation() {
            let _ = writeln!(text, "<p class=\"note\">{}.</p>", escape_html(&note));
        }
        let figures = [hours_figure(&report.hours), self.nodes_figure()];
        for figure in figures.into_iter().flatten() {
            text.push_str(&figure.to_html());
        }
        text.push_str(&days_html(&report.days));
        text.push_str(&events_html(&report.recent));
        let _ = write!(
            text,
            "<section>\n<h2>How it was made</h2>\n<pre>{}</pre>\n<p class=\"soft\">infill {}. Shadow jobs exist only in \
             this program: nothing was submitted or changed. Times are in UTC.</p>\n</section>\n</body>\n</html>\n",
            escape_html(command),
            env!("CARGO_PKG_VERSION"),
        );
        text
    }

    /// Who is on the first nodes, since shadow jobs last began.
    fn nodes_figure(&self) -> Option<PageFigure> {
        let shadow = self.shadow.as_ref()?;
        let secs = (shadow.reached - shadow.began) as f64;
        let is_short = secs < SHORT_SECS;
        let spans = shadow.simulation.timeline();
        let names = spans.iter().filter_map(|span| span.job);
        let names = names.filter_map(|job| Some((job, shadow.simulation.job_name(job)?.to_owned())));
        let raster = timeline::TimelineInput {
            spans: &spans,
            job_names: names.collect(),
            node_names: &shadow.nodes,
            policy: "infill",
            start: shadow.began,
            span_secs: secs,
            origin: &plain_time(UnixTime(shadow.began)),
            unit: if is_short { "minute" } else { "hour" },
            unit_secs: if is_short { 60.0 } else { HOUR_SECS as f64 },
        };
        (secs > 0.0).then(|| timeline::timeline_figure(&raster))
    }
}

/// What was watched, in a sentence.
fn subject(observation: &SiteObservation, report: &ObservationReport) -> String {
    let at = observation.last_look().map_or_else(|| "none yet".to_owned(), plain_time);
    let how = if report.via == "rest" { "slurmrestd" } else { "Slurm's commands" };
    format!(
        "{}, watched for {} through {how}; last look {at}. {} of 1 to {}.",
        counted_noun(report.nodes as u64, "node"),
        format_duration(report.total.observed_secs),
        counted_noun(u64::from(report.shadow_jobs), "shadow job"),
        counted_noun(u64::from(report.max_nodes), "node"),
    )
}

fn tiles_html(report: &ObservationReport) -> String {
    let total = &report.total;
    let figure = |value: String, what| HeadFigure { value, what, is_bad: false };
    let tiles = [
        figure(format!("{:.0}\u{a0}%", 100.0 * total.harvested_share()), "of the idle node-hours harvested"),
        figure(output::format_number(total.held_node_hours), "node-hours harvested"),
        figure(output::format_number(total.idle_node_hours), "idle node-hours"),
        figure(format!("{:.1}", report.mean_idle()), "nodes idle on average"),
        figure(total.main_jobs.to_string(), "main jobs took idle nodes"),
        figure(total.preempting_main_jobs.to_string(), "of them would have preempted a shadow job"),
        HeadFigure {
            is_bad: total.late_main_jobs > 0,
            ..figure(total.late_main_jobs.to_string(), "would have been late though planned")
        },
        figure(format!("{:.0}\u{a0}s", total.longest_wait_secs), "the longest wait of a main job"),
        figure(format!("{:.0}\u{a0}s", total.p99_wait_secs), "99 of 100 main jobs wait no longer"),
    ];
    let mut text = String::from("<div class=\"tiles\">\n");
    for tile in tiles {
        let class = if tile.is_bad { " class=\"bad\"" } else { "" };
        let _ = writeln!(text, "<div{class}><b>{}</b><span>{}</span></div>", tile.value, tile.what);
    }
    text + "</div>\n"
}

/// Idle and harvested node-hours of the last hours; `None` before the first look.
fn hours_figure(hours: &[PeriodSums]) -> Option<PageFigure> {
    let shown = hours.get(hours.len().saturating_sub(SHOWN_HOURS)..).filter(|shown| !shown.is_empty())?;
    let series = |name: &str, colour, value: fn(&PeriodSums) -> f64| RowSeries {
        name: name.to_owned(),
        colour,
        values: shown.iter().map(value).collect(),
    };
    let title = "Idle and harvested, by hour";
    let rows = RowFigure {
        id: "hours",
        title,
        row: "hour (UTC)",
        values: "node-hours",
        sign: "",
        names: shown.iter().map(hour_name).collect(),
        series: vec![
            series("idle", SeriesColour::Grey, |p| p.idle_node_hours),
            series("harvested", SeriesColour::Of(0), |p| p.held_node_hours),
        ],
        marks: RowMarks::Bars,
    };
    Some(PageFigure {
        title,
        caption:
            "Node-hours that the main queue left idle, and those of them that shadow jobs would have held."
                .to_owned(),
        drawing: rows.to_html(),
        table: Some(rows.to_table()),
    })
}

/// Month, day and hour: `11-29 18:00`.
fn hour_name(hour: &PeriodSums) -> String {
    let stamp = hour.from.to_string();
    let is_whole = hour.observed_secs >= HOUR_SECS as f64;
    let text = stamp.get(5..16).unwrap_or(&stamp).replace('T', " ");
    if is_whole { text } else { format!("{text} ({})", format_duration(hour.observed_secs)) }
}

fn days_html(days: &[PeriodSums]) -> String {
    let heads = [
        "day",
        "watched",
        "idle",
        "harvested",
        "share",
        "main jobs",
        "preempting",
        "late",
        "p99 wait",
        "longest wait",
        "worst",
    ];
    let rows = days.iter().rev().map(|day| {
        let date = day.from.to_string();
        vec![
            date.get(..10).unwrap_or(&date).to_owned(),
            format_duration(day.observed_secs),
            output::format_number(day.idle_node_hours),
            output::format_number(day.held_node_hours),
            format!("{:.0} %", 100.0 * day.harvested_share()),
            day.main_jobs.to_string(),
            day.preempting_main_jobs.to_string(),
            day.late_main_jobs.to_string(),
            format!("{:.0} s", day.p99_wait_secs),
            format!("{:.0} s", day.longest_wait_secs),
            day.worst
                .as_ref()
                .map_or_else(String::new, |worst| format!("{}, job {}", worst.node, worst.main_job)),
        ]
    });
    let how = "Idle and harvested in node-hours. The longest wait is that of the job in the last column.";
    section_html("By day", how, &heads, rows)
}

fn events_html(events: &[ShadowDelay]) -> String {
    if events.is_empty() {
        return String::new();
    }
    let heads = ["when", "node", "main job", "Slurm had planned it", "shadow job there", "wait"];
    let rows = events.iter().rev().map(|event| {
        vec![
            plain_time(event.at),
            event.node.to_string(),
            event.main_job.to_string(),
            if event.planned { "yes" } else { "no" }.to_owned(),
            event.shadow_job.clone(),
            format!("{:.0} s", event.wait_secs),
        ]
    });
    let how =
        "The last main jobs that would have found a node held, and how long they would have waited for it.";
    section_html("When main jobs came", how, &heads, rows)
}

/// `2026-11-29 18:45:31`, in UTC.
fn plain_time(at: UnixTime) -> String {
    at.to_string().replace('T', " ").trim_end_matches('Z').to_owned()
}

fn section_html(title: &str, how: &str, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = format!("<section>\n<h2>{title}</h2>\n");
    let _ = writeln!(text, "<p class=\"soft\">{how}</p>");
    text.push_str("<div class=\"wide\"><table>\n<tr>");
    for head in heads {
        let _ = write!(text, "<th>{head}</th>");
    }
    text.push_str("</tr>\n");
    for cells in rows {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape_html(cell))).collect();
        let _ = writeln!(text, "<tr>{cells}</tr>");
    }
    text + "</table></div>\n</section>\n"
}
