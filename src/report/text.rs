//! A report as text, for the terminal or a sheet of paper.

use std::fmt::Write as _;

use super::parts::{
    ClusterHours, ComparedPeriod, EnergyUse, HarvestReport, MonthSummary, NodeUses, UsageRow, WaitStatistics,
};
use infill_model::duration;
use infill_present::{output, phrases::percent};

/// The report as text. The numbers that a director asks for come first.
pub fn report_text(report: &HarvestReport) -> String {
    let mut text = format!("{} to {}\n\n", report.from, report.to);
    for (name, sentence) in report_lines(report) {
        let _ = writeln!(text, "{name:<28}{sentence}");
    }
    text.push_str(&rows_text(&report.rows));
    text.push_str(&months_text(&report.months));
    text.trim_end().to_owned()
}

/// The lines before the tables, each with its name.
fn report_lines(report: &HarvestReport) -> Vec<(&'static str, String)> {
    let main_jobs = format!("{} started; wait {}", report.main_jobs, waits_text(&report.main_waits));
    let delays = format!(
        "{}: {} waited longer than a second for malleable jobs to leave, {} of them past a planned start; {}",
        report.delays.count,
        report.delayed,
        report.missed,
        waits_text(&report.delays)
    );
    let unit = if report.lends_parts { "GPUs" } else { "nodes" };
    let harvested = format!(
        "{} node-hours, {} GPU-hours: as much as {:.1} additional {unit}, beside {} node-hours of main jobs",
        output::format_number(report.node_hours),
        output::format_number(report.gpu_hours),
        report.like_nodes,
        output::format_number(report.main_node_hours)
    );
    let mut lines =
        vec![("main jobs", main_jobs), ("on nodes lent by infill", delays), ("harvested", harvested)];
    if let Some(useful) = report.useful {
        let seen_share = (report.seen_node_hours / report.node_hours.max(f64::MIN_POSITIVE)).min(1.0);
        let sentence = format!(
            "{} of it went into training steps (infill observed {} of these node-hours)",
            percent::whole_percent(useful),
            percent::whole_percent(seen_share)
        );
        lines.push(("useful", sentence));
    }
    if let Some(nodes) = &report.nodes {
        lines.push(("nodes' idle time", node_uses_text(nodes)));
    }
    if let Some(energy) = report.energy {
        lines.push(("energy", energy_text(energy)));
    }
    if let Some(cost) = &report.cost {
        lines.push(("worth", format!("{:.0} {}", cost.amount, cost.currency)));
    }
    if let Some(cluster) = &report.cluster {
        lines.push(("sreport", cluster_text(cluster, report)));
    }
    if let Some(before) = &report.before {
        let ComparedPeriod { from, to, main_waits } = before;
        lines.push(("main jobs before", format!("{from} to {to}: wait {}", waits_text(main_waits))));
    }
    lines
}

/// The table of months, without the first months that have no node-hours.
fn months_text(months: &[MonthSummary]) -> String {
    if months.iter().all(|month| month.node_hours == 0.0) {
        return String::new();
    }
    let mut text = format!(
        "\n\n{:<8} {:>11} {:>11} {:>7} {:>18} {:>8}\n",
        "MONTH", "NODE-HOURS", "GPU-HOURS", "USEFUL", "MAIN JOBS DELAYED", "LONGEST"
    );
    for month in months.iter().skip_while(|month| month.node_hours == 0.0) {
        let useful = month.useful.map_or_else(|| "-".to_owned(), percent::whole_percent);
        let _ = writeln!(
            text,
            "{:<8} {:>11.1} {:>11.1} {useful:>7} {:>18} {:>8}",
            month.name(),
            month.node_hours,
            month.gpu_hours,
            month.delayed,
            duration::format_duration(month.longest_s)
        );
    }
    text
}

/// How the time that main jobs left idle was used.
pub fn node_uses_text(nodes: &NodeUses) -> String {
    let [idle, wanted, refused] =
        [nodes.idle_hours, nodes.wanted_hours, nodes.refused_hours].map(output::format_number);
    let harvested = nodes.harvested.map_or_else(|| "-".to_owned(), percent::whole_percent);
    format!(
        "malleable jobs used {harvested} of the time that main jobs left; unused node-hours: {idle} usable, {wanted} \
         wanted back too soon, {refused} not allowed for infill ({} of data)",
        output::counted_noun(nodes.hours_known.into(), "hour")
    )
}

/// The energy, and whether it was measured.
pub fn energy_text(energy: EnergyUse) -> String {
    let method = if energy.is_estimated {
        "estimated with report.node_watts where Slurm measured none"
    } else {
        "measured by Slurm"
    };
    format!("{} kWh, {method}", output::format_number(energy.kwh))
}

/// Slurm's own totals.
pub fn cluster_text(cluster: &ClusterHours, report: &HarvestReport) -> String {
    let ClusterHours { allocated_hours, idle_hours, planned_hours, down_hours } = *cluster;
    let [allocated, idle, planned, down] =
        [allocated_hours, idle_hours, planned_hours, down_hours].map(output::format_number);
    let reported_share = report.cpu_hours / allocated_hours.max(f64::MIN_POSITIVE);
    format!(
        "{allocated} CPU-hours allocated ({} of them in the jobs above), {idle} idle, {planned} planned, {down} down, \
         on the whole cluster",
        percent::whole_percent(reported_share)
    )
}

/// The statistics of waits as text; `none` if there were no waits.
pub fn waits_text(waits: &WaitStatistics) -> String {
    if waits.count == 0 {
        return "none".to_owned();
    }
    let [median, p99, max] = [waits.median_s, waits.p99_s, waits.max_s].map(duration::format_duration);
    format!("median {median}, 99 % {p99}, longest {max}")
}

fn rows_text(rows: &[UsageRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "\n{:<wide$} {:>11} {:>11} {:>7} {:>8} {:>10} {:>8}\n",
        "WHO", "NODE-HOURS", "GPU-HOURS", "USEFUL", "RESCALE", "PREEMPTED", "PROBING"
    );
    for row in rows {
        let name = if row.name.is_empty() { "-" } else { &row.name };
        let hours = [row.useful_hours, row.rescale_hours, row.preempted_hours, row.probing_hours];
        let [useful, rescale, preempted, probing] =
            hours.map(|hours| percent::whole_percent(row.share_of(hours)));
        let _ = writeln!(
            text,
            "{name:<wide$} {:>11.1} {:>11.1} {useful:>7} {rescale:>8} {preempted:>10} {probing:>8}",
            row.node_hours, row.gpu_hours,
        );
    }
    text.trim_end().to_owned()
}
