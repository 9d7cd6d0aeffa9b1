//! The outcome as a page of HTML: one file with all that it needs, for a screen, a phone and paper. It asks
//! for nothing from any network, and says so to the browser.

mod charts;
mod figure;
mod jobs;
mod timeline;
mod words;

use std::fmt::Write;

use super::document::Document;
use super::show::{self, MEASURE};
use crate::simulate::Unit;
use figure::Figure;
use infill_gaps::GapStatistics;
use infill_model::NodeName;
use infill_present::{
    charts::{inline, markup::html},
    days::Days,
};
use infill_sim::Balance;

/// What a page is made of.
pub(crate) struct Material<'a> {
    /// The figures of all policies.
    pub document: &'a Document,
    /// The outcomes, as the document's rows; not empty.
    pub outcomes: &'a [&'a Balance],
    /// The gaps of the main queue.
    pub gaps: &'a GapStatistics,
    /// Names of the nodes.
    pub nodes: &'a [NodeName],
    /// The log's first moment, s.
    pub start: i64,
    /// The command that made it, with file names only.
    pub command: &'a str,
}

/// Forbids all that is not in the file.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page.
///
/// # Errors
/// When there is no outcome.
pub(crate) fn page(material: &Material<'_>) -> anyhow::Result<String> {
    let document = material.document;
    let shown = material.outcomes.iter().find(|o| o.policy != "bound").or(material.outcomes.first());
    let shown = shown.ok_or_else(|| anyhow::anyhow!("no policy was simulated: there is nothing to draw"))?;
    let subject = &document.subject;
    let title = format!("What infill would harvest: {}", html(&subject.log));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{title}</title>\n\
         <style>\n{}{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p class=\"soft\">{} {}, {}; {}.{}</p>\n",
        include_str!("style.css"),
        // A line for each policy, and one for what is idle.
        inline::style(material.outcomes.len() + 1),
        subject.nodes,
        subject.unit.plural(),
        Days(subject.span_secs).text(),
        html(&subject.malleable),
        if subject.unit == Unit::Gpu { " Wherever a figure says node, it is a GPU." } else { "" },
    );
    if let Some(row) = document.policies.iter().find(|row| row.policy == shown.policy) {
        for sentence in words::sentences(document, row) {
            let _ = writeln!(text, "<p>{}</p>", html(&sentence));
        }
    }
    text.push_str(&table(document));
    for figure in figures(material, shown) {
        text.push_str(&figure.html());
    }
    let _ = write!(
        text,
        "<section>\n<h2>How it was made</h2>\n<pre>{}</pre>\n<p class=\"soft\">infill {}. The same files, \
         configuration and seed give the same page.</p>\n</section>\n</body>\n</html>\n",
        html(material.command),
        env!("CARGO_PKG_VERSION"),
    );
    Ok(text)
}

fn figures(material: &Material<'_>, shown: &Balance) -> Vec<Figure> {
    let (document, outcomes) = (material.document, material.outcomes);
    let span_secs = document.subject.span_secs;
    let jobs = jobs::Jobs::of(outcomes, shown);
    let work = [
        charts::series(outcomes, shown, material.start, span_secs),
        charts::efficiency(document),
        charts::losses(document),
    ];
    let rest = [
        charts::gap_lengths(material.gaps),
        timeline::timeline(shown, material.nodes, material.start, span_secs),
        charts::samples(&jobs),
        charts::node_hours(&jobs),
    ];
    work.into_iter().chain(charts::fairness(document)).chain(rest).collect()
}

/// The terminal's table.
fn table(document: &Document) -> String {
    let mut text = String::from("<div class=\"wide\"><table>\n");
    for (i, row) in document.policies.iter().enumerate() {
        if i == 0 {
            text.push_str("<tr>");
            for (header, _, _) in show::cells(row) {
                let _ = write!(text, "<th>{}</th>", html(header));
            }
            text.push_str("</tr>\n");
        }
        text.push_str("<tr>");
        for (_, _, cell) in show::cells(row) {
            let _ = write!(text, "<td>{}</td>", html(&cell));
        }
        text.push_str("</tr>\n");
    }
    let key = document.policies.first().map(show::cells).into_iter().flatten();
    let key: Vec<String> =
        key.map(|(header, help, _)| format!("<b>{}</b> {}", html(header), html(help))).collect();
    let (key, measure) = (key.join("; "), html(MEASURE));
    let _ =
        writeln!(text, "</table></div>\n<p class=\"soft\">{measure}</p>\n<p class=\"soft key\">{key}.</p>");
    text
}

#[cfg(test)]
mod tests;
