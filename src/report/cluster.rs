//! Slurm's own totals of the whole cluster, from `sreport cluster utilization`.

use std::time::Duration;

use super::parts::{ClusterHours, HOUR_SECS};
use crate::command;
use infill_model::UnixTime;

/// The time limit of sreport. It is short because slurmdbd reads totals, not jobs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The fields of the answer, in this order.
const FORMAT: &str = "Allocated,Idle,Planned,Down,PlannedDown";

/// The CPU-hours of a period, summed over all clusters in the answer. Every Slurm has CPU-hours. slurmdbd
/// has totals only for whole hours.
///
/// # Errors
/// A sentence, when Slurm does not answer, or not as expected.
pub async fn query_sreport(sreport: &str, from: UnixTime, to: UnixTime) -> Result<ClusterHours, String> {
    let start = format!("start={}", command::slurm_moment(from));
    let end = format!("end={}", command::slurm_moment(to));
    let format = format!("format={FORMAT}");
    let words = [
        "--noheader",
        "--parsable2",
        "-T",
        "cpu",
        "-t",
        "seconds",
        "cluster",
        "utilization",
        &start,
        &end,
        &format,
    ];
    parse_sreport(&command::run_in_utc(TIMEOUT, sreport, &words).await?)
}

fn parse_sreport(text: &str) -> Result<ClusterHours, String> {
    let mut sums = [0.0; 5];
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return Err("sreport has no totals of that time yet: slurmdbd makes them once an hour".to_owned());
    }
    for line in lines {
        let numbers: Result<Vec<f64>, _> = line.split('|').map(|word| word.trim().parse::<f64>()).collect();
        let numbers =
            numbers.ok().filter(|n| n.len() == sums.len() && n.iter().all(|n| n.is_finite() && *n >= 0.0));
        let numbers =
            numbers.ok_or_else(|| format!("sreport: expected {} numbers, not {line:?}", sums.len()))?;
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number / HOUR_SECS);
    }
    let [allocated_hours, idle_hours, planned_hours, down, planned_down] = sums;
    let down_hours = down + planned_down;
    Ok(ClusterHours { allocated_hours, idle_hours, planned_hours, down_hours })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_all_clusters() {
        let found = parse_sreport("3600|7200|0|1800|1800\n3600|0|3600|0|0\n").unwrap();
        let expected =
            ClusterHours { allocated_hours: 2.0, idle_hours: 2.0, planned_hours: 1.0, down_hours: 1.0 };
        assert_eq!(found, expected);
        for bad in ["", "\n", "1|2|3", "a|b|c|d|e", "1|2|3|4|inf"] {
            assert!(parse_sreport(bad).is_err(), "{bad:?}");
        }
    }
}
