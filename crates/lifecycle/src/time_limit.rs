//! Time limits from leases, in Slurm's whole minutes.

use infill_model::MIN_TIME_LIMIT_SECS;

/// A year in minutes: the longest limit, for leases without an end.
const MAX_LIMIT_MINS: f64 = 525_600.0;

/// Time limit in minutes for a start in a window of `secs`: rounded down, but at least 1.
///
/// While a main job waits for nodes, only backfill starts malleable jobs, and only if their limit ends before
/// the planned use of the nodes. So a limit that is too long by a second prevents the start.
pub(crate) fn start_limit_mins(secs: f64) -> u32 {
    (secs / 60.0).floor().clamp(1.0, MAX_LIMIT_MINS) as u32
}

/// Time limit in minutes for a launch on a lease of `lease_secs`. If `startable_secs` is set, Slurm starts
/// the job only if its limit ends within that time: the shorter of both periods counts. `None` if Slurm would
/// not start the job.
pub(crate) fn launch_limit_mins(lease_secs: f64, startable_secs: Option<f64>) -> Option<u32> {
    let startable_secs = startable_secs.unwrap_or(f64::INFINITY);
    (startable_secs >= MIN_TIME_LIMIT_SECS).then(|| start_limit_mins(lease_secs.min(startable_secs)))
}

/// Time limit in minutes for a running job with a lease of `secs` from its start: rounded up, at least 1.
///
/// Rounding down would end the job up to a minute before its window. Rounding up does not delay main jobs:
/// the job leaves in time, and Slurm can preempt it if it does not.
pub(crate) fn running_limit_mins(secs: f64) -> u32 {
    (secs / 60.0).ceil().clamp(1.0, MAX_LIMIT_MINS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_whole_minutes_of_at_least_one() {
        let cases =
            [(-5.0, 1, 1), (59.0, 1, 1), (60.0, 1, 1), (61.0, 1, 2), (f64::INFINITY, 525_600, 525_600)];
        for (secs, start, running) in cases {
            assert_eq!((start_limit_mins(secs), running_limit_mins(secs)), (start, running), "{secs} s");
        }
    }

    #[test]
    fn a_launch_ends_before_what_backfill_plans_and_never_after_its_lease() {
        let cases = [
            (200.0, None, Some(3)),
            (200.0, Some(200.0), Some(3)),
            (200.0, Some(179.0), Some(2)),
            (200.0, Some(60.0), Some(1)),
            (200.0, Some(59.0), None),
            (200.0, Some(-1e9), None),
            (70.0, Some(1e9), Some(1)),
        ];
        for (lease, startable, limit) in cases {
            assert_eq!(launch_limit_mins(lease, startable), limit, "{lease} s, {startable:?}");
        }
    }
}
