//! The random forest that helps to predict how long jobs run.
//!
//! It is trained again each day from the jobs that have ended. Training runs outside the rounds. The forest
//! is never stored.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use infill_model::clock::now;

/// Delay of the first training after a start. Jobs that reconnect are served first.
const FIRST_DELAY: Duration = Duration::from_secs(60);

/// Time from one training to the next.
const TRAINING_INTERVAL: Duration = Duration::from_secs(86_400);

/// Trains a forest once per [`TRAINING_INTERVAL`]. Never returns.
pub(crate) async fn train_daily(context: Arc<DaemonContext>) {
    let mut wait = FIRST_DELAY;
    loop {
        tokio::time::sleep(wait).await;
        wait = TRAINING_INTERVAL;
        train_forest(&context).await;
    }
}

async fn train_forest(context: &DaemonContext) {
    let training = context.lock_state().round_state.priorities().length_predictor.forest_training();
    let seed = now().0.unsigned_abs();
    match tokio::task::spawn_blocking(move || training.grow_forest(seed)).await {
        Ok(Ok(Some(forest))) => {
            context.lock_state().round_state.priorities_mut().length_predictor.set_forest(forest)
        }
        Ok(Ok(None)) => {}
        Ok(Err(e)) => tracing::warn!("lengths of jobs are predicted without a forest: {e}"),
        Err(e) => tracing::warn!("lengths of jobs are predicted without a forest: its training crashed: {e}"),
    }
}
