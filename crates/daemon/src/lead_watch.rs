//! Checks repeatedly whether this daemon still leads.

use std::time::{Duration, Instant};

use super::context::DaemonContext;
use super::health::{HealthProblem, ProblemTopic};
use super::leadership::{LEADER_LEASE, LeadCheck};
use infill_store::{LeadStanding, StoreError};

/// Pause between two checks. A daemon that has lost the lead notices it after at most this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Checks for as long as this daemon leads. Returns the reason why the daemon must end.
pub(crate) async fn watch_lead(context: &DaemonContext) -> StoreError {
    loop {
        let at = Instant::now();
        match context.store.lead_standing().await {
            // If the process was stopped during this query, the answer may be old.
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

fn confirm_lead(context: &DaemonContext, check: LeadCheck) {
    context.leadership.record_check(check);
    context.metrics.standby.set(i64::from(check.standing == LeadStanding::Watched));
    context.lock_state().health.clear_problem(ProblemTopic::Lead);
}

/// Raises the problem that the store does not answer. No other daemon waits to take over, so none has.
fn report_doubt(context: &DaemonContext, e: &StoreError) {
    if context.lock_state().health.raise_problem(HealthProblem::Lead(e.to_string())) {
        tracing::warn!("the store does not say which daemon leads; no other daemon waits to take over: {e}");
    }
}
