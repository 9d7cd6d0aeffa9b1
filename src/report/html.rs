//! A report as a page of HTML, one file, made to be printed: the first sheet has what a director asks.

use std::fmt::Write as _;

use super::parts::{ComparedPeriod, HarvestReport, MonthSummary, UsageRow};
use super::text;
use infill_model::duration;
use infill_present::{charts::markup::escape_html, output, phrases::percent};

/// Forbids all that is not in the file.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Rows of the first sheet; the others follow on the next.
const FIRST_SHEET_ROWS: usize = 8;

const STYLE: &str = include_str!("style.css");

/// The page.
pub fn report_page(report: &HarvestReport) -> String {
    let title = format!("Infill, {} to {}", report.from, report.to);
    let (first, rest) = report.rows.split_at(report.rows.len().min(FIRST_SHEET_ROWS));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    page += &headline_numbers(report);
    page += &html_section("Main jobs", &main_jobs_html(report));
    page += &html_section("Who had the node-hours", &rows_html(first));
    page += &html_section("What became of the nodes' time", &node_use_html(report));
    page += &html_section("Months, as infill saw them", &months_html(&report.months));
    if !rest.is_empty() {
        page += &format!("<section class=\"more\"><h2>Who else</h2>{}</section>\n", rows_html(rest));
    }
    page + "</body>\n</html>\n"
}

fn html_section(title: &str, body: &str) -> String {
    format!("<section><h2>{title}</h2>{body}</section>\n")
}

/// Three numbers.
fn headline_numbers(report: &HarvestReport) -> String {
    let number = |value: String, what: String| format!("<li><strong>{value}</strong> {what}</li>");
    let delayed = number(
        report.delayed.to_string(),
        format!("of {} main jobs waited longer than a second for nodes of malleable ones", report.main_jobs),
    );
    let gpus = format!(", {} GPU-hours", output::format_number(report.gpu_hours));
    let gpus = if report.gpu_hours > 0.0 { gpus } else { String::new() };
    let used = number(
        output::format_number(report.node_hours),
        format!("node-hours{gpus} of malleable jobs on nodes that were idle"),
    );
    let like = number(
        format!("{:.1}", report.like_nodes),
        format!("more {} would have given as much", if report.lends_parts { "GPUs" } else { "nodes" }),
    );
    format!("<ul class=\"headlines\">{delayed}{used}{like}</ul>\n")
}

fn main_jobs_html(report: &HarvestReport) -> String {
    let mut text =
        format!("<p>{} started; wait {}.</p>", report.main_jobs, text::waits_text(&report.main_waits));
    if let Some(before) = &report.before {
        let ComparedPeriod { from, to, main_waits } = before;
        let count = main_waits.count;
        let waits = text::waits_text(main_waits);
        let _ = write!(text, "<p>Before, {from} to {to}: {count} started; wait {waits}.</p>");
    }
    let _ = write!(
        text,
        "<p>{} started on nodes that malleable jobs were on, and waited for these: {}. {} missed a planned start by that.</p>",
        report.delays.count,
        text::waits_text(&report.delays),
        report.missed
    );
    text
}

fn node_use_html(report: &HarvestReport) -> String {
    let useful = report.useful.map(|share| {
        format!("{} of the time that malleable jobs held went into steps", percent::whole_percent(share))
    });
    let all = [
        report.nodes.as_ref().map(text::node_uses_text),
        useful,
        report.energy.map(|energy| format!("Energy: {}", text::energy_text(energy))),
        report.cost.as_ref().map(|cost| format!("Worth {:.0} {}", cost.amount, escape_html(&cost.currency))),
        report.cluster.as_ref().map(|cluster| format!("sreport: {}", text::cluster_text(cluster, report))),
    ];
    let said: String = all.into_iter().flatten().map(|words| format!("<p>{words}.</p>")).collect();
    if said.is_empty() { "<p>Nothing is known of it.</p>".to_owned() } else { said }
}

fn rows_html(rows: &[UsageRow]) -> String {
    if rows.is_empty() {
        return "<p>Nobody.</p>".to_owned();
    }
    let row = |row: &UsageRow| {
        let share = |hours: f64| percent::whole_percent(row.share_of(hours));
        let name = if row.name.is_empty() { "others".to_owned() } else { escape_html(&row.name) };
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
    html_table(&heads, &body)
}

fn months_html(months: &[MonthSummary]) -> String {
    let most = months.iter().map(|month| month.node_hours).fold(f64::MIN_POSITIVE, f64::max);
    let row = |month: &MonthSummary| {
        let width = (100.0 * month.node_hours / most).round();
        let name = month.name();
        let useful = month.useful.map_or_else(|| "-".to_owned(), percent::whole_percent);
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
    html_table(&["Month", "Node-hours", "", "GPU-hours", "Useful", "Main jobs delayed", "Longest"], &body)
}

fn html_table(heads: &[&str], body: &str) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    format!("<div class=\"wide\"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::super::sums::{AccountingTotals, GroupBy};
    use super::*;
    use infill_api::{ReportView, SCHEMA, UsesView};
    use infill_model::{NodeTimeKey, NodeTimeRow, NodeTimeUsage, ReportConfig, UnixTime};

    #[test]
    fn names_are_names_and_no_tags_and_nothing_is_asked_of_others() {
        let from = UnixTime(0);
        let to = UnixTime(7200);
        let row = |n: usize| {
            let user = format!("</td><script>{n}");
            let account = String::new();
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
        let mut report = AccountingTotals::new(from, to, to, "infill").build_report(&view, GroupBy::User);
        report.months = vec![MonthSummary::from_view(&view)];
        let page = report_page(&report);
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(!page.contains("http://") && !page.contains("src="), "{page}");
        assert_eq!(page.matches("&lt;script&gt;").count(), 10);
        assert!(page.contains("Who else") && page.contains("1970-01"), "{page}");
    }
}
