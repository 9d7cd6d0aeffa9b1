//! Consecutive failures, and how long they keep a job from trying again.

use infill_model::UnixTime;

use super::settings::{
    CALM_SECS, FAILED_BACKOFF_MAX_SECS, FAILED_BACKOFF_SECS, LifecycleSettings, PREEMPTED_BACKOFF_MAX_SECS,
    PREEMPTED_BACKOFF_SECS, RETRY_SECS,
};

/// Numbers of consecutive failures, and the times before which the job must not try again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryBackoff {
    /// Starts that failed.
    pub failed_starts: u32,
    /// Preemptions of the lead.
    pub preemptions: u32,
    /// Leads that were launched and did not start, or whose agent did not say hello.
    pub late_starts: u32,
    /// Wings that sbatch refused, or that ended before their agent said hello.
    pub refusals: u32,
    /// The job is started only after this time.
    pub start_after: Option<UnixTime>,
    /// Wings are ordered only after this time.
    pub order_after: Option<UnixTime>,
    /// A command that failed is started again only after this time.
    pub retry_after: Option<UnixTime>,
}

impl RetryBackoff {
    /// Until when the job must not be started; `None` if it may be started now.
    pub(crate) fn start_barred_until(&self, now: UnixTime) -> Option<UnixTime> {
        self.start_after.filter(|t| *t > now)
    }

    /// Whether the job must not order wings now.
    pub(crate) fn orders_barred(&self, now: UnixTime) -> bool {
        self.order_after.is_some_and(|t| t > now)
    }

    /// A start failed.
    pub(super) fn record_failed_start(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.failed_starts += 1;
        let first = settings.backoff_secs;
        let longest = settings.backoff_max_secs;
        self.start_after = Some(now.plus_secs(doubled_backoff_secs(first, self.failed_starts, longest)));
    }

    /// A lead was launched and did not start, or did not reach `infill run`. The cause does not matter: if
    /// this happens repeatedly, other jobs shall have the nodes meanwhile.
    pub(super) fn record_late_start(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.late_starts += 1;
        let secs = doubled_backoff_secs(RETRY_SECS, self.late_starts, settings.backoff_max_secs);
        self.start_after = Some(now.plus_secs(secs));
    }

    /// The lead's agent has arrived: earlier delays no longer count.
    pub(super) fn reset_after_arrival(&mut self) {
        self.failed_starts = 0;
        self.late_starts = 0;
    }

    /// The lead's agent has arrived late.
    pub(super) fn record_late_arrival(&mut self) {
        self.failed_starts = 0;
        self.late_starts = self.late_starts.saturating_add(1);
    }

    /// The command has failed for the `times`-th time in a row.
    pub(super) fn record_command_failure(&mut self, times: u32, now: UnixTime) {
        let secs = doubled_backoff_secs(FAILED_BACKOFF_SECS, times, FAILED_BACKOFF_MAX_SECS);
        self.retry_after = Some(now.plus_secs(secs));
    }

    /// Whether a command that failed must still wait before it is started again.
    pub(crate) fn retry_barred(&self, now: UnixTime) -> bool {
        self.retry_after.is_some_and(|t| t > now)
    }

    /// Moves all times by `secs`.
    pub(super) fn shift_times(&mut self, secs: f64) {
        let times = [&mut self.start_after, &mut self.order_after, &mut self.retry_after];
        for time in times.into_iter().flatten() {
            *time = time.plus_secs(secs);
        }
    }

    /// sbatch refused a wing. That depends on the user's limits and not on the node, so the job does not
    /// order wings for a while.
    pub(super) fn record_refusal(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.refusals += 1;
        let first = settings.backoff_secs;
        let longest = settings.backoff_max_secs;
        self.order_after = Some(now.plus_secs(doubled_backoff_secs(first, self.refusals, longest)));
    }

    /// A wing failed. The first failure may be due to a bad node or the main queue. After further ones the
    /// job does not order wings for a while.
    pub(super) fn record_wing_failure(&mut self, settings: &LifecycleSettings, now: UnixTime) {
        self.refusals += 1;
        let further_failures = self.refusals - 1;
        if further_failures > 0 {
            let secs =
                doubled_backoff_secs(settings.backoff_secs, further_failures, settings.backoff_max_secs);
            self.order_after = Some(now.plus_secs(secs));
        }
    }

    /// A wing has started and trains: earlier refusals no longer count.
    pub(super) fn reset_after_wing(&mut self) {
        self.refusals = 0;
        self.order_after = None;
    }

    /// Slurm preempted the lead. The job's membership last changed at `last_change`.
    pub(super) fn record_preemption(&mut self, last_change: Option<UnixTime>, now: UnixTime) {
        if last_change.is_some_and(|t| now.secs_since(t) > CALM_SECS) {
            self.preemptions = 0;
        }
        self.preemptions += 1;
        let secs = doubled_backoff_secs(PREEMPTED_BACKOFF_SECS, self.preemptions, PREEMPTED_BACKOFF_MAX_SECS);
        self.start_after = Some(now.plus_secs(secs));
    }
}

/// Back-off in seconds: `first` for the first time, doubled for each further time, at most `longest`.
fn doubled_backoff_secs(first: f64, times: u32, longest: f64) -> f64 {
    // 20 doublings exceed any bound that a configuration may set.
    (first * f64::powi(2.0, times.min(20) as i32 - 1)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_bound_and_restarts_after_a_calm_period() {
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
