//! A report on a screen, or on a page of paper.

use std::fmt::Write as _;

use super::parts::{
    ClusterHours, ComparedPeriod, EnergyUse, HarvestReport, MonthSummary, NodeUses, UsageRow, WaitStatistics,
};
use infill_model::duration;
use infill_present::{output, phrases::percent};

/// What a director asks first, first.
pub fn report_text(report: &HarvestReport) -> String {
    let mut text = format!("{} to {}\n\n", report.from, report.to);
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<28}{what}");
    };
    line("main jobs", format!("{} started; wait {}", report.main_jobs, waits_text(&report.main_waits)));
    line(
        "of these, where infill was",
        format!(
            "{}: {} waited longer than a second for it, {} past a planned start; {}",
            report.delays.count,
            report.delayed,
            report.missed,
            waits_text(&report.delays)
        ),
    );
    line(
        "harvested",
        format!(
            "{} node-hours, {} GPU-hours: like {:.1} more {}, beside {} node-hours of main jobs",
            output::format_number(report.node_hours),
            output::format_number(report.gpu_hours),
            report.like_nodes,
            if report.lends_parts { "GPUs" } else { "nodes" },
            output::format_number(report.main_node_hours)
        ),
    );
    if let Some(useful) = report.useful {
        let seen = percent::whole_percent(
            (report.seen_node_hours / report.node_hours.max(f64::MIN_POSITIVE)).min(1.0),
        );
        line(
            "useful",
            format!(
                "{} of it made steps (infill saw {seen} of these node-hours)",
                percent::whole_percent(useful)
            ),
        );
    }
    if let Some(nodes) = &report.nodes {
        line("of the nodes' time", node_uses_text(nodes));
    }
    if let Some(energy) = report.energy {
        line("energy", self::energy_text(energy));
    }
    if let Some(cost) = &report.cost {
        line("worth", format!("{:.0} {}", cost.amount, cost.currency));
    }
    if let Some(cluster) = &report.cluster {
        line("sreport", self::cluster_text(cluster, report));
    }
    if let Some(before) = &report.before {
        let ComparedPeriod { from, to, main_waits } = before;
        line("main jobs before", format!("{from} to {to}: wait {}", waits_text(main_waits)));
    }
    text.push_str(&rows_text(&report.rows));
    text.push_str(&months_text(&report.months));
    text.trim_end().to_owned()
}

fn months_text(months: &[MonthSummary]) -> String {
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
    if months.iter().all(|month| month.node_hours == 0.0) { String::new() } else { text }
}

/// Of what main jobs left idle, what became of it.
pub fn node_uses_text(nodes: &NodeUses) -> String {
    let [idle, wanted, refused] =
        [nodes.idle_hours, nodes.wanted_hours, nodes.refused_hours].map(output::format_number);
    let harvested = nodes.harvested.map_or_else(|| "-".to_owned(), percent::whole_percent);
    format!(
        "{harvested} of what main jobs left was used; left idle: {idle} node-hours that could have been, {wanted} that \
         were wanted too soon, {refused} that something forbade ({} hours are known)",
        nodes.hours_known
    )
}

/// How much, and whether it was measured.
pub fn energy_text(energy: EnergyUse) -> String {
    let how = match energy.is_estimated {
        true => "estimated by report.node_watts where Slurm measured none",
        false => "as Slurm measured it",
    };
    format!("{} kWh, {how}", output::format_number(energy.kwh))
}

/// Slurm's own sums.
pub fn cluster_text(cluster: &ClusterHours, report: &HarvestReport) -> String {
    let ClusterHours { allocated_hours, idle_hours, planned_hours, down_hours } = *cluster;
    let [allocated, idle, planned, down] =
        [allocated_hours, idle_hours, planned_hours, down_hours].map(output::format_number);
    let ours = report.cpu_hours / allocated_hours.max(f64::MIN_POSITIVE);
    format!(
        "{allocated} CPU-hours allocated ({} of them in the jobs above), {idle} idle, {planned} planned, {down} down, \
         on the whole cluster",
        percent::whole_percent(ours)
    )
}

/// In words.
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
        let share = |hours: f64| percent::whole_percent(row.share_of(hours));
        let name = if row.name.is_empty() { "-" } else { &row.name };
        let _ = writeln!(
            text,
            "{name:<wide$} {:>11.1} {:>11.1} {:>7} {:>8} {:>10} {:>8}",
            row.node_hours,
            row.gpu_hours,
            share(row.useful_hours),
            share(row.rescale_hours),
            share(row.preempted_hours),
            share(row.probing_hours)
        );
    }
    text.trim_end().to_owned()
}
