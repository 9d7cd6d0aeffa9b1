//! Slurm's own sums of the whole cluster: `sreport cluster utilization`.

use std::time::Duration;

use super::parts::{ClusterHours, HOUR_SECS};
use crate::command;
use infill_model::UnixTime;

/// slurmdbd reads sums, not jobs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What it is asked for, in the order in which it answers.
const FORMAT: &str = "Allocated,Idle,Planned,Down,PlannedDown";

/// Asks for CPU-hours, the only ones that every Slurm tells, of a stretch of time, of this cluster, or of all
/// that it answers with together. Whole hours only: slurmdbd sums up by the hour.
///
/// # Errors
/// In words, when Slurm does not answer, or not as expected.
pub async fn query_sreport(sreport: &str, from: UnixTime, to: UnixTime) -> Result<ClusterHours, String> {
    let moment = |t: UnixTime| t.to_string().trim_end_matches('Z').to_owned();
    let [start, end] = [format!("start={}", moment(from)), format!("end={}", moment(to))];
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
        return Err("sreport has no sums of that time: slurmdbd makes them once an hour".to_owned());
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
    Ok(ClusterHours { allocated_hours, idle_hours, planned_hours, down_hours: down + planned_down })
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
