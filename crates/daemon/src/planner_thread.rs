//! The planner's thread: one at a time, and waited for up to its outer deadline.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use infill_model::{Plan, config::Config};
use infill_planner::round::RoundInput;

/// The planner's outer deadline in units of the solver's time limit: building and extracting take time too.
const OUTER_DEADLINE: f64 = 2.0;

/// What is said where the planner still works on an earlier question.
pub(crate) const STILL_AT_WORK: &str = "the planner is still at work on an earlier round";

/// What is said where it has not come back in time.
pub(crate) const TOO_SLOW: &str = "the outer deadline has passed";

/// Who plans. A thread cannot be stopped: past the deadline it goes on until it is done, and no other begins
/// before that.
#[derive(Clone, Debug)]
pub struct PlannerThread {
    turn: Arc<Semaphore>,
}

impl Default for PlannerThread {
    fn default() -> Self {
        PlannerThread { turn: Arc::new(Semaphore::new(1)) }
    }
}

impl PlannerThread {
    /// Waits until no planner is at work.
    #[cfg(test)]
    pub(crate) async fn wait_idle(&self) {
        let _ = self.turn.acquire().await;
    }

    /// Has `plan` answer a question on a blocking thread, but does not wait for it past the outer deadline.
    ///
    /// # Errors
    /// Why there is no plan, in words.
    pub(crate) async fn solve_round(
        &self,
        config: Arc<Config>,
        question: Arc<RoundInput>,
        plan: impl FnOnce(&RoundInput, &Config) -> Plan + Send + 'static,
    ) -> Result<Plan, &'static str> {
        let turn = self.turn.clone().try_acquire_owned().map_err(|_| STILL_AT_WORK)?;
        let deadline = Duration::from_secs_f64(config.planner.solve_secs * OUTER_DEADLINE + 0.5);
        let solving = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            plan(&question, &config)
        });
        match tokio::time::timeout(deadline, solving).await {
            Ok(Ok(plan)) => Ok(plan),
            Ok(Err(e)) => {
                tracing::error!("the planner broke: {e}");
                Err("the planner broke")
            }
            Err(_) => {
                tracing::warn!("the planner was not ready after {deadline:?}");
                Err(TOO_SLOW)
            }
        }
    }
}
