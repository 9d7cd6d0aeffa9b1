//! Detects how long the daemon could not hear any agent.
//!
//! Silence of an agent means something only while the daemon listens. A daemon that was stopped for a minute,
//! or whose clock was set, would find all agents silent for that long. So each time it locks its state, it
//! checks how much time has passed in which it could not listen.

use std::time::{Duration, Instant};

use infill_model::UnixTime;

/// Longest time between two looks at the clock for which the daemon counts as awake. It ticks every second,
/// and a loaded machine may take longer.
const MAX_TICK_GAP: Duration = Duration::from_secs(3);

/// Differences between the clocks up to this many seconds count as rounding.
const CLOCK_TOLERANCE_SECS: f64 = 2.0;

/// Remembers when the daemon last looked at its clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockJumpDetector {
    last: Option<(Instant, UnixTime)>,
}

impl ClockJumpDetector {
    /// Compares two clocks: `awake`, a monotonic one, and `now`, the time of day.
    ///
    /// Returns by how many seconds all earlier times must be moved. This is the time for which the daemon
    /// stood still, or the change of the time of day (negative if it was set back). It is usually 0.
    pub fn detect_jump(&mut self, awake: Instant, now: UnixTime) -> f64 {
        let Some((last_awake, last_now)) = self.last.replace((awake, now)) else { return 0.0 };
        let passed = awake.saturating_duration_since(last_awake);
        let listened = if passed > MAX_TICK_GAP { Duration::ZERO } else { passed };
        let missed = now.secs_since(last_now) - listened.as_secs_f64();
        if missed.abs() > CLOCK_TOLERANCE_SECS { missed } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_and_a_clock_that_was_set_differ_from_time_that_passes() {
        let mut detector = ClockJumpDetector::default();
        let start = Instant::now();
        let mut look = |awake, now| detector.detect_jump(start + Duration::from_millis(awake), UnixTime(now));
        assert_eq!(look(0, 1000), 0.0);
        assert_eq!(look(1000, 1002), 0.0, "rounding");
        assert_eq!(look(3900, 1004), 0.0, "a loaded machine");
        assert_eq!(look(73_900, 1074), 70.0, "stopped for 70 s");
        assert_eq!(look(74_000, 4674), 3599.9, "set to an hour later");
        assert_eq!(look(75_000, 1075), -3600.0, "and back");
        // A machine that sleeps: one clock stands still.
        assert_eq!(look(75_100, 1675), 599.9);
    }
}
