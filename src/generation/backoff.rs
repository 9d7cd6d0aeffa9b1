//! Misfortunes in a row, and until when they keep a job from trying again.

use crate::model::UnixTime;

use super::settings::{CALM_SECS, PREEMPTED_BACKOFF_MAX_SECS, PREEMPTED_BACKOFF_SECS, Settings};

/// Misfortunes in a row, and until when they keep the job from trying again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Starts that came to nothing.
    pub failed_starts: u32,
    /// Preemptions.
    pub preemptions: u32,
    /// Wings that sbatch refused.
    pub refusals: u32,
    /// Not to be started before.
    pub start_after: Option<UnixTime>,
    /// No wing is ordered before.
    pub order_after: Option<UnixTime>,
}

impl Backoff {
    /// Until when the job must not be started.
    pub fn start_barred(&self, now: UnixTime) -> Option<UnixTime> {
        self.start_after.filter(|t| *t > now)
    }

    /// Whether no wing may be ordered now.
    pub fn orders_barred(&self, now: UnixTime) -> bool {
        self.order_after.is_some_and(|t| t > now)
    }

    /// A start came to nothing.
    pub(super) fn start_failed(&mut self, settings: &Settings, now: UnixTime) {
        self.failed_starts += 1;
        let (first, longest) = (settings.backoff_secs, settings.backoff_max_secs);
        self.start_after = Some(now.plus_secs(doubled(first, self.failed_starts, longest)));
    }

    /// A refusal says something of the user's limits, and nothing of the node: the job orders no wing for a
    /// while.
    pub(super) fn refused(&mut self, settings: &Settings, now: UnixTime) {
        self.refusals += 1;
        let (first, longest) = (settings.backoff_secs, settings.backoff_max_secs);
        self.order_after = Some(now.plus_secs(doubled(first, self.refusals, longest)));
    }

    /// A wing came up: what was refused before counts no more.
    pub(super) fn wing_came(&mut self) {
        self.refusals = 0;
        self.order_after = None;
    }

    /// Slurm preempted the lead, of which the membership last changed at `last_change`.
    pub(super) fn preempted(&mut self, last_change: Option<UnixTime>, now: UnixTime) {
        if last_change.is_some_and(|t| now.secs_since(t) > CALM_SECS) {
            self.preemptions = 0;
        }
        self.preemptions += 1;
        let secs = doubled(PREEMPTED_BACKOFF_SECS, self.preemptions, PREEMPTED_BACKOFF_MAX_SECS);
        self.start_after = Some(now.plus_secs(secs));
    }
}

/// `first` seconds for the first time, and twice as many for each further one, up to `longest`.
fn doubled(first: f64, times: u32, longest: f64) -> f64 {
    // More doublings than this reach every bound that a configuration may have.
    (first * f64::powi(2.0, times.min(20) as i32 - 1)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_bound_and_begins_anew_after_a_calm() {
        assert_eq!(
            [1, 2, 3, 4, 99].map(|times| doubled(30.0, times, 300.0)),
            [30.0, 60.0, 120.0, 240.0, 300.0]
        );
        let mut backoff = Backoff::default();
        let secs = [0, 10, 20, 30, 200].map(|at| {
            let now = UnixTime(at);
            backoff.preempted(Some(UnixTime(0)), now);
            backoff.start_after.map(|t| t.secs_since(now))
        });
        assert_eq!(secs, [2.0, 4.0, 8.0, 8.0, 2.0].map(Some));
    }
}
