//! Lets time pass for the jobs' state machines.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use super::round_trigger::RoundUrgency;
use infill_model::clock::now;

/// Pause between two looks at the machines' deadlines.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Ticks, for ever.
pub async fn run(context: Arc<DaemonContext>) {
    let mut interval = tokio::time::interval(TICK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        let at = now();
        context.change_fleet(at, |state| state.fleet.step_all_jobs(at));
        if context.lock_state().fleet.awaits_lead_start(at) {
            context.wake.request_round(RoundUrgency::Ordinary, None);
        }
    }
}
