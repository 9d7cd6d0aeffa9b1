//! A report as an HTML page in one file, made for printing. Its first sheet has the numbers that a director
//! asks for.

use std::fmt::Write as _;

use super::parts::{ComparedPeriod, HarvestReport, MonthSummary, UsageRow};
use super::text;
use infill_model::duration;
use infill_present::{charts::markup::escape_html, output, phrases::percent};

/// Forbids the page to load other files.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The most rows on the first sheet. The others follow on the next.
const FIRST_SHEET_ROWS: usize = 8;

const STYLE: &str = include_str!("style.css");

/// The report as an HTML page.
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
    page += &html_section("Who used the node-hours", &rows_html(first));
    page += &html_section("How the nodes' time was used", &node_use_html(report));
    page += &html_section("Months, as observed by infill", &months_html(&report.months));
    if !rest.is_empty() {
        page += &format!("<section class=\"more\"><h2>Further users</h2>{}</section>\n", rows_html(rest));
    }
    page + "</body>\n</html>\n"
}

fn html_section(title: &str, body: &str) -> String {
    format!("<section><h2>{title}</h2>{body}</section>\n")
}

/// The three main numbers.
fn headline_numbers(report: &HarvestReport) -> String {
    let gpu_hours = if report.gpu_hours > 0.0 {
        format!(", {} GPU-hours", output::format_number(report.gpu_hours))
    } else {
        String::new()
    };
    let unit = if report.lends_parts { "GPUs" } else { "nodes" };
    let mut items = headline_item(
        &report.delayed.to_string(),
        &format!("of {} main jobs waited longer than a second for nodes of malleable jobs", report.main_jobs),
    );
    items += &headline_item(
        &output::format_number(report.node_hours),
        &format!("node-hours{gpu_hours} of malleable jobs on nodes that were idle"),
    );
    items += &headline_item(
        &format!("{:.1}", report.like_nodes),
        &format!("additional {unit} would have given the same"),
    );
    format!("<ul class=\"headlines\">{items}</ul>\n")
}

fn headline_item(value: &str, text: &str) -> String {
    format!("<li><strong>{value}</strong> {text}</li>")
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
        "<p>{} started on nodes that malleable jobs held; wait for these jobs to leave: {}. {} missed a planned start \
         because of this wait.</p>",
        report.delays.count,
        text::waits_text(&report.delays),
        report.missed
    );
    text
}

fn node_use_html(report: &HarvestReport) -> String {
    let useful = report.useful.map(|share| {
        format!("Malleable jobs spent {} of their node-time on training steps", percent::whole_percent(share))
    });
    let all = [
        report.nodes.as_ref().map(text::node_uses_text),
        useful,
        report.energy.map(|energy| format!("Energy: {}", text::energy_text(energy))),
        report.cost.as_ref().map(|cost| format!("Worth {:.0} {}", cost.amount, escape_html(&cost.currency))),
        report.cluster.as_ref().map(|cluster| format!("sreport: {}", text::cluster_text(cluster, report))),
    ];
    let paragraphs: String = all.into_iter().flatten().map(|text| format!("<p>{text}.</p>")).collect();
    if paragraphs.is_empty() { "<p>No data.</p>".to_owned() } else { paragraphs }
}

fn rows_html(rows: &[UsageRow]) -> String {
    if rows.is_empty() {
        return "<p>No one.</p>".to_owned();
    }
    let body: String = rows.iter().map(row_html).collect();
    let heads = ["Who", "Node-hours", "GPU-hours", "Useful", "Rescales", "Leaving for main jobs", "Probes"];
    html_table(&heads, &body)
}

fn row_html(row: &UsageRow) -> String {
    let name = if row.name.is_empty() { "others".to_owned() } else { escape_html(&row.name) };
    let hours = [row.useful_hours, row.rescale_hours, row.preempted_hours, row.probing_hours];
    let [useful, rescale, preempted, probing] =
        hours.map(|hours| percent::whole_percent(row.share_of(hours)));
    format!(
        "<tr><td>{name}</td><td>{:.1}</td><td>{:.1}</td><td>{useful}</td><td>{rescale}</td><td>{preempted}</td>\
         <td>{probing}</td></tr>",
        row.node_hours, row.gpu_hours,
    )
}

fn months_html(months: &[MonthSummary]) -> String {
    let most = months.iter().map(|month| month.node_hours).fold(f64::MIN_POSITIVE, f64::max);
    let body: String = months.iter().map(|month| month_html(month, most)).collect();
    html_table(&["Month", "Node-hours", "", "GPU-hours", "Useful", "Main jobs delayed", "Longest"], &body)
}

/// A row of the table of months. `most` is the largest number of node-hours, which has the longest bar.
fn month_html(month: &MonthSummary, most: f64) -> String {
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
}

fn html_table(heads: &[&str], body: &str) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    format!("<div class=\"wide\"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::super::sums::{AccountingTotals, GroupBy};
    use super::*;
    use infill_api::{ReportView, SCHEMA_VERSION, UsesView};
    use infill_model::{NodeTimeKey, NodeTimeRow, NodeTimeUsage, ReportConfig, UnixTime};

    #[test]
    fn names_are_escaped_and_the_page_loads_no_other_files() {
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
            schema: SCHEMA_VERSION,
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
        assert!(page.contains("Further users") && page.contains("1970-01"), "{page}");
    }
}
