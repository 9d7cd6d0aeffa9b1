//! The results as a page of HTML: one complete file for a screen, a phone and paper. It loads nothing from
//! any network, and its content policy forbids that.

mod charts;
pub(crate) mod figure;
mod jobs;
mod sentences;
pub(crate) mod timeline;

use std::fmt::Write;

use super::document::SimulationDocument;
use super::show::{self, EFFICIENCY_NOTE};
use crate::simulate::LogUnit;
use figure::PageFigure;
use infill_gaps::GapStatistics;
use infill_model::NodeName;
use infill_present::{
    charts::{inline, markup::escape_html},
    long_duration::LongDuration,
};
use infill_sim::PolicyScore;

/// The input of a page.
pub(crate) struct PageInput<'a> {
    /// The figures of all policies.
    pub document: &'a SimulationDocument,
    /// The outcomes, as the document's rows; not empty.
    pub outcomes: &'a [&'a PolicyScore],
    /// The gaps of the main queue.
    pub gaps: &'a GapStatistics,
    /// Names of the nodes.
    pub nodes: &'a [NodeName],
    /// The log's first moment, s.
    pub start: i64,
    /// The command that made the page, with file names only.
    pub command: &'a str,
}

/// Forbids everything that is not in the file.
pub(crate) const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page as HTML.
///
/// # Errors
/// If there is no outcome.
pub(crate) fn page_html(material: &PageInput<'_>) -> anyhow::Result<String> {
    let document = material.document;
    let shown = material.outcomes.iter().find(|o| o.policy != "bound").or(material.outcomes.first());
    let shown = shown.ok_or_else(|| anyhow::anyhow!("no policy was simulated: there is nothing to draw"))?;
    let subject = &document.subject;
    let title = format!("What infill would harvest: {}", escape_html(&subject.log));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\">\n<title>{title}</title>\n\
         <style>\n{}{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p class=\"soft\">{} {}, {}; {}.{}</p>\n",
        include_str!("style.css"),
        // A line for each policy, and one for idle nodes.
        inline::figure_style(material.outcomes.len() + 1),
        subject.nodes,
        subject.unit.plural(),
        LongDuration(subject.span_secs).to_text(),
        escape_html(&subject.malleable),
        if subject.unit == LogUnit::Gpu { " Wherever a figure says node, it is a GPU." } else { "" },
    );
    if let Some(row) = document.policies.iter().find(|row| row.policy == shown.policy) {
        for sentence in sentences::page_sentences(document, row) {
            let _ = writeln!(text, "<p>{}</p>", escape_html(&sentence));
        }
    }
    text.push_str(&policy_table(document));
    for figure in page_figures(material, shown) {
        text.push_str(&figure.to_html());
    }
    let _ = write!(
        text,
        "<section>\n<h2>How it was made</h2>\n<pre>{}</pre>\n<p class=\"soft\">infill {}. The same files, \
         configuration and seed give the same page.</p>\n</section>\n</body>\n</html>\n",
        escape_html(material.command),
        env!("CARGO_PKG_VERSION"),
    );
    Ok(text)
}

fn page_figures(material: &PageInput<'_>, shown: &PolicyScore) -> Vec<PageFigure> {
    let document = material.document;
    let outcomes = material.outcomes;
    let span_secs = document.subject.span_secs;
    let (unit, unit_secs) = LongDuration(span_secs).unit_with_secs();
    let jobs = jobs::JobComparison::from_outcomes(outcomes, shown);
    let work = [
        charts::series_figure(outcomes, shown, material.start, span_secs),
        charts::efficiency_figure(document),
        charts::losses_figure(document),
    ];
    let rest = [
        charts::gap_lengths_figure(material.gaps),
        timeline::timeline_figure(&timeline::TimelineInput {
            spans: &shown.timeline,
            job_names: shown.jobs.iter().map(|job| (job.id, job.name.clone())).collect(),
            node_names: material.nodes,
            policy: &shown.policy,
            start: material.start,
            span_secs,
            origin: "the log's start",
            unit,
            unit_secs,
        }),
        charts::samples_figure(&jobs),
        charts::node_hours_figure(&jobs),
    ];
    work.into_iter().chain(charts::fairness_figure(document)).chain(rest).collect()
}

/// The terminal's table.
fn policy_table(document: &SimulationDocument) -> String {
    let mut text = String::from("<div class=\"wide\"><table>\n");
    for (i, row) in document.policies.iter().enumerate() {
        if i == 0 {
            text.push_str("<tr>");
            for (header, _, _) in show::row_cells(row) {
                let _ = write!(text, "<th>{}</th>", escape_html(header));
            }
            text.push_str("</tr>\n");
        }
        text.push_str("<tr>");
        for (_, _, cell) in show::row_cells(row) {
            let _ = write!(text, "<td>{}</td>", escape_html(&cell));
        }
        text.push_str("</tr>\n");
    }
    let key = document.policies.first().map(show::row_cells).into_iter().flatten();
    let key: Vec<String> = key
        .map(|(header, help, _)| format!("<b>{}</b> {}", escape_html(header), escape_html(help)))
        .collect();
    let key = key.join("; ");
    let measure = escape_html(EFFICIENCY_NOTE);
    let _ =
        writeln!(text, "</table></div>\n<p class=\"soft\">{measure}</p>\n<p class=\"soft key\">{key}.</p>");
    text
}

#[cfg(test)]
mod tests;
