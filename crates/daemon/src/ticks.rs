//! Lets time pass for the jobs' state machines.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::waking::Call;
use infill_model::clock::now;

/// Pause between two looks at the machines' deadlines.
const TICK: Duration = Duration::from_secs(1);

/// Ticks, for ever.
pub async fn run(context: Arc<Context>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        let at = now();
        context.change(at, |state| state.fleet.tick(at));
        if context.state().fleet.awaits_a_start(at) {
            context.wake.call(Call::Ordinary, None);
        }
    }
}
