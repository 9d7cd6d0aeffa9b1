//! For how long the daemon could not have heard anybody.
//!
//! Silence of an agent means something only while somebody listens. A daemon that is stopped for a minute, or
//! whose clock is set, would find everybody silent for that long; so it asks, whenever it takes up its
//! values, how much time has passed in which it was deaf.

use std::time::{Duration, Instant};

use infill_model::UnixTime;

/// Time between two looks at the clock up to which the daemon counts as awake: it ticks every second, and a
/// loaded machine may take some more.
const MAX_TICK_GAP: Duration = Duration::from_secs(3);

/// Differences between the clocks up to so many seconds are rounding.
const CLOCK_TOLERANCE_SECS: f64 = 2.0;

/// When the daemon last looked at the clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockJumpDetector {
    last: Option<(Instant, UnixTime)>,
}

impl ClockJumpDetector {
    /// Looks at the clocks: `awake`, by one that nobody sets, and the time of day. Returns by how many
    /// seconds all that was noted before is to be moved: those for which the daemon stood still, or by which
    /// the time of day was set (less than zero, if back). 0 as a rule.
    pub fn detect_jump(&mut self, awake: Instant, now: UnixTime) -> f64 {
        let Some((then, at)) = self.last.replace((awake, now)) else { return 0.0 };
        let passed = awake.saturating_duration_since(then);
        let heard = if passed > MAX_TICK_GAP { Duration::ZERO } else { passed };
        let missed = now.secs_since(at) - heard.as_secs_f64();
        if missed.abs() > CLOCK_TOLERANCE_SECS { missed } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_pause_and_a_clock_that_was_set_from_time_that_passes() {
        let mut attention = ClockJumpDetector::default();
        let start = Instant::now();
        let mut look =
            |awake, now| attention.detect_jump(start + Duration::from_millis(awake), UnixTime(now));
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
