//! Misfortunes in a row, and until when they keep a job from trying again.

use infill_model::UnixTime;

use super::settings::{
    CALM_SECS, FAILED_BACKOFF_MAX_SECS, FAILED_BACKOFF_SECS, LifecycleSettings, PREEMPTED_BACKOFF_MAX_SECS,
    PREEMPTED_BACKOFF_SECS, RETRY_SECS,
};

/// Misfortunes in a row, and until when they keep the job from trying again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryBackoff {
    /// Starts that came to nothing.
    pub failed_starts: u32,
    /// Preemptions.
    pub preemptions: u32,
    /// Leads that were sent off and did not start, or said nothing.
    pub late_starts: u32,
    /// Wings that sbatch refused, or that ended before a word.
    pub refusals: u32,
    /// Not to be started before.
    pub start_after: Option<UnixTime>,
    /// No wing is ordered before.
    pub order_after: Option<UnixTime>,
    /// A command that failed is not started again before.
    pub retry_after: Option<UnixTime>,
}

impl RetryBackoff {
    /// Until when the job must not be started.
    pub(crate) fn start_barred_until(&self, now: UnixTime) -> Option<UnixTime> {
        self.start_after.filter(|t| *t > now)
    }

    /// Whether no wing may be ordered now.
    pub(crate) fn orders_barred(&self, now: UnixTime) -> bool {
        self.order_after.is_some_and(|t| t > now)
    }

    /// A start came to nothing.
    pub(super) fn record_failed_start(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.failed_starts += 1;
        let first = settings.backoff_secs;
        let longest = settings.backoff_max_secs;
        self.start_after = Some(now.plus_secs(doubled_backoff_secs(first, self.failed_starts, longest)));
    }

    /// A lead was sent off and did not start, or did not come to `infill run`. Whoever is to blame: if it
    /// happens again and again, others shall have the nodes meanwhile.
    pub(super) fn record_late_start(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.late_starts += 1;
        let secs = doubled_backoff_secs(RETRY_SECS, self.late_starts, settings.backoff_max_secs);
        self.start_after = Some(now.plus_secs(secs));
    }

    /// The lead's agent has come: what kept it before counts no more.
    pub(super) fn reset_after_arrival(&mut self) {
        self.failed_starts = 0;
        self.late_starts = 0;
    }

    /// The lead's agent has come, and late.
    pub(super) fn record_late_arrival(&mut self) {
        self.failed_starts = 0;
        self.late_starts = self.late_starts.saturating_add(1);
    }

    /// The command has failed for the `times`-th time in a row.
    pub(super) fn record_command_failure(&mut self, times: u32, now: UnixTime) {
        self.retry_after =
            Some(now.plus_secs(doubled_backoff_secs(FAILED_BACKOFF_SECS, times, FAILED_BACKOFF_MAX_SECS)));
    }

    /// Whether a command that failed must still wait.
    pub(crate) fn retry_barred(&self, now: UnixTime) -> bool {
        self.retry_after.is_some_and(|t| t > now)
    }

    /// Moves all times by these seconds.
    pub(super) fn shift_times(&mut self, secs: f64) {
        let times = [&mut self.start_after, &mut self.order_after, &mut self.retry_after];
        times.into_iter().flatten().for_each(|t| *t = t.plus_secs(secs));
    }

    /// A refusal says something of the user's limits, and nothing of the node: the job orders no wing for a
    /// while.
    pub(super) fn record_refusal(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.refusals += 1;
        let first = settings.backoff_secs;
        let longest = settings.backoff_max_secs;
        self.order_after = Some(now.plus_secs(doubled_backoff_secs(first, self.refusals, longest)));
    }

    /// A wing came to nothing: the first may have met a bad node or the main queue; if it goes on like that,
    /// the job orders none for a while.
    pub(super) fn record_wing_failure(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.refusals += 1;
        if let Some(further) = self.refusals.checked_sub(1).filter(|n| *n > 0) {
            let secs = doubled_backoff_secs(settings.backoff_secs, further, settings.backoff_max_secs);
            self.order_after = Some(now.plus_secs(secs));
        }
    }

    /// A wing came up and serves: what was refused before counts no more.
    pub(super) fn reset_after_wing(&mut self) {
        self.refusals = 0;
        self.order_after = None;
    }

    /// Slurm preempted the lead, of which the membership last changed at `last_change`.
    pub(super) fn record_preemption(&mut self, last_change: Option<UnixTime>, now: UnixTime) {
        if last_change.is_some_and(|t| now.secs_since(t) > CALM_SECS) {
            self.preemptions = 0;
        }
        self.preemptions += 1;
        let secs = doubled_backoff_secs(PREEMPTED_BACKOFF_SECS, self.preemptions, PREEMPTED_BACKOFF_MAX_SECS);
        self.start_after = Some(now.plus_secs(secs));
    }
}

/// `first` seconds for the first time, and twice as many for each further one, up to `longest`.
fn doubled_backoff_secs(first: f64, times: u32, longest: f64) -> f64 {
    // More doublings than this reach every bound that a configuration may have.
    (first * f64::powi(2.0, times.min(20) as i32 - 1)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_bound_and_begins_anew_after_a_calm() {
        assert_eq!(
            [1, 2, 3, 4, 99].map(|times| doubled_backoff_secs(30.0, times, 300.0)),
            [30.0, 60.0, 120.0, 240.0, 300.0]
        );
        let mut backoff = RetryBackoff::default();
        let secs = [0, 10, 20, 30, 200].map(|at| {
            let now = UnixTime(at);
            backoff.record_preemption(Some(UnixTime(0)), now);
            backoff.start_after.map(|t| t.secs_since(now))
        });
        assert_eq!(secs, [2.0, 4.0, 8.0, 8.0, 2.0].map(Some));
    }
}
