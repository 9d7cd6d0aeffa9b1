//! Counts main jobs that malleable jobs delayed, and says when there are too many (`[safety]`).

use std::collections::VecDeque;

use infill_model::config::{DelayAction, SafetyConfig};
use infill_model::{ControlState, MainDelay, UnixTime};

/// Most delays that are kept. With more in the window, the oldest no longer count.
const MAX_KEPT: usize = 10_000;

/// The delays that count, the oldest first.
#[derive(Debug, Default)]
pub struct DelayWatch {
    delays: VecDeque<MainDelay>,
}

/// Too many main jobs were delayed.
#[derive(Clone, Debug, PartialEq)]
pub struct TooManyDelays {
    /// The number of delayed main jobs.
    pub jobs: usize,
    /// The longest of these delays.
    pub worst: MainDelay,
    /// What the daemon does about it.
    pub action: DelayAction,
}

impl TooManyDelays {
    /// The state that follows. An administrator's stricter order stays.
    pub(crate) fn control_after(&self, control: ControlState) -> ControlState {
        match (self.action, control) {
            (DelayAction::Drain, _) => ControlState::Draining,
            (DelayAction::Pause, ControlState::Normal) => ControlState::Paused,
            _ => control,
        }
    }
}

impl DelayWatch {
    /// Records the delays of a round. Returns whether main jobs were delayed too often.
    pub(crate) fn record_delays(
        &mut self,
        delays: &[MainDelay],
        config: &SafetyConfig,
        now: UnixTime,
    ) -> Option<TooManyDelays> {
        self.delays.extend(delays.iter().filter(|delay| delay.secs > config.max_delay_secs));
        self.delays.retain(|delay| now.secs_since(delay.at) <= config.delay_window_secs);
        self.delays.drain(..self.delays.len().saturating_sub(MAX_KEPT));
        let jobs = self.delays.len();
        if jobs < config.max_delayed_jobs as usize {
            return None;
        }
        let worst = *self.delays.iter().max_by(|a, b| a.secs.total_cmp(&b.secs))?;
        Some(TooManyDelays { jobs, worst, action: config.on_delays })
    }

    /// Forgets all delays, because an administrator has given an order.
    pub(crate) fn forget_delays(&mut self) {
        self.delays.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infill_model::JobId;

    fn delay(job: u32, at: i64, secs: f64) -> MainDelay {
        MainDelay { job: JobId(job), at: UnixTime(at), secs, planned: false }
    }

    #[test]
    fn delays_count_within_the_window_and_above_the_limit() {
        let config = SafetyConfig { max_delayed_jobs: 2, ..SafetyConfig::default() };
        let mut watch = DelayWatch::default();
        let mut record = |delays: &[MainDelay], now| {
            watch.record_delays(delays, &config, UnixTime(now)).map(|found| (found.jobs, found.worst.job.0))
        };
        assert_eq!(record(&[delay(1, 100, 31.0), delay(2, 100, 30.0)], 100), None, "30 s are allowed");
        assert_eq!(record(&[delay(3, 3701, 40.0)], 3701), None, "an hour has passed");
        assert_eq!(record(&[delay(4, 3800, 35.0), delay(5, 3800, 31.0)], 3800), Some((3, 3)));
        assert_eq!(record(&[], 3900), Some((3, 3)), "all of them stay counted");
        watch.forget_delays();
        assert_eq!(watch.record_delays(&[], &config, UnixTime(3900)), None);
    }

    #[test]
    fn the_number_of_delays_is_bounded() {
        let config = SafetyConfig::default();
        let mut watch = DelayWatch::default();
        let many: Vec<MainDelay> = (0..3 * MAX_KEPT as u32).map(|job| delay(job, 100, 31.0)).collect();
        let found = watch.record_delays(&many, &config, UnixTime(100)).map(|found| found.jobs);
        assert_eq!((found, watch.delays.len()), (Some(MAX_KEPT), MAX_KEPT));
    }

    #[test]
    fn an_order_is_never_loosened() {
        let found = |action| TooManyDelays { jobs: 3, worst: delay(1, 100, 31.0), action };
        for (action, before, after) in [
            (DelayAction::Warn, ControlState::Normal, ControlState::Normal),
            (DelayAction::Pause, ControlState::Normal, ControlState::Paused),
            (DelayAction::Pause, ControlState::Draining, ControlState::Draining),
            (DelayAction::Drain, ControlState::Paused, ControlState::Draining),
        ] {
            assert_eq!(found(action).control_after(before), after, "{action:?} {before:?}");
        }
    }
}
