//! The forest that helps to expect how long jobs run: grown anew each day from what ended, off the rounds,
//! and never stored.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use infill_model::clock::now;

/// After a start, jobs that come back are met first.
const FIRST_DELAY: Duration = Duration::from_secs(60);

/// From one to the next.
const TRAINING_INTERVAL: Duration = Duration::from_secs(86_400);

/// Grows forests, for ever.
pub(crate) async fn train_daily(context: Arc<DaemonContext>) {
    let mut wait = FIRST_DELAY;
    loop {
        tokio::time::sleep(wait).await;
        wait = TRAINING_INTERVAL;
        train_forest(&context).await;
    }
}

async fn train_forest(context: &DaemonContext) {
    let ground = context.lock_state().scene.priorities().outlook.forest_training();
    let seed = now().0.unsigned_abs();
    match tokio::task::spawn_blocking(move || ground.grow_forest(seed)).await {
        Ok(Ok(Some(forest))) => context.lock_state().scene.priorities_mut().outlook.set_forest(forest),
        Ok(Ok(None)) => {}
        Ok(Err(e)) => tracing::warn!("lengths of jobs are expected without a forest: {e}"),
        Err(e) => tracing::warn!("lengths of jobs are expected without a forest, which broke: {e}"),
    }
}
