//! Looks again and again whether this daemon still leads.

use std::time::{Duration, Instant};

use super::context::DaemonContext;
use super::health::{HealthProblem, ProblemTopic};
use super::leadership::{LEADER_LEASE, LeadCheck};
use infill_store::{LeadStanding, StoreError};

/// Pause between two looks: the longest for which a daemon that has lost the lead does not know it.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Looks for as long as this daemon leads; ends with the reason why it must end.
pub(crate) async fn watch_lead(context: &DaemonContext) -> StoreError {
    loop {
        let at = Instant::now();
        match context.store.lead_standing().await {
            // One that was stopped over this question may have got an answer from long ago.
            Ok(standing) if at.elapsed() < LEADER_LEASE => confirm_lead(context, LeadCheck { at, standing }),
            Ok(_) => {}
            Err(e) => {
                if matches!(e, StoreError::Deposed { .. }) || context.leadership.is_watched() {
                    context.leadership.mark_lost();
                    return e;
                }
                report_doubt(context, &e);
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

fn confirm_lead(context: &DaemonContext, look: LeadCheck) {
    context.leadership.record_check(look);
    context.metrics.standby.set(i64::from(look.standing == LeadStanding::Watched));
    context.lock_state().health.clear_problem(ProblemTopic::Lead);
}

/// Nobody waits to take over, so nobody has.
fn report_doubt(context: &DaemonContext, e: &StoreError) {
    if context.lock_state().health.raise_problem(HealthProblem::Lead(e.to_string())) {
        tracing::warn!("the store does not say who leads; nobody waits to take over: {e}");
    }
}
