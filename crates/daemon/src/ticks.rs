//! Advances the jobs' state machines with the clock.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use super::round_trigger::RoundUrgency;
use infill_model::clock::now;

/// Pause between two checks of the jobs' deadlines.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Advances all jobs once per [`TICK_INTERVAL`]. Never returns.
pub async fn run(context: Arc<DaemonContext>) {
    let mut interval = tokio::time::interval(TICK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        let now = now();
        context.change_fleet(now, |state| state.fleet.step_all_jobs(now));
        if context.lock_state().fleet.awaits_lead_start(now) {
            context.round_trigger.request_round(RoundUrgency::Ordinary, None);
        }
    }
}
