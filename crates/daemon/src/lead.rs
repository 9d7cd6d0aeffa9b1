//! Looks again and again whether this daemon still leads.

use std::time::{Duration, Instant};

use super::context::Context;
use super::health::{Problem, Topic};
use super::leadership::{LEASE, Look};
use infill_store::{LeadStanding, StoreError};

/// Pause between two looks: the longest for which a daemon that has lost the lead does not know it.
const LOOK: Duration = Duration::from_millis(500);

/// Looks for as long as this daemon leads; ends with the reason why it must end.
pub(crate) async fn keep(context: &Context) -> StoreError {
    loop {
        let at = Instant::now();
        match context.store.standing().await {
            // One that was stopped over this question may have got an answer from long ago.
            Ok(standing) if at.elapsed() < LEASE => leads_on(context, Look { at, standing }),
            Ok(_) => {}
            Err(e) => {
                if matches!(e, StoreError::Deposed { .. }) || context.leadership.is_watched() {
                    context.leadership.lose();
                    return e;
                }
                in_doubt(context, &e);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn leads_on(context: &Context, look: Look) {
    context.leadership.note(look);
    context.metrics.standby.set(i64::from(look.standing == LeadStanding::Watched));
    context.state().health.clear(Topic::Lead);
}

/// Nobody waits to take over, so nobody has.
fn in_doubt(context: &Context, e: &StoreError) {
    if context.state().health.raise(Problem::Lead(e.to_string())) {
        tracing::warn!("the store does not say who leads; nobody waits to take over: {e}");
    }
}
