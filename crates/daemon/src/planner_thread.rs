//! Runs the planner on a blocking thread, with an outer deadline: one plan at a time for the rounds. Readers
//! who ask for a plan have a planner thread of their own.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use infill_model::{Plan, config::Config};
use infill_planner::round::RoundInput;

/// The planner's outer deadline in units of the solver's time limit. Building the problem and extracting the
/// plan take time too.
const OUTER_DEADLINE: f64 = 2.0;

/// The error where the planner still works on an earlier round.
pub(crate) const STILL_AT_WORK: &str = "the planner is still at work on an earlier round";

/// The error where the planner has not finished in time.
pub(crate) const TOO_SLOW: &str = "the outer deadline has passed";

/// Plans on a blocking thread. A thread cannot be stopped: past the deadline it runs on until it is done, and
/// no other begins before that.
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

    /// Runs `plan` on a blocking thread, and waits for it until the outer deadline at most.
    ///
    /// # Errors
    /// A sentence that says why planning failed.
    pub(crate) async fn solve_round(
        &self,
        config: Arc<Config>,
        input: Arc<RoundInput>,
        plan: impl FnOnce(&RoundInput, &Config) -> Plan + Send + 'static,
    ) -> Result<Plan, &'static str> {
        let turn = self.turn.clone().try_acquire_owned().map_err(|_| STILL_AT_WORK)?;
        let deadline = Duration::from_secs_f64(config.planner.solve_secs * OUTER_DEADLINE + 0.5);
        let solving = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            plan(&input, &config)
        });
        match tokio::time::timeout(deadline, solving).await {
            Ok(Ok(plan)) => Ok(plan),
            Ok(Err(e)) => {
                tracing::error!("the planner crashed: {e}");
                Err("the planner crashed")
            }
            Err(_) => {
                tracing::warn!("the planner has not finished after {deadline:?}");
                Err(TOO_SLOW)
            }
        }
    }
}
