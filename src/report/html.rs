//! A report as a page of HTML, one file, made to be printed: the first sheet has what a director asks.

use std::fmt::Write as _;

use super::parts::{Before, Month, Report, Row};
use super::text;
use infill_model::duration;
use infill_present::{charts::markup::html, output, words::percent};

/// Forbids all that is not in the file.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Rows of the first sheet; the others follow on the next.
const FIRST_ROWS: usize = 8;

const STYLE: &str = include_str!("style.css");

/// The page.
pub fn page(report: &Report) -> String {
    let title = format!("Infill, {} to {}", report.from, report.to);
    let (first, rest) = report.rows.split_at(report.rows.len().min(FIRST_ROWS));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    page += &headlines(report);
    page += &section("Main jobs", &main_jobs(report));
    page += &section("Who had the node-hours", &rows(first));
    page += &section("What became of the nodes' time", &words_of_nodes(report));
    page += &section("Months, as infill saw them", &months(&report.months));
    if !rest.is_empty() {
        page += &format!("<section class=\"more\"><h2>Who else</h2>{}</section>\n", rows(rest));
    }
    page + "</body>\n</html>\n"
}

fn section(title: &str, body: &str) -> String {
    format!("<section><h2>{title}</h2>{body}</section>\n")
}

/// Three numbers.
fn headlines(report: &Report) -> String {
    let number = |value: String, what: String| format!("<li><strong>{value}</strong> {what}</li>");
    let delayed = number(
        report.delayed.to_string(),
        format!("of {} main jobs waited longer than a second for nodes of malleable ones", report.main_jobs),
    );
    let gpus = format!(", {} GPU-hours", output::number(report.gpu_hours));
    let gpus = if report.gpu_hours > 0.0 { gpus } else { String::new() };
    let used = number(
        output::number(report.node_hours),
        format!("node-hours{gpus} of malleable jobs on nodes that were idle"),
    );
    let like = number(
        format!("{:.1}", report.like_nodes),
        format!("more {} would have given as much", if report.lends_parts { "GPUs" } else { "nodes" }),
    );
    format!("<ul class=\"headlines\">{delayed}{used}{like}</ul>\n")
}

fn main_jobs(report: &Report) -> String {
    let mut text = format!("<p>{} started; wait {}.</p>", report.main_jobs, text::waits(&report.main_waits));
    if let Some(before) = &report.before {
        let Before { from, to, main_waits } = before;
        let (count, waits) = (main_waits.count, text::waits(main_waits));
        let _ = write!(text, "<p>Before, {from} to {to}: {count} started; wait {waits}.</p>");
    }
    let _ = write!(
        text,
        "<p>{} started on nodes that malleable jobs were on, and waited for these: {}. {} missed a planned start by that.</p>",
        report.delays.count,
        text::waits(&report.delays),
        report.missed
    );
    text
}

fn words_of_nodes(report: &Report) -> String {
    let useful = report.useful.map(|share| {
        format!("{} of the time that malleable jobs held went into steps", percent::whole(share))
    });
    let all = [
        report.nodes.as_ref().map(text::uses),
        useful,
        report.energy.map(|energy| format!("Energy: {}", text::energy(energy))),
        report.cost.as_ref().map(|cost| format!("Worth {:.0} {}", cost.amount, html(&cost.currency))),
        report.cluster.as_ref().map(|cluster| format!("sreport: {}", text::cluster(cluster, report))),
    ];
    let said: String = all.into_iter().flatten().map(|words| format!("<p>{words}.</p>")).collect();
    if said.is_empty() { "<p>Nothing is known of it.</p>".to_owned() } else { said }
}

fn rows(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "<p>Nobody.</p>".to_owned();
    }
    let row = |row: &Row| {
        let share = |hours: f64| percent::whole(row.share(hours));
        let name = if row.name.is_empty() { "others".to_owned() } else { html(&row.name) };
        format!(
            "<tr><td>{name}</td><td>{:.1}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            row.node_hours,
            row.gpu_hours,
            share(row.useful_hours),
            share(row.rescale_hours),
            share(row.preempted_hours),
            share(row.probing_hours)
        )
    };
    let body: String = rows.iter().map(row).collect();
    let heads =
        ["Who", "Node-hours", "GPU-hours", "Useful", "Rescales", "For main jobs, losses", "Sizes tried"];
    table(&heads, &body)
}

fn months(months: &[Month]) -> String {
    let most = months.iter().map(|month| month.node_hours).fold(f64::MIN_POSITIVE, f64::max);
    let row = |month: &Month| {
        let width = (100.0 * month.node_hours / most).round();
        let name = month.name();
        let useful = month.useful.map_or_else(|| "-".to_owned(), percent::whole);
        format!(
            "<tr><td>{name}</td><td>{:.1}</td><td class=\"bar\"><i style=\"width:{width}%\"></i></td><td>{:.1}</td>\
             <td>{useful}</td><td>{}</td><td>{}</td></tr>",
            month.node_hours,
            month.gpu_hours,
            month.delayed,
            duration::format_duration(month.longest_s)
        )
    };
    let body: String = months.iter().map(row).collect();
    table(&["Month", "Node-hours", "", "GPU-hours", "Useful", "Main jobs delayed", "Longest"], &body)
}

fn table(heads: &[&str], body: &str) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    format!("<div class=\"wide\"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::super::sums::{By, Sums};
    use super::*;
    use infill_api::{ReportView, SCHEMA, UsesView};
    use infill_model::{NodeTimeKey, NodeTimeRow, NodeTimeUsage, ReportConfig, UnixTime};

    #[test]
    fn names_are_names_and_no_tags_and_nothing_is_asked_of_others() {
        let (from, to) = (UnixTime(0), UnixTime(7200));
        let row = |n: usize| {
            let (user, account) = (format!("</td><script>{n}"), String::new());
            let key = NodeTimeKey { from, account, user, node_type: "a".to_owned() };
            NodeTimeRow {
                key,
                spent: NodeTimeUsage { useful_secs: 3600.0 * n as f64, ..NodeTimeUsage::default() },
            }
        };
        let spent = (1..=10).map(row).collect();
        let view = ReportView {
            schema: SCHEMA,
            from,
            to,
            partition: "infill".to_owned(),
            is_partial: false,
            lends_parts: false,
            prices: ReportConfig {
                node_hour_cost: 1.0,
                currency: "<b>".to_owned(),
                ..ReportConfig::default()
            },
            spent,
            uses: UsesView::default(),
            delays: vec![(3.0, true)],
            delays_cut: false,
        };
        let mut report = Sums::new(from, to, to, "infill").report(&view, By::User);
        report.months = vec![Month::of(&view)];
        let page = page(&report);
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(!page.contains("http://") && !page.contains("src="), "{page}");
        assert_eq!(page.matches("&lt;script&gt;").count(), 10);
        assert!(page.contains("Who else") && page.contains("1970-01"), "{page}");
    }
}
