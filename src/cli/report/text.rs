//! A report on a screen, or on a page of paper.

use std::fmt::Write as _;

use super::sums::{Report, Row, Waits};
use crate::cli::output::{self, When};
use crate::cli::percent;
use crate::model::duration;

/// What a director asks first, first.
pub fn text(report: &Report, when: When) -> String {
    let mut text = format!("{} to {}\n\n", when.moment(report.from), when.moment(report.to));
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<22}{what}");
    };
    line("main jobs", format!("{} started; wait {}", report.main_jobs, waits(&report.main_waits)));
    line(
        "of these, where infill was",
        format!(
            "{}: {} waited longer than a second for it, {} past a planned start; {}",
            report.delays.count,
            report.delayed,
            report.missed,
            waits(&report.delays)
        ),
    );
    line(
        "harvested",
        format!(
            "{} node-hours, {} GPU-hours: like {:.1} more nodes, beside {} node-hours of main jobs",
            output::number(report.node_hours),
            output::number(report.gpu_hours),
            report.like_nodes,
            output::number(report.main_node_hours)
        ),
    );
    if let Some(useful) = report.useful {
        let seen =
            percent::whole((report.seen_node_hours / report.node_hours.max(f64::MIN_POSITIVE)).min(1.0));
        line(
            "useful",
            format!("{} of it made steps (infill saw {seen} of these node-hours)", percent::whole(useful)),
        );
    }
    if let Some(kwh) = report.kwh {
        line("energy", format!("{} kWh, as Slurm measured it", output::number(kwh)));
    }
    text + &table(&report.rows)
}

fn waits(waits: &Waits) -> String {
    if waits.count == 0 {
        return "none".to_owned();
    }
    let [median, p99, max] = [waits.median_s, waits.p99_s, waits.max_s].map(duration::show);
    format!("median {median}, 99 % {p99}, longest {max}")
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let wide = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "\n{:<wide$} {:>11} {:>11} {:>7} {:>8} {:>10} {:>8}\n",
        "WHO", "NODE-HOURS", "GPU-HOURS", "USEFUL", "RESCALE", "PREEMPTED", "PROBING"
    );
    for row in rows {
        let share = |hours: f64| percent::whole(hours / row.node_hours.max(f64::MIN_POSITIVE));
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
